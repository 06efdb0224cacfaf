#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <boost/json/parse.hpp>
#include <fmt/format.h>

#include "quire/grammar/char_set.h"
#include "quire/grammar/gbnf.h"
#include "quire/grammar/grammar_scanner.h"
#include "quire/grammar/json_schema.h"
#include "quire/grammar/regex_syntax.h"
#include "quire/grammar/rule_set.h"

namespace quire::grammar {
namespace {

using Expression = RuleExpression;

constexpr int kMaxDepth = 100;

// The terminals that "%import common.NAME" brings, as regular expressions.
constexpr std::array<std::pair<std::string_view, std::string_view>, 26> kCommon = {{
    {"DIGIT", "[0-9]"},
    {"HEXDIGIT", "[0-9a-fA-F]"},
    {"INT", "[0-9]+"},
    {"SIGNED_INT", "[+-]?[0-9]+"},
    {"DECIMAL", "[0-9]+\\.[0-9]*|\\.[0-9]+"},
    {"_EXP", "[eE][+-]?[0-9]+"},
    {"FLOAT", "[0-9]+[eE][+-]?[0-9]+|([0-9]+\\.[0-9]*|\\.[0-9]+)([eE][+-]?[0-9]+)?"},
    {"SIGNED_FLOAT", "[+-]?([0-9]+[eE][+-]?[0-9]+|([0-9]+\\.[0-9]*|\\.[0-9]+)([eE][+-]?[0-9]+)?)"},
    {"NUMBER", "([0-9]+(\\.[0-9]*)?|\\.[0-9]+)([eE][+-]?[0-9]+)?"},
    {"SIGNED_NUMBER", "[+-]?([0-9]+(\\.[0-9]*)?|\\.[0-9]+)([eE][+-]?[0-9]+)?"},
    {"ESCAPED_STRING", "\"([^\"\\\\\\n]|\\\\[^\\n])*\""},
    {"LCASE_LETTER", "[a-z]"},
    {"UCASE_LETTER", "[A-Z]"},
    {"LETTER", "[a-zA-Z]"},
    {"WORD", "[a-zA-Z]+"},
    {"CNAME", "[a-zA-Z_][a-zA-Z0-9_]*"},
    {"WS_INLINE", "[ \\t]+"},
    {"WS", "[ \\t\\f\\r\\n]+"},
    {"CR", "\\r"},
    {"LF", "\\n"},
    {"NEWLINE", "(\\r?\\n)+"},
    {"SH_COMMENT", "#[^\\n]*"},
    {"CPP_COMMENT", "//[^\\n]*"},
    {"C_COMMENT", "/\\*([^*]|\\*+[^*/])*\\*+/"},
    {"SQL_COMMENT", "--[^\\n]*"},
    {"_STRING_INNER", ".*"},
}};

bool is_terminal_name(std::string_view name) {
  const std::size_t first = name.find_first_not_of('_');
  return first != std::string_view::npos && name[first] >= 'A' && name[first] <= 'Z';
}

class Lark {
 public:
  Lark(Grammar& grammar, std::string_view text) : grammar_(grammar), rules_(grammar), in_(text) {}

  Result<SymbolId> parse() {
    if (utf8_valid_prefix(in_.text()) != in_.text().size()) return fail("the grammar is not UTF-8");
    skip_space();
    while (in_.more()) {
      auto done = in_.peek() == '%' ? directive() : rule();
      if (!done) return std::unexpected(done.error());
      skip_space();
    }
    const auto start = rules_.known("start");
    if (!start) return fail("the grammar has no rule \"start\"");
    const std::size_t ignored = rules_.find(kIgnored, 0);
    rules_.define(ignored, Expression::repeat(Expression::choice(std::move(ignored_)), 0));
    const auto skipped = rules_.regex(ignored);
    if (!skipped) return fail(fmt::format("%ignore: {}", skipped.error().message));
    const std::size_t whole = rules_.find(kWhole, 0);
    rules_.define(whole, Expression::sequence({Expression::of_rule(ignored), Expression::of_rule(*start)}));
    return rules_.symbol(whole);
  }

 private:
  // No names of rules: they have a blank.
  static constexpr std::string_view kIgnored = "what is ignored", kWhole = "the whole";

  void skip_space() { in_.skip_space({"#", "//"}); }

  // Whether a rule or a directive begins here. A rule goes on over the ends of lines until then.
  bool at_rule() {
    if (in_.peek() == '%') return !in_.rest().starts_with("%json");
    const std::size_t begin = in_.at;
    if (in_.peek() == '?' || in_.peek() == '!') ++in_.at;
    const bool named = !in_.name().empty();
    bool found =
        named && in_.peek() == '{' && !GrammarScanner::is_digit(in_.peek(1)) && in_.peek(1) != ',';  // template
    if (in_.peek() == '.') {
      ++in_.at;
      if (in_.peek() == '-') ++in_.at;
      in_.number();
    }
    if (in_.peek() == '[') found = named && attributes_end();
    skip_space();
    found = found || (named && in_.peek() == ':');
    in_.at = begin;
    return found;
  }
  // "name[capture]:"
  bool attributes_end() {
    const std::size_t close = in_.rest().find_first_of("]\n");
    if (close == std::string_view::npos) return false;
    in_.at += close + 1;
    skip_space();
    return in_.peek() == ':';
  }

  Result<void> rule() {
    const std::size_t begin = in_.at;
    if (in_.peek() == '?' || in_.peek() == '!') ++in_.at;  // only for the tree
    const std::string_view name = in_.name();
    if (name.empty()) return in_.error("expected the name of a rule");
    if (in_.peek() == '{') return in_.error(fmt::format("\"{}\": templates are not supported", name));
    if (in_.skip(".")) {  // A priority chooses between trees. The texts are the same.
      in_.skip("-");
      if (!in_.number()) return in_.error("a priority without a number");
    }
    if (in_.skip("[")) {
      const std::size_t close = in_.rest().find(']');
      const std::string_view attributes = in_.rest().substr(0, close);
      if (close == std::string_view::npos || attributes != "capture") {
        return in_.error(fmt::format("\"{}\": the attribute \"{}\" is not supported", name, attributes));
      }
      in_.at += close + 1;
    }
    skip_space();
    if (!in_.skip(":")) return in_.error(fmt::format("expected \":\" after \"{}\"", name));
    skip_space();
    in_terminal_ = is_terminal_name(name);
    auto expression = choice(0);
    if (!expression) return std::unexpected(expression.error());
    if (in_.more() && !at_rule()) return in_.error(fmt::format("\"{}\" is not understood", here()));
    const std::size_t rule = rules_.find(name, in_.line_of(begin));
    if (!rules_.define(rule, *std::move(expression))) {
      return in_.error_at(begin, fmt::format("\"{}\" is defined twice", name));
    }
    return {};
  }

  Result<void> directive() {
    const std::size_t begin = in_.at;
    ++in_.at;
    const std::string_view name = in_.name();
    skip_blanks();
    if (name == "ignore") {
      in_terminal_ = true;
      auto expression = choice(0);
      if (!expression) return std::unexpected(expression.error());
      ignored_.push_back(*std::move(expression));
      return {};
    }
    if (name == "import") return import(begin);
    if (name == "llguidance") {
      if (in_.skip("{}")) return {};
      return in_.error_at(begin, "the options of %llguidance are not supported");
    }
    return in_.error_at(begin, fmt::format("%{} is not supported", name));
  }

  Result<void> import(std::size_t begin) {
    const std::string_view module = in_.name();
    if (module != "common") return in_.error_at(begin, "only \"%import common\" is supported");
    if (in_.skip(".")) {
      const std::string_view name = in_.name();
      skip_blanks();
      std::string_view alias = name;
      if (in_.skip("->")) {
        skip_blanks();
        alias = in_.name();
      }
      return import_common(begin, name, alias);
    }
    skip_blanks();
    if (!in_.skip("(")) return in_.error_at(begin, "%import common without names");
    while (true) {
      skip_space();
      const std::string_view name = in_.name();
      if (auto done = import_common(begin, name, name); !done) return done;
      skip_space();
      if (in_.skip(")")) return {};
      if (!in_.skip(",")) return in_.error("expected \",\" or \")\"");
    }
  }

  Result<void> import_common(std::size_t begin, std::string_view name, std::string_view alias) {
    const auto found = std::ranges::find(kCommon, name, [](const auto& entry) { return entry.first; });
    if (found == kCommon.end()) return in_.error_at(begin, fmt::format("%import common.{} is not known", name));
    const auto regex = parse_regex(grammar_.regexes(), found->second);
    if (!regex) return std::unexpected(regex.error());
    const std::size_t rule = rules_.find(alias, in_.line_of(begin));
    if (!rules_.define(rule, Expression::of_regex(*regex))) {
      return in_.error_at(begin, fmt::format("\"{}\" is defined twice", alias));
    }
    return {};
  }

  Result<Expression> choice(int depth) {
    if (depth > kMaxDepth) return in_.error("groups are nested too deeply");
    std::vector<Expression> alternatives;
    do {
      skip_space();
      auto part = both(depth);
      if (!part) return part;
      alternatives.push_back(*std::move(part));
      if (in_.skip("->")) {  // the name of a tree's node
        skip_blanks();
        in_.name();
        skip_space();
      }
    } while (in_.skip("|"));
    return Expression::choice(std::move(alternatives));
  }

  // "A & B": texts that are both.
  Result<Expression> both(int depth) {
    std::vector<Expression> parts;
    do {
      skip_space();
      auto part = sequence(depth);
      if (!part) return part;
      parts.push_back(*std::move(part));
    } while (in_.skip("&"));
    if (parts.size() == 1) return std::move(parts[0]);
    Expression out;
    out.kind = Expression::Kind::Both;
    out.parts = std::move(parts);
    return out;
  }

  Result<Expression> sequence(int depth) {
    std::vector<Expression> parts;
    while (in_.more() && std::string_view("|&)]").find(in_.peek()) == std::string_view::npos &&
           !in_.rest().starts_with("->") && !at_rule()) {
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

  // What stands for characters is followed by what is ignored, except inside of terminals.
  Expression terminal(Expression expression) {
    if (in_terminal_) return expression;
    return Expression::sequence({std::move(expression), Expression::of_rule(rules_.find(kIgnored, 0))});
  }

  Result<Expression> atom(int depth) {
    const std::size_t begin = in_.at;
    RegexSet& regexes = grammar_.regexes();
    if (in_.skip("(")) {
      auto inside = choice(depth + 1);
      if (!inside) return inside;
      if (!in_.skip(")")) return in_.error_at(begin, "\"(\" without \")\"");
      return inside;
    }
    if (in_.skip("[")) {
      auto inside = choice(depth + 1);
      if (!inside) return inside;
      if (!in_.skip("]")) return in_.error_at(begin, "\"[\" without \"]\"");
      return Expression::repeat(*std::move(inside), 0, 1);
    }
    if (in_.peek() == '"') return text();
    if (in_.peek() == '/') return regex();
    if (in_.peek() == '<') {
      if (in_terminal_) return in_.error("a special token inside of a terminal");
      if (in_.rest().starts_with("<[")) return in_.error("tokens by number (\"<[...]>\") are not supported");
      const std::size_t end = in_.rest().find_first_of(">\n");
      if (end == std::string_view::npos || in_.rest()[end] != '>') return in_.error("\"<\" without \">\"");
      const std::string_view spelling = in_.rest().substr(0, end + 1);
      in_.at += end + 1;
      return terminal(Expression::of_symbol(grammar_.token(spelling)));
    }
    if (in_.skip("%json")) return schema();
    if (in_.skip("~")) {
      skip_space();
      if (depth > kMaxDepth) return in_.error("too many \"~\"");
      auto of = atom(depth + 1);
      if (!of) return of;
      // Every text of characters that is not one of those.
      Expression negated;
      negated.kind = Expression::Kind::Not;
      negated.parts.push_back(*std::move(of));
      Expression out;
      out.kind = Expression::Kind::Both;
      out.parts.push_back(std::move(negated));
      out.parts.push_back(Expression::of_regex(regexes.repeat(any_character(regexes, false), 0)));
      return out;
    }
    const std::string_view name = in_.name();
    if (name.empty()) return in_.error(fmt::format("\"{}\" is not understood", here()));
    if (in_.peek() == '{' && !GrammarScanner::is_digit(in_.peek(1)) && in_.peek(1) != ',') {
      return in_.error(fmt::format("\"{}\": templates are not supported", name));
    }
    auto used = Expression::of_rule(rules_.find(name, in_.line_of(begin)));
    if (is_terminal_name(name)) return terminal(std::move(used));
    if (in_terminal_) return in_.error_at(begin, fmt::format("the rule \"{}\" inside of a terminal", name));
    return used;
  }

  // The text between quotation marks, which may have escapes.
  Result<std::string> quoted() {
    const std::size_t begin = in_.at;
    ++in_.at;
    std::string out;
    while (!in_.skip("\"")) {
      if (!in_.more() || in_.peek() == '\n') return in_.error_at(begin, "a text without its end");
      if (!in_.skip("\\")) {
        append_utf8(out, in_.character());
        continue;
      }
      const char c = in_.peek();
      ++in_.at;
      std::optional<char32_t> value;
      switch (c) {
        case 'n': value = '\n'; break;
        case 't': value = '\t'; break;
        case 'r': value = '\r'; break;
        case 'f': value = '\f'; break;
        case 'v': value = '\v'; break;
        case '\\':
        case '"':
        case '\'':
        case '/': value = static_cast<char32_t>(c); break;
        case 'x': value = in_.hexadecimal(2); break;
        case 'u': value = in_.hexadecimal(4); break;
        case 'U': value = in_.hexadecimal(8); break;
        default: break;
      }
      if (!value) return in_.error_at(begin, "an escape that is not known");
      append_utf8(out, *value);
    }
    return out;
  }

  Result<Expression> text() {
    const std::size_t begin = in_.at;
    auto first = quoted();
    if (!first) return std::unexpected(first.error());
    RegexSet& regexes = grammar_.regexes();
    if (in_.skip("..")) {
      if (in_.peek() != '"') return in_.error("a range without its end");
      const auto last = quoted();
      if (!last) return std::unexpected(last.error());
      const auto one = [](const std::string& from) -> std::optional<char32_t> {
        if (from.empty() || utf8_step(from).length != from.size()) return std::nullopt;
        return utf8_decode(from);
      };
      const auto low = one(*first), high = one(*last);
      if (!low || !high || *low > *high) return in_.error_at(begin, "a range needs two characters in their order");
      return terminal(Expression::of_regex(character_class(regexes, *low, *high, false)));
    }
    if (in_.peek() == 'i' && !GrammarScanner::is_name(in_.peek(1))) {
      ++in_.at;
      std::vector<RegexId> parts;
      for (std::string_view rest = *first; !rest.empty();) {
        const std::size_t length = utf8_step(rest).length;
        const char32_t character = utf8_decode(rest.substr(0, length));
        parts.push_back(regex_of(regexes, CharSet(character, character).ignoring_case(), false));
        rest.remove_prefix(length);
      }
      return terminal(Expression::of_regex(regexes.concat(parts)));
    }
    return terminal(Expression::of_regex(regexes.text(*first)));
  }

  Result<Expression> regex() {
    const std::size_t begin = in_.at;
    ++in_.at;
    std::string pattern;
    bool in_class = false;
    while (in_.peek() != '/' || in_class) {
      if (!in_.more() || in_.peek() == '\n') {
        if (in_class) {  // a class without its end: the slash may have been inside
          in_.at = begin;
          return in_.error("a regular expression without its end; a \"[\" may lack its \"]\"");
        }
        return in_.error_at(begin, "a regular expression without its end");
      }
      if (in_.peek() == '\\' && in_.peek(1) != '\0') {
        if (in_.peek(1) != '/') pattern += '\\';
        pattern += in_.peek(1);
        in_.at += 2;
        continue;
      }
      if (in_.peek() == '[') in_class = true;
      if (in_.peek() == ']') in_class = false;
      pattern += in_.peek();
      ++in_.at;
    }
    ++in_.at;
    RegexOptions options;
    for (; GrammarScanner::is_letter(in_.peek()); ++in_.at) {
      if (in_.peek() == 'i') {
        options.ignore_case = true;
      } else if (in_.peek() == 's') {
        options.dot_all = true;
      } else if (in_.peek() != 'u') {
        return in_.error(fmt::format("the flag \"{}\" is not supported", in_.peek()));
      }
    }
    const auto regex = parse_regex(grammar_.regexes(), pattern, options);
    if (!regex) return in_.error_at(begin, regex.error().message);
    return terminal(Expression::of_regex(*regex));
  }

  // The JSON object at the front of `text`, by its braces.
  static std::string_view object_at_front(std::string_view text) {
    int depth = 0;
    bool quoted = false;
    for (std::size_t i = 0; i < text.size(); ++i) {
      const char c = text[i];
      if (quoted) {
        if (c == '\\') ++i;
        if (c == '"') quoted = false;
      } else if (c == '"') {
        quoted = true;
      } else if (c == '{') {
        ++depth;
      } else if (c == '}' && --depth == 0) {
        return text.substr(0, i + 1);
      }
      if (depth == 0) break;
    }
    return {};
  }

  Result<Expression> schema() {
    const std::size_t begin = in_.at;
    if (in_terminal_) return in_.error("%json inside of a terminal");
    skip_space();
    const std::string_view text = object_at_front(in_.rest());
    if (text.empty()) return in_.error_at(begin, "%json without a JSON object");
    in_.at += text.size();
    boost::system::error_code code;
    const auto value = boost::json::parse(text, code, {}, {.max_depth = 128});
    if (code) return in_.error_at(begin, fmt::format("%json: not JSON: {}", code.message()));
    const auto symbol = add_json_schema(grammar_, value);
    if (!symbol) return in_.error_at(begin, fmt::format("%json: {}", symbol.error().message));
    return terminal(Expression::of_symbol(*symbol));
  }

  Result<Expression> repetition(Expression of) {
    for (int times = 0;; ++times) {
      if (times > kMaxDepth) return in_.error("too many repetitions of a repetition");
      skip_blanks();
      const std::size_t begin = in_.at;
      std::uint32_t least = 0, most = kUnbounded;
      if (in_.skip("*")) {
      } else if (in_.skip("+")) {
        least = 1;
      } else if (in_.peek() == '?' && !at_rule()) {
        ++in_.at;
        most = 1;
      } else if (in_.peek() == '~') {
        ++in_.at;
        skip_blanks();
        const auto first = in_.number();
        if (!first) {  // the complement of what follows
          in_.at = begin;
          return of;
        }
        least = most = *first;
        if (in_.skip("..")) {
          const auto second = in_.number();
          if (!second) return in_.error_at(begin, "a repetition without its end");
          most = *second;
        }
      } else if (in_.skip("{")) {
        const auto first = in_.number();
        least = first.value_or(0);
        most = least;
        if (in_.skip(",")) {
          const auto second = in_.number();
          if (!first && !second) return in_.error_at(begin, "a repetition without numbers");
          most = second.value_or(kUnbounded);
        } else if (!first) {
          return in_.error_at(begin, "a repetition without numbers");
        }
        if (!in_.skip("}")) return in_.error_at(begin, "\"{\" without \"}\"");
      } else {
        return of;
      }
      if (most < least) return in_.error_at(begin, "a repetition that ends before it begins");
      of = Expression::repeat(std::move(of), least, most);
    }
  }

  void skip_blanks() {
    while (in_.peek() == ' ' || in_.peek() == '\t') ++in_.at;
  }
  std::string_view here() const { return in_.rest().substr(0, in_.more() ? utf8_step(in_.rest()).length : 0); }

  Grammar& grammar_;
  RuleSet rules_;
  GrammarScanner in_;
  std::vector<Expression> ignored_;
  bool in_terminal_ = false;  // the rule that is read is a terminal
};

}  // namespace

Result<SymbolId> add_lark(Grammar& grammar, std::string_view text) { return Lark(grammar, text).parse(); }

}  // namespace quire::grammar
