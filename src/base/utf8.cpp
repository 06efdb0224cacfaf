#include "quire/base/utf8.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace quire {
namespace {

unsigned byte_at(std::string_view text, std::size_t index) { return static_cast<unsigned char>(text[index]); }

// The length of the character that a lead byte begins, and the range of its second byte. That range excludes overlong
// forms, surrogates and code points that are too large.
struct Lead {
  std::size_t length;
  unsigned second_min;
  unsigned second_max;
};

Lead lead_of(unsigned byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Utf8Step utf8_step(std::string_view text) {
  const Lead lead = lead_of(byte_at(text, 0));
  if (lead.length == 1) return {Utf8Kind::valid, 1};
  if (lead.length == 0) return {Utf8Kind::invalid, 1};
  for (std::size_t i = 1; i < lead.length; ++i) {
    if (i == text.size()) return {Utf8Kind::incomplete, i};
    const unsigned byte = byte_at(text, i);
    const unsigned low = i == 1 ? lead.second_min : 0x80;
    const unsigned high = i == 1 ? lead.second_max : 0xBF;
    if (byte < low || byte > high) return {Utf8Kind::invalid, i};
  }
  return {Utf8Kind::valid, lead.length};
}

char32_t utf8_decode(std::string_view character) {
  const unsigned first = byte_at(character, 0);
  if (character.size() == 1) return first;
  char32_t code_point = first & (0x7Fu >> character.size());
  for (std::size_t i = 1; i < character.size(); ++i) code_point = (code_point << 6) | (byte_at(character, i) & 0x3F);
  return code_point;
}

std::size_t utf8_valid_prefix(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    // Most text is ASCII for long stretches: test eight bytes at a time.
    while (at + 8 <= text.size()) {
      std::uint64_t word;
      std::memcpy(&word, text.data() + at, sizeof word);
      if ((word & 0x8080808080808080u) != 0) break;
      at += 8;
    }
    if (at == text.size()) break;
    const Utf8Step step = utf8_step(text.substr(at));
    if (step.kind != Utf8Kind::valid) break;
    at += step.length;
  }
  return at;
}

std::size_t utf8_incomplete_tail(std::string_view text) {
  for (std::size_t length = 1; length <= std::min<std::size_t>(3, text.size()); ++length) {
    const std::string_view tail = text.substr(text.size() - length);
    if ((byte_at(tail, 0) & 0xC0) == 0x80) continue;  // a continuation byte: its lead is further left
    const Utf8Step step = utf8_step(tail);
    return step.kind == Utf8Kind::incomplete ? length : 0;
  }
  return 0;
}

void append_utf8(std::string& out, char32_t code_point) {
  const auto put = [&out](char32_t byte) { out.push_back(static_cast<char>(static_cast<unsigned char>(byte))); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | (code_point >> 6));
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | (code_point >> 12));
    put(0x80 | ((code_point >> 6) & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | (code_point >> 18));
    put(0x80 | ((code_point >> 12) & 0x3F));
    put(0x80 | ((code_point >> 6) & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

void append_repaired(std::string& out, std::string_view text) {
  while (!text.empty()) {
    const std::size_t valid = utf8_valid_prefix(text);
    out.append(text.substr(0, valid));
    text.remove_prefix(valid);
    if (text.empty()) return;
    out.append(kReplacementCharacter);
    text.remove_prefix(utf8_step(text).length);
  }
}

}  // namespace quire
