#include "quire/grammar/gbnf.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "quire/grammar/char_set.h"
#include "quire/grammar/grammar_scanner.h"
#include "quire/grammar/rule_set.h"

namespace quire::grammar {
namespace {

using Expression = RuleExpression;

constexpr int kMaxDepth = 100;

class Gbnf {
 public:
  Gbnf(Grammar& grammar, std::string_view text) : grammar_(grammar), rules_(grammar), in_(text) {}

  Result<SymbolId> parse() {
    if (utf8_valid_prefix(in_.text()) != in_.text().size()) return fail("the grammar is not UTF-8");
    skip_space();
    while (in_.more()) {
      if (auto done = rule(); !done) return std::unexpected(done.error());
      skip_space();
    }
    const auto root = rules_.known("root");
    if (!root) return fail("the grammar has no rule \"root\"");
    return rules_.symbol(*root);
  }

 private:
  void skip_space() { in_.skip_space({"#"}); }

  // Whether a rule begins here. A rule goes on over the ends of lines until the next one begins.
  bool at_rule() {
    const std::size_t begin = in_.at;
    const bool named = !in_.name().empty();
    skip_space();
    const bool found = named && in_.rest().starts_with("::=");
    in_.at = begin;
    return found;
  }

  Result<void> rule() {
    const std::size_t begin = in_.at;
    const std::string_view name = in_.name();
    if (name.empty()) return in_.error("expected the name of a rule");
    skip_space();
    if (!in_.skip("::=")) return in_.error(fmt::format("expected \"::=\" after \"{}\"", name));
    skip_space();
    auto expression = choice(0);
    if (!expression) return std::unexpected(expression.error());
    if (in_.peek() == ')') return in_.error("\")\" without \"(\"");
    if (!rules_.define(rules_.find(name, in_.line_of(begin)), *std::move(expression))) {
      return in_.error_at(begin, fmt::format("the rule \"{}\" is defined twice", name));
    }
    return {};
  }

  Result<Expression> choice(int depth) {
    if (depth > kMaxDepth) return in_.error("groups are nested too deeply");
    std::vector<Expression> alternatives;
    while (true) {
      auto part = sequence(depth);
      if (!part) return part;
      alternatives.push_back(*std::move(part));
      if (!in_.skip("|")) break;
      skip_space();
    }
    return Expression::choice(std::move(alternatives));
  }

  Result<Expression> sequence(int depth) {
    std::vector<Expression> parts;
    while (in_.more() && in_.peek() != '|' && in_.peek() != ')' && !at_rule()) {
      if (!grammar_.budget().take(4, sizeof(Expression))) return fail("the grammar is too large");
      auto part = atom(depth);
      if (!part) return part;
      auto repeated = repetition(*std::move(part));
      if (!repeated) return repeated;
      parts.push_back(*std::move(repeated));
      skip_space();
    }
    return Expression::sequence(std::move(parts));
  }

  Result<Expression> atom(int depth) {
    const std::size_t begin = in_.at;
    RegexSet& regexes = grammar_.regexes();
    if (in_.skip("\"")) {
      std::string text;
      while (!in_.skip("\"")) {
        if (!in_.more()) return in_.error_at(begin, "a text without its end");
        const auto one = character();
        if (!one) return std::unexpected(one.error());
        append_utf8(text, *one);
      }
      return Expression::of_regex(regexes.text(text));
    }
    if (in_.skip("[")) return character_class(begin);
    if (in_.skip(".")) return Expression::of_regex(regex_of(regexes, CharSet::all(), false));
    if (in_.skip("(")) {
      skip_space();
      auto inside = choice(depth + 1);
      if (!inside) return inside;
      if (!in_.skip(")")) return in_.error_at(begin, "\"(\" without \")\"");
      return inside;
    }
    if (in_.peek() == '<' || in_.rest().starts_with("!<")) return token();
    const std::string_view name = in_.name();
    if (name.empty())
      return in_.error(fmt::format("\"{}\" is not understood", in_.rest().substr(0, utf8_step(in_.rest()).length)));
    return Expression::of_rule(rules_.find(name, in_.line_of(begin)));
  }

  // <name>, a special token by its spelling; !<name>, any text without it.
  Result<Expression> token() {
    const std::size_t begin = in_.at;
    const bool negated = in_.skip("!");
    if (in_.rest().starts_with("<[")) return in_.error("tokens by number (\"<[...]>\") are not supported");
    const std::size_t end = in_.rest().find_first_of(">\n");
    if (end == std::string_view::npos || in_.rest()[end] != '>') return in_.error_at(begin, "\"<\" without \">\"");
    const std::string spelling(in_.rest().substr(0, end + 1));
    in_.at += end + 1;
    if (!negated) return Expression::of_symbol(grammar_.token(spelling));
    if (!in_.skip("*")) return in_.error_at(begin, "\"!<...>\" is supported only as \"!<...>*\"");
    const std::string marks[] = {spelling};
    return Expression::of_symbol(grammar_.free_text(marks));
  }

  Result<char32_t> character() {
    if (!in_.skip("\\")) return in_.character();
    const std::size_t begin = in_.at - 1;
    if (!in_.more()) return in_.error("a backslash at the end");
    const char c = in_.peek();
    ++in_.at;
    std::optional<char32_t> value;
    switch (c) {
      case 'x': value = in_.hexadecimal(2); break;
      case 'u': value = in_.hexadecimal(4); break;
      case 'U': value = in_.hexadecimal(8); break;
      case 't': return U'\t';
      case 'r': return U'\r';
      case 'n': return U'\n';
      case '\\':
      case '"':
      case '[':
      case ']':
      case '-':
      case '^':
      case '/': return static_cast<char32_t>(c);
      default: return in_.error_at(begin, "an escape that is not known");
    }
    if (!value) return in_.error_at(begin, fmt::format("\"\\{}\" without the number of a character", c));
    return *value;
  }

  Result<Expression> character_class(std::size_t begin) {
    const bool negated = in_.skip("^");
    std::vector<CharSet::Range> ranges;
    while (!in_.skip("]")) {
      if (!in_.more()) return in_.error_at(begin, "\"[\" without \"]\"");
      if (!grammar_.budget().take(2, sizeof(CharSet::Range))) return fail("the grammar is too large");
      const auto first = character();
      if (!first) return std::unexpected(first.error());
      char32_t last = *first;
      if (in_.peek() == '-' && in_.peek(1) != ']' && in_.peek(1) != '\0') {
        ++in_.at;
        const auto end = character();
        if (!end) return std::unexpected(end.error());
        last = *end;
        if (last < *first) return in_.error_at(begin, "a range of characters that ends before it begins");
      }
      ranges.push_back({*first, last});
    }
    CharSet set(std::move(ranges));
    return Expression::of_regex(regex_of(grammar_.regexes(), negated ? set.complement() : set, false));
  }

  Result<Expression> repetition(Expression of) {
    for (int times = 0;; ++times) {
      if (times > kMaxDepth) return in_.error("too many repetitions of a repetition");
      skip_blanks();
      std::uint32_t least = 0, most = kUnbounded;
      if (in_.skip("*")) {
      } else if (in_.skip("+")) {
        least = 1;
      } else if (in_.skip("?")) {
        most = 1;
      } else if (in_.skip("{")) {
        const std::size_t begin = in_.at - 1;
        skip_space();
        const auto first = in_.number();
        if (!first) return in_.error_at(begin, "a repetition without a number");
        least = most = *first;
        skip_space();
        if (in_.skip(",")) {
          skip_space();
          const bool open = in_.peek() == '}';
          const auto second = in_.number();
          if (!second && !open) return in_.error_at(begin, "a repetition without a number");
          most = second.value_or(kUnbounded);
          skip_space();
        }
        if (!in_.skip("}")) return in_.error_at(begin, "\"{\" without \"}\"");
        if (most < least) return in_.error_at(begin, "a repetition that ends before it begins");
      } else {
        return of;
      }
      of = Expression::repeat(std::move(of), least, most);
    }
  }
  void skip_blanks() {
    while (in_.peek() == ' ' || in_.peek() == '\t') ++in_.at;
  }

  Grammar& grammar_;
  RuleSet rules_;
  GrammarScanner in_;
};

}  // namespace

Result<SymbolId> add_gbnf(Grammar& grammar, std::string_view text) { return Gbnf(grammar, text).parse(); }

}  // namespace quire::grammar
