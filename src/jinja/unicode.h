// Characters as in Python's str: classes, case, and positions counted in code points.
//
// Who may call: anyone, from any thread; there is no state.
// What holds: every text must be valid UTF-8 (the lexer and the import of variables ensure that), so the first byte of
//   a character gives its length.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "quire/base/utf8.h"

namespace quire::jinja {

// Bytes of the character that starts with `lead`.
std::size_t character_bytes(char lead);

// The bytes of the first character of `text`, which must not be empty.
std::string_view first_character(std::string_view text);
std::string_view last_character(std::string_view text);

// Calls `visit` with the code point of each character, in order.
template <typename Visit>
void for_each_character(std::string_view text, Visit visit) {
  for (std::size_t at = 0; at < text.size();) {
    if (const auto byte = static_cast<unsigned char>(text[at]); byte < 0x80) {
      visit(static_cast<char32_t>(byte));
      ++at;
    } else {
      const std::size_t size = character_bytes(text[at]);
      visit(utf8_decode(text.substr(at, size)));
      at += size;
    }
  }
}

std::size_t count_characters(std::string_view text);

// The byte where character `index` starts. The size of the text if it has at most `index` characters.
std::size_t byte_of_character(std::string_view text, std::size_t index);

// The first occurrence of `part` in `text` at or after `from`, or npos. Its time grows with the sum of the sizes, while
// std::string_view::find may need their product.
std::size_t find_part(std::string_view text, std::string_view part, std::size_t from = 0);

bool is_space(char32_t c);
bool is_line_break(char32_t c);  // where str.splitlines() splits
bool is_digit(char32_t c);
bool is_printable(char32_t c);
bool is_upper(char32_t c);
bool is_lower(char32_t c);
bool is_titlecase(char32_t c);  // a digraph with one capital, such as U+01C5

void append_upper(std::string& out, char32_t c);
void append_lower(std::string& out, char32_t c);
void append_title(std::string& out, char32_t c);

std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string capitalize(std::string_view text);

std::string_view strip_left(std::string_view text);
std::string_view strip_right(std::string_view text);
inline std::string_view strip(std::string_view text) { return strip_right(strip_left(text)); }

}  // namespace quire::jinja
