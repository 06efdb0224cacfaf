// A grammar made flat for the parser: symbols without what can never match, positions in rules as numbers.
//
// Who may call: anyone; it does not change after prepare().
// How it fails: prepare() with one line.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "quire/base/error.h"
#include "quire/grammar/grammar.h"
#include "quire/grammar/matcher.h"

namespace quire::grammar {

// What an item waits for.
enum class Waits : std::uint8_t {
  Rule,      // a rule or repeat: Prepared::rules
  Terminal,  // Prepared::terminals
  Token,     // a special token
  End,       // nothing: the whole text is complete
};

inline constexpr std::uint32_t kComplete = 0xFFFFFFFF;

// A position in an alternative, or one of the two of a repeat. Repeats have counters in the parser's items.
struct Position {
  Waits waits = Waits::End;
  bool repeat_element = false, repeat_separator = false;
  bool skippable = false;    // what it waits for may be empty
  std::uint32_t symbol = 0;  // rule, terminal or token
  // Where to go on, or kComplete. Of a repeat's element: the separator, or itself. Of a separator: the element.
  std::uint32_t after = kComplete;
};

// An item without its place to return to. `least` and `most` are a repeat's elements still to come, at least 1; for
// other positions 0.
struct Start {
  std::uint32_t position = 0, least = 0, most = 0;
};

struct PreparedTerminal {
  RegexId regex = RegexSet::kNothing;
  bool any_special = false;
};

struct Prepared {
  std::vector<PreparedTerminal> terminals;
  std::vector<Position> positions;          // the first is the end of the text, the second waits for the start
  std::vector<std::uint32_t> starts_begin;  // per rule: its items, in `starts`; one more entry at the end
  std::vector<Start> starts;                // what cannot be skipped or may be, but never complete
  bool start_nullable = false;
  std::vector<TokenId> named_tokens;  // sorted

  std::span<const Start> starts_of(std::uint32_t rule) const {
    return {starts.data() + starts_begin[rule], starts_begin[rule + 1] - starts_begin[rule]};
  }
};

inline constexpr std::uint32_t kEndPosition = 0, kStartPosition = 1;

// Resolves token() by the tokenizer. Spends the grammar's budget.
Result<Prepared> prepare(Grammar& grammar, const text::Tokenizer& tokenizer);

}  // namespace quire::grammar
