// Text from files and users made fit to be shown. A model's file may say anything, also what a terminal takes for an
// order: control characters, escape sequences, characters that change the direction of writing or cannot be seen.
//
// Who may call: anyone, from any thread; there is no state.
// What holds: whatever the bytes, the result is well-formed UTF-8 without such characters. An escape is \n, \t, \r,
// \x1b
//   (a byte) or \u{202e} (a code point).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <boost/json/value.hpp>

namespace quire::text {

struct Printable {
  std::size_t limit = std::string::npos;  // characters; what is beyond is cut off, and "..." says so
  bool ascii = false;                     // escape all that is not ASCII
  bool lines = false;                     // keep line breaks and tabs
  bool quotes = false;                    // put it in quotation marks, and escape those and backslashes within
};

std::string printable(std::string_view text, const Printable& how = {});

// The first `bytes` bytes, or a little less: a character is not cut in two.
std::string_view clipped(std::string_view text, std::size_t bytes);

// One line of JSON, with a line break behind it. What is not UTF-8 becomes U+FFFD; characters that printable() escapes
// are escaped here too, as JSON does it.
std::string json_line(const boost::json::value& value);

}  // namespace quire::text
