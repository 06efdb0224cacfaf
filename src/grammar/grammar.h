// A context-free grammar whose terminals are regular expressions over bytes. JSON Schema, regular expressions, GBNF and
// Lark are translated into it; a Matcher (matcher.h) says which tokens may come next.
//
//   Grammar grammar;
//   const SymbolId value = grammar.rule();                      // may be used before it has alternatives
//   grammar.add(value, {grammar.text("["), grammar.repeat(value, 0, 3, grammar.text(",")), grammar.text("]")});
//   grammar.set_start(value);
//
// There is no lexer that must choose the longest match: a terminal matches wherever its expression matches, and all
// ways are followed at once. So the grammar admits exactly the texts that its rules say, also where terminals overlap.
//
// Who may call: one thread at a time. When complete, it is given to compile() and does not change any more.
// What holds: symbols stay valid. A rule without alternatives matches nothing.
// How it fails: see budget.h; error() says what was exhausted, or that a limit of the format was reached.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "quire/base/error.h"
#include "quire/grammar/budget.h"
#include "quire/grammar/regex_set.h"

namespace quire::grammar {

using SymbolId = std::uint32_t;

struct Symbol {
  enum class Kind : std::uint8_t {
    Terminal,  // bytes that match `regex`; at least one byte, or none if the expression matches the empty text
    Token,     // one special token, `text` its spelling
    Rule,      // one of its alternatives
    Repeat,    // `of`, least to most times, with `separator` between
  };
  Kind kind = Kind::Terminal;
  RegexId regex = RegexSet::kNothing;  // Terminal
  // Terminal: special tokens may stand inside it as well, except those that end an answer and those that the grammar
  // names by token(). After one the terminal's match begins anew. For free text before a constrained part.
  bool any_special = false;
  std::string text;                                 // Token
  std::vector<std::vector<SymbolId>> alternatives;  // Rule
  SymbolId of = 0;                                  // Repeat
  std::optional<SymbolId> separator;                // Repeat
  std::uint32_t least = 0, most = kUnbounded;       // Repeat
};

class Grammar {
 public:
  explicit Grammar(const Limits& limits = {});
  Grammar(Grammar&&) noexcept = default;
  Grammar& operator=(Grammar&&) noexcept = default;

  RegexSet& regexes() { return regexes_; }

  SymbolId terminal(RegexId regex);
  SymbolId text(std::string_view text);
  // The special token with this spelling if the vocabulary has one; otherwise the same as text().
  SymbolId token(std::string_view spelling);
  // Any text that does not contain one of `marks`, and any special tokens; see Symbol::any_special. What may follow is
  // up to the rule: usually text() or token() of a mark, or the end of the answer. Behind white space it does not begin
  // with one of `not_first`.
  SymbolId free_text(std::span<const std::string> marks, std::span<const std::string> not_first = {});

  SymbolId rule();
  void add(SymbolId rule, std::vector<SymbolId> alternative);
  SymbolId sequence(std::vector<SymbolId> parts);
  SymbolId choice(std::vector<SymbolId> alternatives);
  SymbolId optional(SymbolId of) { return repeat(of, 0, 1); }
  // A counter, not an expansion: 10,000 cost no more than 1.
  SymbolId repeat(SymbolId of, std::uint32_t least, std::uint32_t most = kUnbounded,
                  std::optional<SymbolId> separator = {});
  SymbolId empty() { return sequence({}); }

  void set_start(SymbolId start) { start_ = start; }
  SymbolId start() const { return start_; }
  std::span<const Symbol> symbols() const { return symbols_; }
  Budget& budget() { return *budget_; }
  // One line if the grammar cannot be used: the budget is exhausted.
  Result<void> check() const;

 private:
  std::unique_ptr<Budget> budget_;
  RegexSet regexes_;
  std::vector<Symbol> symbols_;
  std::unordered_map<RegexId, SymbolId> terminals_;  // equal expressions are one symbol
  SymbolId start_ = 0;

  SymbolId append(Symbol symbol);
};

}  // namespace quire::grammar
