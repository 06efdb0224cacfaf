#include "quire/gguf/message.h"

#include <iterator>

#include <fmt/format.h>

namespace quire::gguf {

namespace {

void append_escaped(std::string& out, unsigned char c) {
  if (c == '\n') {
    out += "\\n";
  } else if (c == '\t') {
    out += "\\t";
  } else {
    fmt::format_to(std::back_inserter(out), "\\x{:02x}", c);
  }
}

}  // namespace

std::string quoted(std::string_view text, std::size_t limit) {
  std::string out = "'";
  for (const char c : text.substr(0, limit)) {
    if (c >= 0x20 && c < 0x7F) {
      out += c;
    } else {
      append_escaped(out, static_cast<unsigned char>(c));
    }
  }
  if (text.size() > limit) out += "...";
  return out += '\'';
}

std::string shown_path(std::string_view path) {
  std::string out;
  for (const char c : path) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F) {
      append_escaped(out, byte);
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace quire::gguf
