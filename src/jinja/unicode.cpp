#include "quire/jinja/unicode.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "quire/base/utf8.h"
#include "quire/jinja/unicode_tables.h"

namespace quire::jinja {
namespace {

bool contains(std::span<const CharacterRange> ranges, char32_t c) {
  const auto behind = std::ranges::upper_bound(ranges, static_cast<std::uint32_t>(c), {}, &CharacterRange::first);
  return behind != ranges.begin() && c <= (behind - 1)->last;
}

std::optional<char32_t> mapped(std::span<const CaseRun> runs, char32_t c) {
  const auto behind = std::ranges::upper_bound(runs, static_cast<std::uint32_t>(c), {}, &CaseRun::first);
  if (behind == runs.begin()) return std::nullopt;
  const CaseRun& run = *(behind - 1);
  if (c > run.last || (c - run.first) % static_cast<std::uint32_t>(run.stride) != 0) return std::nullopt;
  return static_cast<char32_t>(static_cast<std::int64_t>(c) + run.delta);
}

const SpecialCase* special(char32_t c) {
  const auto& all = unicode_tables().special;
  const auto found = std::ranges::lower_bound(all, static_cast<std::uint32_t>(c), {}, &SpecialCase::character);
  return found != all.end() && found->character == c ? &*found : nullptr;
}

void append_literal(std::string& out, const char8_t* text) {
  for (; *text != 0; ++text) out.push_back(static_cast<char>(*text));
}

constexpr bool ascii_letter(char32_t c, char32_t first) { return c >= first && c < first + 26; }

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

template <typename Append>
std::string convert(std::string_view text, Append append) {
  std::string out;
  out.reserve(text.size());
  for_each_character(text, [&](char32_t c) { append(out, c); });
  return out;
}

}  // namespace

std::size_t character_bytes(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  if (byte < 0xC0) return 1;
  if (byte < 0xE0) return 2;
  return byte < 0xF0 ? 3 : 4;
}

std::string_view first_character(std::string_view text) { return text.substr(0, character_bytes(text.front())); }

std::string_view last_character(std::string_view text) {
  std::size_t at = text.size() - 1;
  while (at > 0 && is_continuation(text[at])) --at;
  return text.substr(at);
}

std::size_t count_characters(std::string_view text) {
  // A continuation byte has its top bit set and the next one clear. Eight bytes are tested at the same time.
  constexpr std::uint64_t kOnes = 0x0101010101010101;
  std::size_t continuations = 0;
  std::size_t at = 0;
  for (; at + sizeof(std::uint64_t) <= text.size(); at += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, text.data() + at, sizeof word);
    continuations += static_cast<std::size_t>(std::popcount((word >> 7) & ~(word >> 6) & kOnes));
  }
  for (; at < text.size(); ++at) continuations += is_continuation(text[at]) ? 1 : 0;
  return text.size() - continuations;
}

std::size_t byte_of_character(std::string_view text, std::size_t index) {
  std::size_t at = 0;
  while (at < text.size() && index > 0) {
    at += character_bytes(text[at]);
    --index;
  }
  return at;
}

std::size_t find_part(std::string_view text, std::string_view part, std::size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (part.empty()) return from;
  const void* found = memmem(text.data() + from, text.size() - from, part.data(), part.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
}

bool is_space(char32_t c) {
  if (c < 0x80) return c == U' ' || (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x1F);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_line_break(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

bool is_digit(char32_t c) {
  if (c < 0x80) return c >= U'0' && c <= U'9';
  return contains(unicode_tables().digit, c);
}

bool is_printable(char32_t c) {
  if (c < 0x80) return c >= 0x20 && c != 0x7F;
  return !contains(unicode_tables().unprintable, c);
}

bool is_titlecase(char32_t c) { return c >= 0x80 && mapped(unicode_tables().title, c) == c && !is_lower(c); }

bool is_upper(char32_t c) {
  if (c < 0x80) return ascii_letter(c, U'A');
  return (c == 0x130 || mapped(unicode_tables().lower, c)) && !is_titlecase(c);
}

bool is_lower(char32_t c) {
  if (c < 0x80) return ascii_letter(c, U'a');
  if (mapped(unicode_tables().lower, c)) return false;
  return special(c) != nullptr || mapped(unicode_tables().upper, c).has_value();
}

void append_upper(std::string& out, char32_t c) {
  if (c < 0x80) {
    out.push_back(static_cast<char>(ascii_letter(c, U'a') ? c - 32 : c));
  } else if (const SpecialCase* several = special(c)) {
    append_literal(out, several->upper);
  } else {
    append_utf8(out, mapped(unicode_tables().upper, c).value_or(c));
  }
}

void append_lower(std::string& out, char32_t c) {
  if (c < 0x80) {
    out.push_back(static_cast<char>(ascii_letter(c, U'A') ? c + 32 : c));
  } else if (c == 0x130) {  // the only character with two characters in lower case: an i and its dot
    append_literal(out, u8"i\u0307");
  } else {
    append_utf8(out, mapped(unicode_tables().lower, c).value_or(c));
  }
}

void append_title(std::string& out, char32_t c) {
  if (c < 0x80) {
    append_upper(out, c);
  } else if (const auto title = mapped(unicode_tables().title, c)) {
    append_utf8(out, *title);
  } else if (const SpecialCase* several = special(c)) {
    append_literal(out, several->title);
  } else {
    append_upper(out, c);
  }
}

std::string upper(std::string_view text) { return convert(text, append_upper); }
std::string lower(std::string_view text) { return convert(text, append_lower); }

std::string capitalize(std::string_view text) {
  if (text.empty()) return {};
  const std::string_view first = first_character(text);
  std::string out;
  append_title(out, utf8_decode(first));
  return out + lower(text.substr(first.size()));
}

std::string_view strip_left(std::string_view text) {
  while (!text.empty()) {
    const std::string_view character = first_character(text);
    if (!is_space(utf8_decode(character))) break;
    text.remove_prefix(character.size());
  }
  return text;
}

std::string_view strip_right(std::string_view text) {
  while (!text.empty()) {
    const std::string_view character = last_character(text);
    if (!is_space(utf8_decode(character))) break;
    text.remove_suffix(character.size());
  }
  return text;
}

}  // namespace quire::jinja
