#include "quire/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "quire/base/utf8.h"
#include "quire/jinja/print.h"
#include "quire/jinja/unicode.h"

namespace quire::jinja {
namespace {

constexpr std::array<std::string_view, 26> kSymbols = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                       "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                       ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};

bool digit(char c) { return c >= '0' && c <= '9'; }

// Characters of a name. Names are ASCII here; no published template has others.
bool word_character(char c) { return digit(c) || c == '_' || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z'); }

int digit_value(char c) {
  if (digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return 99;
}

// Line ends become "\n". One at the very end is dropped.
std::string normalized(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
    } else {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

// Resolves the escapes of a Python string literal. An unknown escape keeps its backslash.
class Unescaper {
 public:
  Unescaper(std::string_view text, int line) : text_(text), line_(line) {}

  std::string run() {
    while (at_ < text_.size()) {
      const char c = text_[at_++];
      if (c == '\\' && at_ < text_.size()) {
        escape(text_[at_++]);
      } else {
        out_ += c;
      }
    }
    return std::move(out_);
  }

 private:
  void escape(char c) {
    constexpr std::string_view kLetters = "abfnrtv\\'\"";
    constexpr std::string_view kMeanings = "\a\b\f\n\r\t\v\\'\"";
    if (const std::size_t which = kLetters.find(c); which != std::string_view::npos) {
      out_ += kMeanings[which];
    } else if (c == 'x') {
      append(hexadecimal(2));
    } else if (c == 'u') {
      append(hexadecimal(4));
    } else if (c == 'U') {
      append(hexadecimal(8));
    } else if (c >= '0' && c <= '7') {
      append(octal(c));
    } else if (c == 'N') {
      fail_syntax("characters by name (\\N{...}) are not supported", line_);
    } else if (c != '\n') {
      out_ += '\\';
      out_ += c;
    }
  }

  char32_t hexadecimal(int digits) {
    char32_t value = 0;
    for (int i = 0; i < digits; ++i) {
      const int next = at_ < text_.size() ? digit_value(text_[at_]) : 99;
      if (next > 15) fail_syntax("truncated escape in a string", line_);
      value = value * 16 + static_cast<char32_t>(next);
      ++at_;
    }
    return value;
  }

  char32_t octal(char first) {
    auto value = static_cast<char32_t>(first - '0');
    for (int i = 0; i < 2 && at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '7'; ++i) {
      value = value * 8 + static_cast<char32_t>(text_[at_++] - '0');
    }
    return value;
  }

  void append(char32_t code) {
    // A surrogate pair, as in JSON, becomes the character beyond U+FFFF that it encodes.
    if (code >= 0xD800 && code < 0xDC00 && text_.substr(at_).starts_with("\\u")) {
      at_ += 2;
      const char32_t low = hexadecimal(4);
      if (low >= 0xDC00 && low < 0xE000) code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) fail_syntax("illegal character in a string", line_);
    append_utf8(out_, code);
  }

  std::string_view text_;
  int line_;
  std::size_t at_ = 0;
  std::string out_;
};

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) {
      const std::size_t tag = next_tag();
      if (tag == std::string_view::npos) {
        push_data(source_.substr(at_));
        at_ = source_.size();
        break;
      }
      read_tag(tag);
    }
    advance_line(source_.size());
    push(TokenKind::end);
    return std::move(tokens_);
  }

 private:
  char peek(std::size_t at) const { return at < source_.size() ? source_[at] : '\0'; }
  bool follows(std::string_view text) const { return source_.substr(at_).starts_with(text); }

  void advance_line(std::size_t to) {
    const std::string_view passed = source_.substr(counted_, to - counted_);
    line_ += static_cast<int>(std::ranges::count(passed, '\n'));
    counted_ = to;
  }

  Token& push(TokenKind kind, std::string text = {}) {
    tokens_.push_back({kind, line_, std::move(text), 0, 0});
    return tokens_.back();
  }

  void push_data(std::string_view text) {
    if (!text.empty()) push(TokenKind::data, std::string(text));
  }

  void skip_space() { at_ = source_.size() - strip_left(source_.substr(at_)).size(); }

  std::size_t next_tag() const {
    for (std::size_t at = source_.find('{', at_); at != std::string_view::npos; at = source_.find('{', at + 1)) {
      if (peek(at + 1) == '{' || peek(at + 1) == '%' || peek(at + 1) == '#') return at;
    }
    return std::string_view::npos;
  }

  // The text before a tag, trimmed. '-' removes all white space before the tag. A block or comment that is first on its
  // line removes the indentation, unless it has a '+'.
  std::string_view trimmed(std::string_view text, char sign, bool is_variable) const {
    if (sign == '-') return strip_right(text);
    if (sign == '+' || is_variable) return text;
    const std::size_t newline = text.rfind('\n');
    const bool at_line_start = at_ == 0 || source_[at_ - 1] == '\n';
    if (newline == std::string_view::npos && !at_line_start) return text;
    const std::size_t start = newline == std::string_view::npos ? 0 : newline + 1;
    return strip_left(text.substr(start)).empty() ? text.substr(0, start) : text;
  }

  void read_tag(std::size_t tag) {
    const char type = source_[tag + 1];
    const char sign = peek(tag + 2) == '-' || peek(tag + 2) == '+' ? source_[tag + 2] : '\0';
    push_data(trimmed(source_.substr(at_, tag - at_), sign, type == '{'));
    advance_line(tag);
    at_ = tag + (sign != '\0' ? 3 : 2);
    if (type == '#') {
      read_comment();
    } else if (type == '{') {
      push(TokenKind::variable_begin);
      read_expression('}', TokenKind::variable_end);
    } else if (const auto body = raw_begin("raw")) {
      at_ = *body;
      read_raw();
    } else {
      push(TokenKind::block_begin);
      read_expression('%', TokenKind::block_end);
    }
  }

  void read_comment() {
    const std::size_t close = source_.find("#}", at_);
    if (close == std::string_view::npos) fail_syntax("Missing end of comment tag", line_);
    const char sign = close > at_ ? source_[close - 1] : '\0';
    at_ = close + 2;
    finish_tag(sign);
  }

  // Trims the text after a block or comment: '-' removes all white space, '+' nothing, otherwise one line end.
  void finish_tag(char sign) {
    if (sign == '-') {
      skip_space();
    } else if (sign != '+' && peek(at_) == '\n') {
      ++at_;
    }
    advance_line(at_);
  }

  // Called after "{%". The end of the tag, if it is the tag `word`.
  std::optional<std::size_t> raw_begin(std::string_view word) const {
    std::string_view rest = strip_left(source_.substr(at_));
    if (!rest.starts_with(word)) return std::nullopt;
    rest = strip_left(rest.substr(word.size()));
    if (rest.starts_with("-%}")) return source_.size() - strip_left(rest.substr(3)).size();
    if (rest.starts_with("%}")) return source_.size() - rest.size() + 2;
    return std::nullopt;
  }

  void read_raw() {
    const std::size_t begin = at_;
    for (std::size_t tag = source_.find("{%", at_); tag != std::string_view::npos; tag = source_.find("{%", tag + 2)) {
      const char sign = peek(tag + 2) == '-' || peek(tag + 2) == '+' ? source_[tag + 2] : '\0';
      std::string_view rest = strip_left(source_.substr(tag + (sign != '\0' ? 3 : 2)));
      if (!rest.starts_with("endraw")) continue;
      rest = strip_left(rest.substr(6));
      const char end_sign = rest.starts_with('-') || rest.starts_with('+') ? rest.front() : '\0';
      if (end_sign != '\0') rest.remove_prefix(1);
      if (!rest.starts_with("%}")) continue;
      push_data(trimmed(source_.substr(begin, tag - begin), sign, false));
      at_ = source_.size() - rest.size() + 2;
      finish_tag(end_sign);
      return;
    }
    fail_syntax("Missing end of raw directive", line_);
  }

  // Tokens up to the end of the tag: "%}" or "}}" outside of all brackets.
  void read_expression(char end, TokenKind end_kind) {
    const std::string close = {end, '}'};
    std::string open;  // the closing brackets that are expected
    while (at_ < source_.size()) {
      skip_space();
      advance_line(at_);
      if (at_ == source_.size()) return;  // the parser reports what is missing
      if (open.empty()) {
        const char sign = follows("-" + close) || (end == '%' && follows("+%}")) ? source_[at_] : '\0';
        if (sign != '\0' || follows(close)) {
          push(end_kind);
          at_ += sign != '\0' ? 3 : 2;
          if (end == '%') {
            finish_tag(sign);
          } else if (sign == '-') {
            skip_space();
          }
          return;
        }
      }
      read_token(open);
    }
  }

  void read_token(std::string& open) {
    const char c = source_[at_];
    if (digit(c)) {
      read_number();
    } else if (c == '\'' || c == '"') {
      read_string(c);
    } else if (word_character(c)) {
      read_name();
    } else {
      read_symbol(open);
    }
  }

  void read_name() {
    const std::size_t begin = at_;
    while (word_character(peek(at_))) ++at_;
    push(TokenKind::name, std::string(source_.substr(begin, at_ - begin)));
  }

  void read_string(char quote) {
    std::size_t close = at_ + 1;
    while (close < source_.size() && source_[close] != quote) close += source_[close] == '\\' ? 2 : 1;
    if (close >= source_.size())
      fail_syntax(fmt::format("unexpected char {} (a string without end)", quoted(std::string(1, quote))), line_);
    push(TokenKind::string, Unescaper(source_.substr(at_ + 1, close - at_ - 1), line_).run());
    at_ = close + 1;
  }

  // The end of the digits at `at`, which may have single underscores between them.
  std::size_t digits_end(std::size_t at, int base) const {
    while (digit_value(peek(at)) < base || (peek(at) == '_' && digit_value(peek(at + 1)) < base)) ++at;
    return at;
  }

  std::string without_underscores(std::size_t begin, std::size_t end) const {
    std::string out(source_.substr(begin, end - begin));
    std::erase(out, '_');
    return out;
  }

  void read_number() {
    const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';
    const std::size_t whole = digits_end(at_, 10);
    std::size_t end = whole;
    if (peek(end) == '.' && digit(peek(end + 1))) end = digits_end(end + 1, 10);
    if (peek(end) == 'e' || peek(end) == 'E') {
      const std::size_t exponent = end + (peek(end + 1) == '+' || peek(end + 1) == '-' ? 2 : 1);
      if (digit(peek(exponent))) end = digits_end(exponent, 10);
    }
    if (end != whole && !after_dot) return read_real(end);
    read_integer(whole);
  }

  void read_real(std::size_t end) {
    const std::string digits = without_underscores(at_, end);
    Token& token = push(TokenKind::real);
    const auto [_, error] = std::from_chars(digits.data(), digits.data() + digits.size(), token.real);
    if (error != std::errc()) fail_syntax("a number is out of range", line_);
    at_ = end;
  }

  void read_integer(std::size_t end) {
    int base = 10;
    std::size_t begin = at_;
    if (source_[at_] == '0') {
      const char letter = static_cast<char>(peek(at_ + 1) | 0x20);
      const int prefix = letter == 'b' ? 2 : (letter == 'o' ? 8 : (letter == 'x' ? 16 : 0));
      const std::size_t first = at_ + (peek(at_ + 2) == '_' ? 3 : 2);
      if (prefix != 0 && digit_value(peek(first)) < prefix) {
        base = prefix;
        begin = at_ + 2;
        end = digits_end(first, base);
      } else {
        end = digits_end(at_, 1);  // only zeros: 007 is not a number
      }
    }
    Int value = 0;
    for (const char c : without_underscores(begin, end)) {
      if (__builtin_mul_overflow(value, Int{base}, &value) ||
          __builtin_add_overflow(value, Int{digit_value(c)}, &value)) {
        fail_syntax("an integer is too large", line_);
      }
    }
    push(TokenKind::integer).integer = value;
    at_ = end;
  }

  void read_symbol(std::string& open) {
    const auto found = std::ranges::find_if(kSymbols, [this](std::string_view s) { return follows(s); });
    if (found == kSymbols.end()) {
      const std::string_view character = first_character(source_.substr(at_));
      if (character.size() > 1) {
        fail_syntax(fmt::format("unexpected char {}: names outside ASCII are not supported in chat templates",
                                quoted(character)),
                    line_);
      }
      fail_syntax(fmt::format("unexpected char {}", quoted(character)), line_);
    }
    const std::string_view symbol = *found;
    if (symbol == "(") open += ')';
    if (symbol == "[") open += ']';
    if (symbol == "{") open += '}';
    if (symbol == ")" || symbol == "]" || symbol == "}") {
      if (open.empty()) fail_syntax(fmt::format("unexpected '{}'", symbol), line_);
      if (open.back() != symbol.front())
        fail_syntax(fmt::format("unexpected '{}', expected '{}'", symbol, open.back()), line_);
      open.pop_back();
    }
    push(TokenKind::symbol, std::string(symbol));
    at_ += symbol.size();
  }

  std::string_view source_;
  std::size_t at_ = 0;
  std::size_t counted_ = 0;  // line_ is the line of this position
  int line_ = 1;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  const std::string text = normalized(source);
  return Lexer(text).run();
}

}  // namespace quire::jinja
