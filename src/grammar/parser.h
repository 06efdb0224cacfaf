// The states of an Earley parser over bytes, made when they are first needed, and kept.
//
// A row is what the parser knows at a position where a terminal may begin: items (position in a rule, place to return
// to). A place to return to is a rule that some row waits for. Rows do not know where in the text they are, so that
// equal rows are one: after every element of a list there is the same row. If only one item waits for a rule and is
// complete with it, then the rule returns straight to where that item returns to; so right recursion does not grow.
//
// A state is a set of threads: a row and how far the lexer has read one of the terminals that the row waits for. A byte
// moves every thread; what terminals end there make the next row.
//
// Who may call: one thread at a time.
// What holds: ids stay valid for the parser's life. A state other than kDead and kTooMuch has a way to complete.
// How it fails: step() gives kTooMuch when a row or state is larger than the limits, or the budget is exhausted.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "quire/grammar/interner.h"
#include "quire/grammar/lexer.h"
#include "quire/grammar/prepared.h"

namespace quire::grammar {

using RowId = std::uint32_t;
using StateId = std::uint32_t;
inline constexpr RowId kNoRow = 0xFFFFFFFF;

struct Thread {
  RowId row;
  LexState lex;
  bool operator==(const Thread&) const = default;
  auto operator<=>(const Thread&) const = default;
};

class Parser {
 public:
  static constexpr StateId kDead = 0, kTooMuch = 1;
  static constexpr std::size_t kMaxItems = 1024;   // in a row, without predictions
  static constexpr std::size_t kMaxThreads = 512;  // in a state

  // `prepared` outlives it.
  Parser(const Prepared& prepared, RegexSet regexes, std::vector<RegexId> terminals);

  StateId start();
  StateId step(StateId at, std::uint8_t byte) {
    const State& state = states_[at];
    const StateId next = next_[state.next + state.classes[byte]];
    return next != kUnknown ? next : compute(at, byte);
  }
  // After a special token; kDead: it may not come here.
  StateId step_token(StateId at, TokenId token, bool free_special);

  bool complete(StateId at) const { return states_[at].row != kNoRow && rows_[states_[at].row].complete; }
  std::span<const Thread> threads(StateId at) const { return {threads_.data() + states_[at].begin, states_[at].count}; }
  // The special tokens that the grammar names and that may come, sorted.
  std::span<const TokenId> tokens(StateId at) const;
  // Whether special tokens may come that the grammar does not name.
  bool free_special(StateId at) const;
  // The byte that must come next: 0 to 255. -1: more than one may come, or none.
  int only_byte(StateId at);

  // The state at the beginning of the row after the terminals `accepts` of `row`.
  StateId after(RowId row, std::uint32_t accepts);

  // The same state of another parser of the same grammar.
  StateId import(const Parser& from, StateId state);

  Lexer& lexer() { return lexer_; }
  std::size_t bytes() const;
  std::uint64_t work() const { return work_; }  // items and threads made

 private:
  static constexpr StateId kUnknown = 0xFFFFFFFF;
  static constexpr std::uint32_t kReturnEnd = 0;  // the place to return to of the start

  struct Item {
    std::uint32_t position, returns, least, most;
    bool operator==(const Item&) const = default;
    auto operator<=>(const Item&) const = default;
  };
  // Items of a row that wait for the same.
  struct Group {
    std::uint32_t symbol, begin, count;
    std::uint32_t returns = kUnknown;  // of a rule: the place that its items return to
  };
  struct Row {
    std::uint32_t items = 0, item_count = 0;  // kernel, sorted; in items_
    std::uint32_t rules = 0, rule_count = 0;  // groups by rule, terminal, token; in groups_, sorted by symbol
    std::uint32_t terminals = 0, terminal_count = 0;
    std::uint32_t tokens = 0, token_count = 0;
    std::uint32_t token_ids = 0;  // in tokens_
    LexState lex = Lexer::kDead;
    bool complete = false;
  };
  struct Return {
    RowId row;
    std::uint32_t rule;
  };
  struct State {
    const std::uint8_t* classes = nullptr;
    std::uint32_t next = 0;
    std::uint32_t begin = 0, count = 0;  // threads
    RowId row = kNoRow;
    int only_byte = -2;  // not computed
  };
  class Kernel;

  StateId compute(StateId at, std::uint8_t byte);
  void add_group(Kernel& kernel, const Group& group);
  const Group* find_group(std::uint32_t begin, std::uint32_t count, std::uint32_t symbol) const;
  void add_after(Kernel& kernel, RowId row, std::uint32_t accepts);
  RowId row_of(Kernel& kernel);
  RowId make_row(std::span<const Item> kernel);
  void predict(RowId id, Row& row, std::span<const Item> kernel);
  StateId state_of(RowId row, std::vector<Thread>& threads);

  const Prepared& prepared_;
  Lexer lexer_;
  std::vector<RegexId> terminals_;
  std::vector<Row> rows_;
  std::vector<Item> items_;
  std::vector<Group> groups_;
  std::vector<TokenId> tokens_;
  std::vector<Return> returns_;
  std::vector<State> states_;
  std::vector<Thread> threads_;
  std::vector<StateId> next_;
  Interner rows_by_items_, states_by_threads_;
  std::unordered_map<std::uint64_t, StateId> after_;  // row << 32 | accepts
  std::vector<std::uint32_t> rule_mark_;              // scratch of predict()
  std::uint32_t mark_ = 0;
  std::uint64_t work_ = 0;
  bool too_much_ = false;
};

}  // namespace quire::grammar
