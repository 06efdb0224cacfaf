#include "quire/tools/pythonic.h"

#include <algorithm>
#include <charconv>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/string.hpp>
#include <boost/json/value.hpp>

#include "quire/base/utf8.h"
#include "quire/tools/json_scanner.h"

namespace quire::tools {
namespace {

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c & 0x80) != 0;
}

class Reader {
 public:
  explicit Reader(std::string_view text) : rest_(text) {}

  void space() {
    while (!rest_.empty() && is_space(rest_.front())) rest_.remove_prefix(1);
  }
  bool take(char c) {
    if (!rest_.starts_with(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }
  std::string_view word() {
    std::size_t length = 0;
    while (length < rest_.size() && is_word(rest_[length])) ++length;
    const std::string_view out = rest_.substr(0, length);
    rest_.remove_prefix(length);
    return out;
  }
  bool at_end() const { return rest_.empty(); }

  // Appends the literal at the front as JSON.
  bool value(std::string& out, std::size_t depth = 0) {
    space();
    if (rest_.empty() || depth == JsonScanner::kMostDepth) return false;
    switch (rest_.front()) {
      case '"':
      case '\'': return strings(out);
      case '[': return list(out, ']', depth);
      case '(': return list(out, ')', depth);
      case '{': return dictionary(out, depth);
      default: break;
    }
    if (is_digit(rest_.front()) || rest_.front() == '-' || rest_.front() == '+' || rest_.front() == '.') {
      return number(out);
    }
    const std::string_view name = word();
    if (name == "True" || name == "true") {
      out += "true";
    } else if (name == "False" || name == "false") {
      out += "false";
    } else if (name == "None" || name == "null") {
      out += "null";
    } else {
      return false;
    }
    return true;
  }

 private:
  // Adjacent strings are one.
  bool strings(std::string& out) {
    std::string text;
    do {
      if (!string(text)) return false;
      space();
    } while (rest_.starts_with('"') || rest_.starts_with('\''));
    out += json_string(text);
    return true;
  }

  bool string(std::string& out) {
    const char quote = rest_.front();
    const std::string_view three = rest_.substr(0, 3);
    const bool triple = three.size() == 3 && three[1] == quote && three[2] == quote;
    rest_.remove_prefix(triple ? 3 : 1);
    while (!rest_.empty()) {
      const char c = rest_.front();
      if (c == quote && (!triple || (rest_.size() >= 3 && rest_[1] == quote && rest_[2] == quote))) {
        rest_.remove_prefix(triple ? 3 : 1);
        return true;
      }
      rest_.remove_prefix(1);
      if (c != '\\') {
        out += c;
      } else if (!escape(out)) {
        return false;
      }
    }
    return false;
  }

  bool escape(std::string& out) {
    if (rest_.empty()) return false;
    const char c = rest_.front();
    rest_.remove_prefix(1);
    switch (c) {
      case 'n': out += '\n'; return true;
      case 't': out += '\t'; return true;
      case 'r': out += '\r'; return true;
      case 'b': out += '\b'; return true;
      case 'f': out += '\f'; return true;
      case '0': out += '\0'; return true;
      case '\n': return true;
      case '\\':
      case '\'':
      case '"':
      case '/': out += c; return true;
      case 'x': return code_point(out, 2);
      case 'u': return code_point(out, 4);
      case 'U': return code_point(out, 8);
      default:
        // Python keeps the backslash of an escape that it does not know.
        out += '\\';
        out += c;
        return true;
    }
  }

  bool code_point(std::string& out, std::size_t digits) {
    std::uint32_t code = 0;
    if (!hex(digits, code)) return false;
    // JSON's way to write what is beyond U+FFFF.
    if (code >= 0xD800 && code < 0xDC00 && rest_.starts_with("\\u")) {
      rest_.remove_prefix(2);
      std::uint32_t low = 0;
      if (!hex(4, low) || low < 0xDC00 || low >= 0xE000) return false;
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return false;
    append_utf8(out, code);
    return true;
  }

  bool hex(std::size_t digits, std::uint32_t& code) {
    if (rest_.size() < digits) return false;
    const char* const end = rest_.data() + digits;
    const auto [stop, error] = std::from_chars(rest_.data(), end, code, 16);
    if (stop != end || error != std::errc()) return false;
    rest_.remove_prefix(digits);
    return true;
  }

  bool number(std::string& out) {
    if (take('+') && rest_.starts_with('-')) return false;
    std::string text(take('-') ? "-" : "");
    while (!rest_.empty() && (is_digit(rest_.front()) || rest_.front() == '_')) digit(text);
    if (text.empty() || text == "-") text += '0';  // .5
    if (take('.')) {
      text += '.';
      const std::size_t before = text.size();
      while (!rest_.empty() && (is_digit(rest_.front()) || rest_.front() == '_')) digit(text);
      if (text.size() == before) text += '0';  // 1.
    }
    if (rest_.starts_with('e') || rest_.starts_with('E')) {
      text += 'e';
      rest_.remove_prefix(1);
      if (rest_.starts_with('+') || rest_.starts_with('-')) digit(text);
      while (!rest_.empty() && is_digit(rest_.front())) digit(text);
    }
    if (!rest_.empty() && is_word(rest_.front())) return false;
    boost::system::error_code error;
    boost::json::parse(text, error);
    if (error) return false;
    out += text;
    return true;
  }
  void digit(std::string& text) {
    if (rest_.front() != '_') text += rest_.front();
    rest_.remove_prefix(1);
  }

  bool list(std::string& out, char close, std::size_t depth) {
    rest_.remove_prefix(1);
    out += '[';
    for (bool first = true;; first = false) {
      space();
      if (take(close)) break;
      if (!first) out += ", ";
      if (!value(out, depth + 1)) return false;
      space();
      if (take(',')) continue;
      if (!take(close)) return false;
      break;
    }
    out += ']';
    return true;
  }

  bool dictionary(std::string& out, std::size_t depth) {
    rest_.remove_prefix(1);
    out += '{';
    for (bool first = true;; first = false) {
      space();
      if (take('}')) break;
      if (!first) out += ", ";
      if (!rest_.starts_with('"') && !rest_.starts_with('\'')) return false;
      if (!strings(out)) return false;
      space();
      if (!take(':')) return false;
      out += ": ";
      if (!value(out, depth + 1)) return false;
      space();
      if (take(',')) continue;
      if (!take('}')) return false;
      break;
    }
    out += '}';
    return true;
  }

  std::string_view rest_;
};

}  // namespace

bool KeywordEnd::push(char c) {
  if (quote_ != 0) {
    if (escaped_) {
      escaped_ = false;
    } else if (c == '\\') {
      escaped_ = true;
    } else if (c == quote_) {
      quote_ = 0;
    }
    return false;
  }
  if (c == '"' || c == '\'') {
    quote_ = c;
  } else if (c == '[' || c == '{' || c == '(') {
    ++depth_;
  } else if (depth_ == 0) {
    return c == ',' || c == ')';
  } else if (c == ']' || c == '}' || c == ')') {
    --depth_;
  }
  return false;
}

std::optional<Keyword> read_keyword(std::string_view text) {
  Reader reader(text);
  reader.space();
  Keyword out;
  out.key = reader.word();
  reader.space();
  if (out.key.empty() || !reader.take('=')) return std::nullopt;
  if (!reader.value(out.value)) return std::nullopt;
  reader.space();
  return reader.at_end() ? std::optional(std::move(out)) : std::nullopt;
}

bool is_keyword_key(std::string_view text) { return !text.empty() && std::ranges::all_of(text, is_word); }

std::string json_string(std::string_view text) {
  std::string repaired;
  append_repaired(repaired, text);
  return boost::json::serialize(boost::json::string_view(repaired));
}

}  // namespace quire::tools
