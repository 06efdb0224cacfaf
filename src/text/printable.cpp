#include "quire/text/printable.h"

#include <cstdint>
#include <iterator>

#include <boost/json/serialize.hpp>
#include <fmt/format.h>

#include "quire/base/utf8.h"

namespace quire::text {

namespace {

struct CodePoints {
  char32_t first, last;
};

// Control characters, invisible characters, characters that change the writing direction, and tags.
constexpr CodePoints kUnseen[] = {
    {0x00, 0x1F},     {0x7F, 0x9F},     {0xAD, 0xAD},     {0x61C, 0x61C},   {0x180E, 0x180E},   {0x200B, 0x200F},
    {0x2028, 0x202E}, {0x2060, 0x206F}, {0xFEFF, 0xFEFF}, {0xFFF9, 0xFFFB}, {0xE0000, 0xE007F},
};

bool is_unseen(char32_t c) {
  for (const CodePoints& range : kUnseen) {
    if (c >= range.first && c <= range.last) return true;
  }
  return false;
}

void append_bytes(std::string& out, std::string_view bytes) {
  for (const char c : bytes) {
    fmt::format_to(std::back_inserter(out), "\\x{:02x}", static_cast<unsigned>(static_cast<unsigned char>(c)));
  }
}

void append_escaped(std::string& out, std::string_view character) {
  switch (const char32_t c = utf8_decode(character)) {
    case '\n': out += "\\n"; break;
    case '\r': out += "\\r"; break;
    case '\t': out += "\\t"; break;
    default:
      if (c < 0x80) {
        append_bytes(out, character);
      } else {
        fmt::format_to(std::back_inserter(out), "\\u{{{:x}}}", static_cast<std::uint32_t>(c));
      }
  }
}

}  // namespace

std::string printable(std::string_view text, const Printable& how) {
  std::string out;
  if (how.quotes) out += '"';
  std::size_t shown = 0;
  while (!text.empty() && shown < how.limit) {
    const Utf8Step step = utf8_step(text);
    const std::string_view character = text.substr(0, step.length);
    if (step.kind != Utf8Kind::valid) {
      append_bytes(out, character);
    } else {
      const char32_t c = utf8_decode(character);
      if (how.lines && (c == '\n' || c == '\t')) {
        out += character;
      } else if (is_unseen(c) || (how.ascii && c >= 0x80)) {
        append_escaped(out, character);
      } else {
        if (how.quotes && (c == '"' || c == '\\')) out += '\\';
        out += character;
      }
    }
    text.remove_prefix(step.length);
    ++shown;
  }
  if (how.quotes) out += '"';
  if (!text.empty()) out += "...";
  return out;
}

std::string_view clipped(std::string_view text, std::size_t bytes) {
  if (text.size() <= bytes) return text;
  const std::string_view cut = text.substr(0, bytes);
  return cut.substr(0, cut.size() - utf8_incomplete_tail(cut));
}

std::string json_line(const boost::json::value& value) {
  // Outside of strings JSON is plain ASCII, so everything that is replaced here is inside a string.
  const std::string json = boost::json::serialize(value);
  std::string out;
  out.reserve(json.size() + 1);
  for (std::string_view rest = json; !rest.empty();) {
    const Utf8Step step = utf8_step(rest);
    const std::string_view character = rest.substr(0, step.length);
    rest.remove_prefix(step.length);
    if (step.kind != Utf8Kind::valid) {
      out += kReplacementCharacter;
      continue;
    }
    const auto c = static_cast<std::uint32_t>(utf8_decode(character));
    if (!is_unseen(c)) {
      out += character;
    } else if (c < 0x10000) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", c);
    } else {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}\\u{:04x}", 0xD800 + ((c - 0x10000) >> 10),
                     0xDC00 + ((c - 0x10000) & 0x3FF));
    }
  }
  return out += '\n';
}

}  // namespace quire::text
