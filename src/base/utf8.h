// UTF-8, as RFC 3629 has it: no overlong forms, no surrogates, nothing above U+10FFFF. Text that comes from outside may
// be anything; these functions say where it is well-formed, and never read behind its end.
//
// Who may call: anyone, from any thread; there is no state.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace quire {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

enum class Utf8Kind {
  valid,       // a whole character
  invalid,     // bytes that no continuation can mend
  incomplete,  // the text ends inside a character that is well-formed so far
};

struct Utf8Step {
  Utf8Kind kind = Utf8Kind::valid;
  // Bytes of it: 1 to 4. Of what is not valid, as many as Unicode's "maximal subpart" has, each of which becomes one
  // U+FFFD where text is repaired.
  std::size_t length = 0;
};

// What stands at the front of `text`, which is not empty.
Utf8Step utf8_step(std::string_view text);

// The code point of a valid character, as utf8_step() found it.
char32_t utf8_decode(std::string_view character);

// How many bytes from the front are well-formed characters.
std::size_t utf8_valid_prefix(std::string_view text);

// How many bytes at the end are the beginning of a character whose other half may still come: 0 to 3.
std::size_t utf8_incomplete_tail(std::string_view text);

// `code_point` is at most U+10FFFF and no surrogate.
void append_utf8(std::string& out, char32_t code_point);

// Appends `text` with each maximal subpart that is not well-formed replaced by U+FFFD.
void append_repaired(std::string& out, std::string_view text);

}  // namespace quire
