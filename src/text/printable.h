// Makes text from files and users safe to print. A model's file may hold anything, also text that would control a
// terminal: control characters, escape sequences, and characters that are invisible or change the writing direction.
//
// Who may call: anyone, from any thread; there is no state.
// What holds: for any bytes, the result is valid UTF-8 without such characters. They are escaped as \n, \t, \r, \x1b (a
//   byte) or \u{202e} (a code point).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <boost/json/value.hpp>

namespace quire::text {

struct Printable {
  std::size_t limit = std::string::npos;  // characters; longer text is cut and ends with "..."
  bool ascii = false;                     // escape everything that is not ASCII
  bool lines = false;                     // keep line breaks and tabs
  bool quotes = false;                    // add quotation marks, and escape those and backslashes inside
};

std::string printable(std::string_view text, const Printable& how = {});

// The first `bytes` bytes, or a few less, so that no character is cut.
std::string_view clipped(std::string_view text, std::size_t bytes);

// One line of JSON with a line break at its end. Invalid UTF-8 becomes U+FFFD. Characters that printable() escapes are
// escaped here too, in JSON's way.
std::string json_line(const boost::json::value& value);

}  // namespace quire::text
