// Named rules as GBNF and Lark have them, on their way to a Grammar.
//
// Rules that are regular become expressions, and neighbours in a sequence one expression: a terminal costs the parser
// one row, however long its expression is. A rule is regular if it does not use itself, directly or by others; or if it
// does so only at one end, as in `ws ::= ([ \t\n] ws)?`.
//
// Who may call: one thread at a time.
// How it fails: symbol() with one line that names a rule that is used and not defined.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/error.h"
#include "quire/grammar/grammar.h"

namespace quire::grammar {

struct RuleExpression {
  enum class Kind : std::uint8_t {
    Regex,
    Symbol,    // of the grammar; not regular: a special token, a schema
    Rule,      // `rule`
    Sequence,  // parts
    Choice,    // parts
    Both,      // parts: texts that match all of them; regular only
    Not,       // parts[0]: texts that do not match it; regular only
    Repeat,    // parts[0], least to most times
  };
  Kind kind = Kind::Sequence;
  RegexId regex = RegexSet::kNothing;
  SymbolId symbol = 0;
  std::size_t rule = 0;
  std::vector<RuleExpression> parts;
  std::uint32_t least = 0, most = kUnbounded;

  static RuleExpression of_regex(RegexId regex);
  static RuleExpression of_symbol(SymbolId symbol);
  static RuleExpression of_rule(std::size_t rule);
  static RuleExpression sequence(std::vector<RuleExpression> parts);
  static RuleExpression choice(std::vector<RuleExpression> parts);
  static RuleExpression repeat(RuleExpression of, std::uint32_t least, std::uint32_t most = kUnbounded);
};

class RuleSet {
 public:
  explicit RuleSet(Grammar& grammar) : grammar_(grammar) {}

  // The rule with this name, which may be defined later. `line`: where it is used.
  std::size_t find(std::string_view name, std::size_t line);
  std::optional<std::size_t> known(std::string_view name) const;
  // False: it was defined before.
  bool define(std::size_t rule, RuleExpression expression);

  // The symbol of a rule, with everything that it uses.
  Result<SymbolId> symbol(std::size_t start);
  // The rule as an expression, if it is regular and everything that it uses is defined.
  Result<RegexId> regex(std::size_t start);

 private:
  struct Rule {
    std::string name;
    std::size_t line = 0;
    std::optional<RuleExpression> expression;
    std::optional<RegexId> regex;
    std::optional<SymbolId> symbol;
    bool decided = false;  // whether it is regular
  };
  Result<void> decide(std::size_t start);
  void decide_one(std::size_t rule, bool recursive);
  std::optional<RegexId> regular(const RuleExpression& expression) const;
  std::optional<RegexId> regular_at_end(std::size_t rule, bool right);
  struct Split;
  std::optional<Split> split(const RuleExpression& expression, std::size_t rule, bool right) const;
  Result<SymbolId> emit(const RuleExpression& expression);
  Result<std::vector<SymbolId>> emit_sequence(const RuleExpression& expression);

  Grammar& grammar_;
  std::vector<Rule> rules_;
  std::map<std::string, std::size_t, std::less<>> names_;
  std::vector<std::size_t> open_;  // rules whose alternatives are still to be added
};

}  // namespace quire::grammar
