#include "quire/grammar/parser.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

namespace quire::grammar {

// The items of a row while they are collected.
class Parser::Kernel {
 public:
  std::vector<Item> items;
  std::vector<std::uint32_t> completed;  // returns that were or will be followed
  std::size_t followed = 0;
  bool overflow = false;

  // False: it is there already, or a repeat with more room.
  bool add(const Item& item) {
    if (items.size() < 24) {
      for (const Item& old : items) {
        if (covers(old, item)) return false;
      }
    } else {
      if (index_.empty()) {
        for (std::uint32_t i = 0; i < items.size(); ++i) index_.emplace(key(items[i]), i);
      }
      const auto [begin, end] = index_.equal_range(key(item));
      for (auto it = begin; it != end; ++it) {
        if (covers(items[it->second], item)) return false;
      }
      index_.emplace(key(item), static_cast<std::uint32_t>(items.size()));
    }
    if (items.size() >= kMaxItems) {
      overflow = true;
      return false;
    }
    items.push_back(item);
    return true;
  }

  void complete(std::uint32_t returns) {
    if (completed.size() < 24) {
      if (std::ranges::find(completed, returns) != completed.end()) return;
    } else {
      if (completed_index_.empty()) completed_index_.insert(completed.begin(), completed.end());
      if (!completed_index_.insert(returns).second) return;
    }
    completed.push_back(returns);
  }

  // Sorted; counters that overlap or touch are one.
  void finish() {
    std::ranges::sort(items);
    std::size_t out = 0;
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (out > 0) {
        Item& last = items[out - 1];
        if (last.position == items[i].position && last.returns == items[i].returns &&
            (last.most == kUnbounded || items[i].least <= last.most + 1)) {
          last.most = std::max(last.most, items[i].most);
          continue;
        }
      }
      items[out++] = items[i];
    }
    items.resize(out);
  }

 private:
  static bool covers(const Item& a, const Item& b) {
    return a.position == b.position && a.returns == b.returns && a.least <= b.least && a.most >= b.most;
  }
  static std::uint64_t key(const Item& item) { return std::uint64_t{item.position} << 32 | item.returns; }
  std::unordered_multimap<std::uint64_t, std::uint32_t> index_;
  std::unordered_set<std::uint32_t> completed_index_;
};

Parser::Parser(const Prepared& prepared, RegexSet regexes, std::vector<RegexId> terminals)
    : prepared_(prepared), lexer_(std::move(regexes)), terminals_(std::move(terminals)) {
  returns_.push_back({kNoRow, 0});  // kReturnEnd
  rule_mark_.resize(prepared.starts_begin.size());
  std::vector<Thread> none;
  state_of(kNoRow, none);  // kDead
  // kTooMuch: like kDead, but another id.
  states_.push_back(states_[kDead]);
}

StateId Parser::start() {
  Kernel kernel;
  kernel.add({kStartPosition, kReturnEnd, 0, 0});
  if (prepared_.start_nullable) kernel.complete(kReturnEnd);
  const RowId row = row_of(kernel);
  std::vector<Thread> threads;
  return state_of(row, threads);
}

const Parser::Group* Parser::find_group(std::uint32_t begin, std::uint32_t count, std::uint32_t symbol) const {
  const std::span<const Group> groups(groups_.data() + begin, count);
  const auto found = std::ranges::lower_bound(groups, symbol, {}, &Group::symbol);
  return found != groups.end() && found->symbol == symbol ? &*found : nullptr;
}

// What the items of a group become when what they wait for is complete.
void Parser::add_group(Kernel& kernel, const Group& group) {
  std::vector<Item> skipped;
  const auto advance = [&](const Item& item) {
    const Position& position = prepared_.positions[item.position];
    Item next{position.after, item.returns, 0, 0};
    if (position.repeat_element) {
      if (item.least <= 1) kernel.complete(item.returns);
      if (item.most == 1) return;
      next.least = std::max(item.least, 2U) - 1;
      next.most = item.most == kUnbounded ? kUnbounded : item.most - 1;
    } else if (position.repeat_separator) {
      next.least = item.least;
      next.most = item.most;
    } else if (position.after == kComplete) {
      kernel.complete(item.returns);
      return;
    }
    ++work_;
    if (kernel.add(next) && prepared_.positions[next.position].skippable) skipped.push_back(next);
  };
  for (std::uint32_t i = 0; i < group.count; ++i) {
    const Item item = items_[group.begin + i];
    advance(item);
    while (!skipped.empty()) {
      const Item skip = skipped.back();
      skipped.pop_back();
      advance(skip);
    }
  }
}

void Parser::add_after(Kernel& kernel, RowId row, std::uint32_t accepts) {
  for (const std::uint32_t terminal : lexer_.accept_list(accepts)) {
    const Group* group = find_group(rows_[row].terminals, rows_[row].terminal_count, terminal);
    if (group != nullptr) add_group(kernel, *group);
  }
}

RowId Parser::row_of(Kernel& kernel) {
  for (; kernel.followed < kernel.completed.size(); ++kernel.followed) {
    ++work_;
    const std::uint32_t returns = kernel.completed[kernel.followed];
    if (returns == kReturnEnd) {
      kernel.add({kEndPosition, kReturnEnd, 0, 0});
      continue;
    }
    const Return at = returns_[returns];
    const Group* group = find_group(rows_[at.row].rules, rows_[at.row].rule_count, at.rule);
    if (group != nullptr) add_group(kernel, *group);
  }
  if (kernel.overflow) too_much_ = true;
  kernel.finish();
  if (kernel.items.empty()) return kNoRow;
  return make_row(kernel.items);
}

RowId Parser::make_row(std::span<const Item> kernel) {
  std::uint64_t hash = 3;
  for (const Item& item : kernel) {
    hash = hash_mix(hash, std::uint64_t{item.position} << 32 | item.returns);
    if (item.most != 0) hash = hash_mix(hash, std::uint64_t{item.least} << 32 | item.most);
  }
  const auto same = [&](std::uint32_t id) {
    return std::ranges::equal(std::span(items_.data() + rows_[id].items, rows_[id].item_count), kernel);
  };
  return rows_by_items_.find(hash, same, [&] {
    const auto id = static_cast<RowId>(rows_.size());
    Row row;
    row.items = static_cast<std::uint32_t>(items_.size());
    row.item_count = static_cast<std::uint32_t>(kernel.size());
    items_.insert(items_.end(), kernel.begin(), kernel.end());
    rows_.push_back(row);
    predict(id, row, kernel);
    rows_[id] = row;
    return id;
  });
}

void Parser::predict(RowId id, Row& row, std::span<const Item> kernel) {
  // Every item with what it waits for. Those of predicted rules have the rule in `returns` until it is known where it
  // returns to.
  struct Waiting {
    Waits waits;
    std::uint32_t symbol;
    bool predicted;
    Item item;
  };
  std::vector<Waiting> all;
  std::vector<std::uint32_t> rules;
  ++mark_;
  const auto add = [&](const Item& item, bool predicted) {
    const Position& position = prepared_.positions[item.position];
    if (position.waits == Waits::End) {
      row.complete = true;
      return;
    }
    all.push_back({position.waits, position.symbol, predicted, item});
    if (position.waits == Waits::Rule && rule_mark_[position.symbol] != mark_) {
      rule_mark_[position.symbol] = mark_;
      rules.push_back(position.symbol);
    }
  };
  for (const Item& item : kernel) add(item, false);
  for (std::size_t i = 0; i < rules.size(); ++i) {
    for (const Start& start : prepared_.starts_of(rules[i]))
      add({start.position, rules[i], start.least, start.most}, true);
  }
  work_ += all.size();
  std::ranges::stable_sort(all, {}, [](const Waiting& waiting) { return std::pair(waiting.waits, waiting.symbol); });

  // Groups, rules first. Where they begin, to find a rule's by number.
  const auto first_group = static_cast<std::uint32_t>(groups_.size());
  for (std::size_t i = 0; i < all.size();) {
    std::size_t end = i + 1;
    while (end < all.size() && all[end].waits == all[i].waits && all[end].symbol == all[i].symbol) ++end;
    groups_.push_back({.symbol = all[i].symbol,
                       .begin = static_cast<std::uint32_t>(items_.size() + i),
                       .count = static_cast<std::uint32_t>(end - i)});
    if (all[i].waits == Waits::Rule) ++row.rule_count;
    if (all[i].waits == Waits::Terminal) ++row.terminal_count;
    if (all[i].waits == Waits::Token) ++row.token_count;
    i = end;
  }
  row.rules = first_group;
  row.terminals = row.rules + row.rule_count;
  row.tokens = row.terminals + row.terminal_count;

  // Where rules return to.
  const auto base = static_cast<std::uint32_t>(items_.size());
  const auto index_of = [&](std::uint32_t rule) {
    return static_cast<std::size_t>(find_group(row.rules, row.rule_count, rule) - (groups_.data() + row.rules));
  };
  std::vector<std::size_t> chain;
  const auto resolve = [&](std::uint32_t rule) {
    std::size_t at = index_of(rule);
    chain.clear();
    std::uint32_t found = kUnknown;
    while (found == kUnknown) {
      if (groups_[row.rules + at].returns != kUnknown) {
        found = groups_[row.rules + at].returns;
        break;
      }
      chain.push_back(at);
      const Group& group = groups_[row.rules + at];
      const Waiting& waiting = all[group.begin - base];
      const Position& position = prepared_.positions[waiting.item.position];
      const bool last =
          position.repeat_element ? waiting.item.most == 1 : !position.repeat_separator && position.after == kComplete;
      if (group.count == 1 && last && !waiting.predicted) {
        found = waiting.item.returns;
      } else if (group.count == 1 && last && chain.size() <= row.rule_count) {
        at = index_of(waiting.item.returns);
      } else {
        found = static_cast<std::uint32_t>(returns_.size());
        returns_.push_back({id, group.symbol});
      }
    }
    for (const std::size_t link : chain) groups_[row.rules + link].returns = found;
    return found;
  };
  for (const Waiting& waiting : all) {
    Item item = waiting.item;
    if (waiting.predicted) item.returns = resolve(item.returns);
    items_.push_back(item);
  }

  row.token_ids = static_cast<std::uint32_t>(tokens_.size());
  for (std::uint32_t i = 0; i < row.token_count; ++i)
    tokens_.push_back(static_cast<TokenId>(groups_[row.tokens + i].symbol));
  std::vector<Lexer::Part> parts;
  for (std::uint32_t i = 0; i < row.terminal_count; ++i) {
    const std::uint32_t terminal = groups_[row.terminals + i].symbol;
    parts.push_back({terminal, terminals_[terminal]});
  }
  row.lex = lexer_.state(parts);
}

StateId Parser::state_of(RowId row, std::vector<Thread>& threads) {
  if (row != kNoRow && lexer_.extends(rows_[row].lex)) threads.push_back({row, rows_[row].lex});
  std::ranges::sort(threads);
  const auto rest = std::ranges::unique(threads);
  threads.erase(rest.begin(), rest.end());
  if (threads.size() > kMaxThreads) too_much_ = true;
  if (too_much_ || lexer_.regexes().budget().exhausted()) {
    too_much_ = false;
    return kTooMuch;
  }
  std::uint64_t hash = hash_mix(4, row);
  for (const Thread& thread : threads) hash = hash_mix(hash, std::uint64_t{thread.row} << 32 | thread.lex);
  const auto same = [&](std::uint32_t id) {
    return states_[id].row == row && std::ranges::equal(this->threads(id), threads);
  };
  return states_by_threads_.find(hash, same, [&] {
    work_ += threads.size();
    State state{.begin = static_cast<std::uint32_t>(threads_.size()),
                .count = static_cast<std::uint32_t>(threads.size()),
                .row = row};
    threads_.insert(threads_.end(), threads.begin(), threads.end());
    std::uint32_t class_set = 0, count = 0;
    for (const Thread& thread : threads)
      class_set = lexer_.regexes().combined_class_set(class_set, lexer_.class_set(thread.lex));
    state.classes = lexer_.classes(class_set, count);
    state.next = static_cast<std::uint32_t>(next_.size());
    next_.resize(next_.size() + count, threads.empty() ? kDead : kUnknown);
    states_.push_back(state);
    return static_cast<std::uint32_t>(states_.size() - 1);
  });
}

StateId Parser::compute(StateId at, std::uint8_t byte) {
  std::vector<Thread> after;
  Kernel kernel;
  for (std::uint32_t i = 0; i < states_[at].count; ++i) {
    const Thread thread = threads_[states_[at].begin + i];
    ++work_;
    const LexState lex = lexer_.step(thread.lex, byte);
    if (lex == Lexer::kDead) continue;
    if (lexer_.extends(lex)) after.push_back({thread.row, lex});
    if (const std::uint32_t accepts = lexer_.accepts(lex); accepts != Lexer::kNoAccept)
      add_after(kernel, thread.row, accepts);
  }
  const RowId row = row_of(kernel);
  const StateId next = row == kNoRow && after.empty() && !too_much_ ? kDead : state_of(row, after);
  next_[states_[at].next + states_[at].classes[byte]] = next;
  return next;
}

StateId Parser::after(RowId row, std::uint32_t accepts) {
  const std::uint64_t key = std::uint64_t{row} << 32 | accepts;
  if (const auto found = after_.find(key); found != after_.end()) return found->second;
  Kernel kernel;
  add_after(kernel, row, accepts);
  std::vector<Thread> none;
  const StateId state = state_of(row_of(kernel), none);
  after_.emplace(key, state);
  return state;
}

StateId Parser::step_token(StateId at, TokenId token, bool free) {
  std::vector<Thread> after;
  Kernel kernel;
  if (const RowId row = states_[at].row; row != kNoRow) {
    const Group* group = find_group(rows_[row].tokens, rows_[row].token_count, static_cast<std::uint32_t>(token));
    if (group != nullptr) add_group(kernel, *group);
  }
  if (free) {
    for (std::uint32_t i = 0; i < states_[at].count; ++i) {
      const Thread thread = threads_[states_[at].begin + i];
      std::vector<std::uint32_t> anew;
      for (const Lexer::Part& part : lexer_.parts(thread.lex)) {
        if (prepared_.terminals[part.terminal].any_special) anew.push_back(part.terminal);
      }
      for (const std::uint32_t terminal : anew) {
        const Lexer::Part part{terminal, terminals_[terminal]};
        const LexState lex = lexer_.state({&part, 1});
        if (lexer_.extends(lex)) after.push_back({thread.row, lex});
        if (lexer_.accepts(lex) != Lexer::kNoAccept) add_after(kernel, thread.row, lexer_.accepts(lex));
      }
    }
  }
  const RowId row = row_of(kernel);
  return row == kNoRow && after.empty() && !too_much_ ? kDead : state_of(row, after);
}

std::span<const TokenId> Parser::tokens(StateId at) const {
  const RowId row = states_[at].row;
  if (row == kNoRow) return {};
  return {tokens_.data() + rows_[row].token_ids, rows_[row].token_count};
}

bool Parser::free_special(StateId at) const {
  return std::ranges::any_of(threads(at), [&](const Thread& thread) {
    return std::ranges::any_of(lexer_.parts(thread.lex),
                               [&](const Lexer::Part& part) { return prepared_.terminals[part.terminal].any_special; });
  });
}

int Parser::only_byte(StateId at) {
  if (states_[at].only_byte != -2) return states_[at].only_byte;
  int only = -1;
  for (int byte = 0; byte < 256; ++byte) {
    if (step(at, static_cast<std::uint8_t>(byte)) == kDead) continue;
    if (only >= 0) {
      only = -1;
      break;
    }
    only = byte;
  }
  states_[at].only_byte = only;
  return only;
}

StateId Parser::import(const Parser& from, StateId state) {
  if (state == kDead || state == kTooMuch) return state;
  // Rows refer only to older rows.
  std::vector<RowId> order;
  std::unordered_map<RowId, RowId> rows;
  const auto visit = [&](RowId row) {
    if (row != kNoRow && rows.emplace(row, kNoRow).second) order.push_back(row);
  };
  visit(from.states_[state].row);
  for (const Thread& thread : from.threads(state)) visit(thread.row);
  for (std::size_t i = 0; i < order.size(); ++i) {
    const Row& row = from.rows_[order[i]];
    for (std::uint32_t j = 0; j < row.item_count; ++j) visit(from.returns_[from.items_[row.items + j].returns].row);
  }
  std::ranges::sort(order);
  for (const RowId old : order) {
    const Row& row = from.rows_[old];
    std::vector<Item> kernel(from.items_.begin() + row.items, from.items_.begin() + row.items + row.item_count);
    for (Item& item : kernel) {
      if (item.returns == kReturnEnd) continue;
      const Return at = from.returns_[item.returns];
      const Row& target = rows_[rows[at.row]];
      item.returns = find_group(target.rules, target.rule_count, at.rule)->returns;
    }
    std::ranges::sort(kernel);
    rows[old] = make_row(kernel);
  }
  std::vector<Thread> threads;
  for (const Thread& thread : from.threads(state)) {
    std::vector<Lexer::Part> parts;
    for (const Lexer::Part& part : from.lexer_.parts(thread.lex))
      parts.push_back({part.terminal, lexer_.regexes().import(from.lexer_.regexes(), part.rest)});
    threads.push_back({rows[thread.row], lexer_.state(parts)});
  }
  const RowId row = from.states_[state].row;
  return state_of(row == kNoRow ? kNoRow : rows[row], threads);
}

std::size_t Parser::bytes() const {
  return lexer_.bytes() + rows_.capacity() * sizeof(Row) + items_.capacity() * sizeof(Item) +
         groups_.capacity() * sizeof(Group) + returns_.capacity() * sizeof(Return) +
         states_.capacity() * sizeof(State) + threads_.capacity() * sizeof(Thread) +
         next_.capacity() * sizeof(StateId) + rows_by_items_.bytes() + states_by_threads_.bytes() + after_.size() * 40;
}

}  // namespace quire::grammar
