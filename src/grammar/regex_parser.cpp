#include "quire/grammar/regex_parser.h"

#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "quire/base/utf8.h"

namespace quire::grammar {
namespace {

using Node = RegexNode;
using NodePtr = std::unique_ptr<RegexNode>;

constexpr int kMaxDepth = 200;

const CharSet& digits() {
  static const CharSet set('0', '9');
  return set;
}
const CharSet& word() {
  static const CharSet set({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}});
  return set;
}
// ECMAScript's white space and line ends.
const CharSet& space() {
  static const CharSet set({{'\t', '\r'},
                            {' ', ' '},
                            {0xA0, 0xA0},
                            {0x1680, 0x1680},
                            {0x2000, 0x200A},
                            {0x2028, 0x2029},
                            {0x202F, 0x202F},
                            {0x205F, 0x205F},
                            {0x3000, 0x3000},
                            {0xFEFF, 0xFEFF}});
  return set;
}
const CharSet& not_line_end() {
  static const CharSet set = CharSet({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}).complement();
  return set;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

class Parser {
 public:
  Parser(std::string_view pattern, const RegexOptions& options, Budget& budget)
      : text_(pattern), budget_(budget), ignore_case_(options.ignore_case), dot_all_(options.dot_all) {}

  Result<NodePtr> parse() {
    if (utf8_valid_prefix(text_) != text_.size()) return fail("the regular expression is not UTF-8");
    auto tree = choice(0);
    if (!tree) return tree;
    if (at_ < text_.size()) return error("\")\" without \"(\"", at_);
    return tree;
  }

 private:
  std::unexpected<Error> error(std::string_view what, std::size_t at) const {
    return fail(fmt::format("regular expression, byte {}: {}", at, what));
  }
  bool more() const { return at_ < text_.size(); }
  char peek() const { return text_[at_]; }
  bool skip(std::string_view what) {
    if (!text_.substr(at_).starts_with(what)) return false;
    at_ += what.size();
    return true;
  }

  static NodePtr make(Node::Kind kind) {
    auto node = std::make_unique<Node>();
    node->kind = kind;
    node->plain = kind != Node::Kind::Start && kind != Node::Kind::End && kind != Node::Kind::Look;
    return node;
  }
  static NodePtr of_set(CharSet set) {
    auto node = make(Node::Kind::Set);
    node->set = std::move(set);
    return node;
  }
  static void append(Node& parent, NodePtr part) {
    parent.plain = parent.plain && part->plain;
    parent.parts.push_back(std::move(part));
  }
  NodePtr cased(CharSet set) const { return of_set(ignore_case_ ? set.ignoring_case() : std::move(set)); }

  Result<NodePtr> choice(int depth) {
    if (depth > kMaxDepth) return error("groups are nested too deeply", at_);
    const bool ignore_case = ignore_case_, dot_all = dot_all_;
    auto alternatives = make(Node::Kind::Choice);
    while (true) {
      auto part = sequence(depth);
      if (!part) return part;
      append(*alternatives, *std::move(part));
      if (!skip("|")) break;
    }
    // Flags that are set inside a group end with it.
    ignore_case_ = ignore_case;
    dot_all_ = dot_all;
    if (alternatives->parts.size() == 1) return std::move(alternatives->parts[0]);
    return alternatives;
  }

  Result<NodePtr> sequence(int depth) {
    auto parts = make(Node::Kind::Sequence);
    while (more() && peek() != '|' && peek() != ')') {
      if (!budget_.take(4, 128)) return fail("the regular expression is too large");
      const std::size_t begin = at_;
      auto part = atom(depth);
      if (!part) return part;
      if (!*part) continue;  // flags
      auto quantified = quantifier(*std::move(part), begin);
      if (!quantified) return quantified;
      append(*parts, *std::move(quantified));
    }
    return parts;
  }

  // A null pointer: something that matches nothing by itself and cannot be repeated.
  Result<NodePtr> atom(int depth) {
    const std::size_t begin = at_;
    switch (peek()) {
      case '(': return group(depth);
      case '[': return character_class();
      case '\\': return escape();
      case '.': ++at_; return of_set(dot_all_ ? CharSet::all() : not_line_end());
      case '^': ++at_; return make(Node::Kind::Start);
      case '$': ++at_; return make(Node::Kind::End);
      case '*':
      case '+':
      case '?': return error(fmt::format("\"{}\" without something to repeat", peek()), begin);
      case '{':
        if (const auto bounds = repetition(); !bounds) {
          return std::unexpected(bounds.error());
        } else if (*bounds) {
          return error("a repetition without something to repeat", begin);
        }
        at_ = begin;
        break;
      default: break;
    }
    return cased(literal());
  }

  CharSet literal() {
    const std::size_t length = utf8_step(text_.substr(at_)).length;
    const char32_t character = utf8_decode(text_.substr(at_, length));
    at_ += length;
    return CharSet(character, character);
  }

  Result<NodePtr> group(int depth) {
    const std::size_t begin = at_;
    ++at_;
    bool look = false, negative = false;
    const bool ignore_case = ignore_case_, dot_all = dot_all_;
    if (skip("?=") || skip("?!")) {
      look = true;
      negative = text_[at_ - 1] == '!';
    } else if (skip("?<=") || skip("?<!")) {
      return error("look-behind is not supported", begin);
    } else if (skip("?P=") || skip("?P>") || skip("?&") || skip("?R")) {
      return error("back-references are not supported", begin);
    } else if (skip("?>")) {
      return error("atomic groups are not supported", begin);
    } else if (skip("?#")) {
      return error("comments are not supported", begin);
    } else if (skip("?P<") || skip("?<")) {
      const std::size_t end = text_.find('>', at_);
      if (end == std::string_view::npos) return error("a group's name without its end", begin);
      at_ = end + 1;
    } else if (skip("?:")) {
    } else if (skip("?")) {
      bool on = true;
      while (more() && peek() != ')' && peek() != ':') {
        const char flag = peek();
        ++at_;
        if (flag == '-') {
          on = false;
        } else if (flag == 'i') {
          ignore_case_ = on;
        } else if (flag == 's') {
          dot_all_ = on;
        } else if (flag != 'u' || !on) {
          return error(fmt::format("the flag \"{}\" is not supported", flag), at_ - 1);
        }
      }
      if (skip(")")) return NodePtr();
      if (!skip(":")) return error("\"(\" without \")\"", begin);
    }
    auto inside = choice(depth + 1);
    ignore_case_ = ignore_case;
    dot_all_ = dot_all;
    if (!inside) return inside;
    if (!skip(")")) return error("\"(\" without \")\"", begin);
    if (!look) return inside;
    auto node = make(Node::Kind::Look);
    node->negative = negative;
    node->parts.push_back(*std::move(inside));
    return node;
  }

  struct Bounds {
    std::uint32_t least, most;
  };
  // A repetition in braces, or nothing if the brace is a character.
  Result<std::optional<Bounds>> repetition() {
    const std::size_t begin = at_;
    ++at_;
    const auto number = [&]() -> std::optional<std::uint64_t> {
      if (!more() || !is_digit(peek())) return std::nullopt;
      std::uint64_t value = 0;
      for (; more() && is_digit(peek()); ++at_) {
        if (value < kUnbounded) value = value * 10 + static_cast<unsigned>(peek() - '0');
      }
      return value;
    };
    const auto least = number();
    const bool comma = skip(",");
    const auto most = comma ? number() : least;
    if (!skip("}")) return std::optional<Bounds>();
    if (!least) {
      if (comma && most) return error("\"{,n}\" is not the same everywhere; write \"{0,n}\"", begin);
      return std::optional<Bounds>();
    }
    if (*least >= kUnbounded || (most && *most >= kUnbounded)) return error("the repetition is too large", begin);
    if (most && *most < *least) return error("the repetition ends before it begins", begin);
    return Bounds{static_cast<std::uint32_t>(*least), most ? static_cast<std::uint32_t>(*most) : kUnbounded};
  }

  Result<NodePtr> quantifier(NodePtr node, std::size_t begin) {
    if (!more()) return node;
    Bounds bounds{};
    if (skip("*")) {
      bounds = {0, kUnbounded};
    } else if (skip("+")) {
      bounds = {1, kUnbounded};
    } else if (skip("?")) {
      bounds = {0, 1};
    } else if (peek() == '{') {
      const std::size_t brace = at_;
      const auto braces = repetition();
      if (!braces) return std::unexpected(braces.error());
      if (!*braces) {
        at_ = brace;
        return node;
      }
      bounds = **braces;
    } else {
      return node;
    }
    if (skip("?")) {
      // Lazy: the same language.
    } else if (more() && peek() == '+') {
      return error("possessive repetitions are not supported", at_);
    }
    if (more() && (peek() == '*' || peek() == '+' || peek() == '?')) return error("nothing to repeat", at_);
    if (node->kind == Node::Kind::Start || node->kind == Node::Kind::End) return error("an anchor is repeated", begin);
    auto repeat = make(Node::Kind::Repeat);
    repeat->least = bounds.least;
    repeat->most = bounds.most;
    append(*repeat, std::move(node));
    return repeat;
  }

  // Hexadecimal digits; `count` of them.
  std::optional<char32_t> hexadecimal(std::size_t count) {
    if (text_.size() - at_ < count) return std::nullopt;
    char32_t value = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const char c = text_[at_ + i];
      if (!is_digit(c) && !(c >= 'a' && c <= 'f') && !(c >= 'A' && c <= 'F')) return std::nullopt;
      value = value * 16 + static_cast<char32_t>(is_digit(c) ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    at_ += count;
    return value;
  }

  // After "\u".
  Result<char32_t> unicode_escape(std::size_t begin) {
    if (skip("{")) {
      char32_t value = 0;
      bool any = false;
      for (auto digit = hexadecimal(1); digit; digit = hexadecimal(1)) {
        any = true;
        value = value * 16 + *digit;
        if (value > 0x10FFFF) return error("a character above U+10FFFF", begin);
      }
      if (!any || !skip("}")) return error("\"\\u{\" without a hexadecimal number and \"}\"", begin);
      return value;
    }
    const auto unit = hexadecimal(4);
    if (!unit) return error("\"\\u\" without four hexadecimal digits", begin);
    if (*unit < 0xD800 || *unit > 0xDFFF) return *unit;
    if (*unit <= 0xDBFF && skip("\\u")) {
      const auto low = hexadecimal(4);
      if (low && *low >= 0xDC00 && *low <= 0xDFFF) return 0x10000 + ((*unit - 0xD800) << 10) + (*low - 0xDC00);
    }
    return error("half of a pair of surrogates", begin);
  }

  struct Escape {
    CharSet set;
    bool single = false;  // one character, which may begin or end a range
  };
  // At a backslash, in a class or not.
  Result<Escape> set_escape() {
    const std::size_t begin = at_;
    ++at_;
    if (!more()) return error("a backslash at the end", begin);
    const char c = peek();
    if (static_cast<unsigned char>(c) >= 0x80) return Escape{literal(), true};
    ++at_;
    const auto character = [](char32_t value) { return Escape{CharSet(value, value), true}; };
    switch (c) {
      case 'd': return Escape{digits()};
      case 'D': return Escape{digits().complement()};
      case 'w': return Escape{word()};
      case 'W': return Escape{word().complement()};
      case 's': return Escape{space()};
      case 'S': return Escape{space().complement()};
      case 't': return character('\t');
      case 'n': return character('\n');
      case 'v': return character('\v');
      case 'f': return character('\f');
      case 'r': return character('\r');
      case '0':
        if (more() && is_digit(peek())) return error("octal numbers are not supported", begin);
        return character(0);
      case 'x': {
        const auto value = hexadecimal(2);
        if (!value) return error("\"\\x\" without two hexadecimal digits", begin);
        return character(*value);
      }
      case 'u': {
        const auto value = unicode_escape(begin);
        if (!value) return std::unexpected(value.error());
        return character(*value);
      }
      case 'c':
        if (!more() || !is_letter(peek())) return error("\"\\c\" without a letter", begin);
        return character(static_cast<char32_t>(text_[at_++]) & 0x1F);
      case 'p':
      case 'P': return property(begin, c == 'P');
      default: break;
    }
    if (c >= '1' && c <= '9') return error("back-references are not supported", begin);
    if (c == 'k') return error("back-references are not supported", begin);
    if (is_letter(c)) return error(fmt::format("\"\\{}\" is not supported", c), begin);
    return character(static_cast<unsigned char>(c));
  }

  Result<Escape> property(std::size_t begin, bool negated) {
    std::string_view name;
    if (skip("{")) {
      const std::size_t end = text_.find('}', at_);
      if (end == std::string_view::npos) return error("\"\\p{\" without \"}\"", begin);
      name = text_.substr(at_, end - at_);
      at_ = end + 1;
    } else if (more() && is_letter(peek())) {
      name = text_.substr(at_++, 1);
    } else {
      return error("\"\\p\" without a class in braces", begin);
    }
    auto set = unicode_class(name, budget_);
    if (!set) return error(set.error().message, begin);
    return Escape{negated ? set->complement() : *std::move(set)};
  }

  Result<NodePtr> escape() {
    const std::size_t begin = at_;
    if (skip("\\b") || skip("\\B")) return error("\"\\b\" (word boundary) is not supported", begin);
    if (skip("\\A")) return make(Node::Kind::Start);
    if (skip("\\z") || skip("\\Z")) return make(Node::Kind::End);
    auto set = set_escape();
    if (!set) return std::unexpected(set.error());
    return cased(std::move(set->set));
  }

  // A character or an escape inside of a class.
  Result<Escape> class_atom() {
    if (peek() == '\\') {
      if (skip("\\b")) return Escape{CharSet('\b', '\b'), true};
      return set_escape();
    }
    return Escape{literal(), true};
  }

  Result<NodePtr> character_class() {
    const std::size_t begin = at_;
    ++at_;
    const bool negated = skip("^");
    std::vector<CharSet::Range> ranges;
    const auto add = [&](const CharSet& set) { ranges.insert(ranges.end(), set.ranges().begin(), set.ranges().end()); };
    while (true) {
      if (!more()) return error("\"[\" without \"]\"", begin);
      if (skip("]")) break;
      if (text_.substr(at_).starts_with("[:") && text_.find(":]", at_) != std::string_view::npos) {
        return error("\"[:name:]\" inside of a class is not supported", at_);
      }
      if (!budget_.take(4, 64)) return fail("the regular expression is too large");
      const std::size_t from = at_;
      auto first = class_atom();
      if (!first) return std::unexpected(first.error());
      const bool range = text_.substr(at_).starts_with("-") && at_ + 1 < text_.size() && text_[at_ + 1] != ']';
      if (!range || !first->single) {
        add(first->set);
        continue;
      }
      ++at_;
      auto last = class_atom();
      if (!last) return std::unexpected(last.error());
      if (!last->single) {  // "a-\d": the three of them
        add(first->set);
        add(CharSet('-', '-'));
        add(last->set);
        continue;
      }
      const char32_t low = first->set.ranges()[0].first, high = last->set.ranges()[0].first;
      if (low > high) return error("a range that ends before it begins", from);
      ranges.push_back({low, high});
    }
    CharSet set(std::move(ranges));
    if (ignore_case_) set = set.ignoring_case();
    return of_set(negated ? set.complement() : std::move(set));
  }

  std::string_view text_;
  Budget& budget_;
  std::size_t at_ = 0;
  bool ignore_case_, dot_all_;
};

}  // namespace

Result<std::unique_ptr<RegexNode>> parse_pattern(std::string_view pattern, const RegexOptions& options,
                                                 Budget& budget) {
  return Parser(pattern, options, budget).parse();
}

}  // namespace quire::grammar
