// What the readers of GBNF and Lark share: a place in a text, its line, escapes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/error.h"
#include "quire/base/utf8.h"

namespace quire::grammar {

class GrammarScanner {
 public:
  explicit GrammarScanner(std::string_view text) : text_(text) {
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '\n') line_ends_.push_back(i);
    }
  }

  std::size_t at = 0;

  std::string_view text() const { return text_; }
  std::string_view rest() const { return text_.substr(at); }
  bool more() const { return at < text_.size(); }
  char peek(std::size_t ahead = 0) const { return at + ahead < text_.size() ? text_[at + ahead] : '\0'; }
  bool skip(std::string_view what) {
    if (!rest().starts_with(what)) return false;
    at += what.size();
    return true;
  }
  std::size_t line_of(std::size_t place) const {
    return static_cast<std::size_t>(std::ranges::lower_bound(line_ends_, place) - line_ends_.begin()) + 1;
  }
  std::size_t line() const { return line_of(at); }
  std::unexpected<Error> error(std::string_view what) const { return error_at(at, what); }
  std::unexpected<Error> error_at(std::size_t place, std::string_view what) const {
    return fail("line " + std::to_string(line_of(place)) + ": " + std::string(what));
  }

  // Blanks, line ends, and comments that begin with one of these marks.
  void skip_space(std::initializer_list<std::string_view> comments) {
    const auto comment = [this](std::string_view mark) { return rest().starts_with(mark); };
    while (more()) {
      const char c = peek();
      if (std::ranges::any_of(comments, comment)) {
        while (more() && peek() != '\n') ++at;
      } else if (c == ' ' || c == '\t' || c == '\r' || c == '\n') {
        ++at;
      } else {
        return;
      }
    }
  }

  static bool is_digit(char c) { return c >= '0' && c <= '9'; }
  static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
  static bool is_name(char c) { return is_digit(c) || is_letter(c) || c == '-' || c == '_'; }
  std::string_view name() {
    const std::size_t begin = at;
    while (more() && is_name(peek())) ++at;
    return text_.substr(begin, at - begin);
  }
  // A number that is smaller than kUnbounded.
  std::optional<std::uint32_t> number() {
    if (!is_digit(peek())) return std::nullopt;
    std::uint64_t value = 0;
    for (; is_digit(peek()); ++at)
      value = std::min<std::uint64_t>(value * 10 + static_cast<unsigned>(peek() - '0'), kTooLarge);
    if (value >= kTooLarge) return std::nullopt;
    return static_cast<std::uint32_t>(value);
  }
  // One character; the text is valid UTF-8.
  char32_t character() {
    const std::size_t length = utf8_step(rest()).length;
    const char32_t value = utf8_decode(rest().substr(0, length));
    at += length;
    return value;
  }
  // The number behind \x, \u, \U.
  std::optional<char32_t> hexadecimal(std::size_t digits) {
    if (rest().size() < digits) return std::nullopt;
    char32_t value = 0;
    for (std::size_t i = 0; i < digits; ++i, ++at) {
      const char c = peek();
      const char lower = static_cast<char>(c | 0x20);
      if (!is_digit(c) && (lower < 'a' || lower > 'f')) return std::nullopt;
      value = value * 16 + static_cast<char32_t>(is_digit(c) ? c - '0' : lower - 'a' + 10);
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) return std::nullopt;
    return value;
  }

 private:
  static constexpr std::uint64_t kTooLarge = 0xFFFFFFFF;
  std::string_view text_;
  std::vector<std::size_t> line_ends_;
};

}  // namespace quire::grammar
