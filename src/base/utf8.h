// UTF-8 according to RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF. Text from outside may be
// malformed. These functions report where it is well-formed, and never read past its end.
//
// Who may call: anyone, from any thread. There is no state.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace quire {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

enum class Utf8Kind {
  valid,       // a whole character
  invalid,     // malformed, whatever follows
  incomplete,  // the text ends inside a character that is well-formed so far
};

struct Utf8Step {
  Utf8Kind kind = Utf8Kind::valid;
  // Its bytes: 1 to 4. If it is not valid: the length of Unicode's "maximal subpart". Repair
  // replaces each such part with one U+FFFD.
  std::size_t length = 0;
};

// The character, or malformed part, at the front of `text`, which must not be empty.
Utf8Step utf8_step(std::string_view text);

// The code point of a valid character, whose bytes utf8_step() has delimited.
char32_t utf8_decode(std::string_view character);

// How many bytes at the front are well-formed characters.
std::size_t utf8_valid_prefix(std::string_view text);

// How many bytes at the end are an incomplete character that later bytes may complete: 0 to 3.
std::size_t utf8_incomplete_tail(std::string_view text);

// The code point must be at most U+10FFFF and not a surrogate.
void append_utf8(std::string& out, char32_t code_point);

// Appends `text`. Each malformed maximal subpart is replaced with U+FFFD.
void append_repaired(std::string& out, std::string_view text);

}  // namespace quire
