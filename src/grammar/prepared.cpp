#include "quire/grammar/prepared.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace quire::grammar {

namespace {

constexpr std::uint32_t kNone = 0xFFFFFFFF;

class Preparer {
 public:
  Preparer(Grammar& grammar, const text::Tokenizer& tokenizer)
      : grammar_(grammar), tokenizer_(tokenizer), symbols_(grammar.symbols()) {}

  Result<Prepared> run() {
    if (auto checked = grammar_.check(); !checked) return fail(checked.error().message);
    resolve_tokens();
    productive_ = closure(true, [&](RegexId regex) { return !grammar_.regexes().matches_nothing(regex); });
    nullable_ = closure(false, [&](RegexId regex) { return grammar_.regexes().matches_empty(regex); });
    if (grammar_.budget().exhausted()) return fail("the grammar is too large");
    if (!productive_[grammar_.start()]) return fail("no text fits the constraint");
    number_.assign(symbols_.size(), kNone);
    out_.positions.push_back({.waits = Waits::End});
    out_.positions.push_back({});
    const Position start = waiting_for(grammar_.start());
    out_.positions[kStartPosition] = start;
    out_.start_nullable = nullable_[grammar_.start()];
    out_.starts_begin.push_back(0);
    for (std::size_t rule = 0; rule < rules_.size(); ++rule) {
      grammar_.budget().take(4);
      add_rule(symbols_[rules_[rule]]);
      out_.starts_begin.push_back(static_cast<std::uint32_t>(out_.starts.size()));
    }
    std::ranges::sort(out_.named_tokens);
    const auto rest = std::ranges::unique(out_.named_tokens);
    out_.named_tokens.erase(rest.begin(), rest.end());
    if (grammar_.budget().exhausted()) return fail("the grammar is too large");
    return std::move(out_);
  }

 private:
  bool is_terminal(SymbolId id) const {
    const Symbol& symbol = symbols_[id];
    return symbol.kind == Symbol::Kind::Terminal || (symbol.kind == Symbol::Kind::Token && token_[id] < 0);
  }

  void resolve_tokens() {
    token_.assign(symbols_.size(), -1);
    for (SymbolId id = 0; id < symbols_.size(); ++id) {
      if (symbols_[id].kind != Symbol::Kind::Token) continue;
      const auto found = tokenizer_.find(symbols_[id].text);
      if (found && tokenizer_.is_special(*found)) {
        token_[id] = *found;
        out_.named_tokens.push_back(*found);
      }
    }
  }

  // The least set of symbols with those terminals for which `test` holds, special tokens if `tokens`, and every rule of
  // which all parts of an alternative are in it. Every part is looked at once.
  template <typename F>
  std::vector<bool> closure(bool tokens, F test) {
    struct Alternative {
      SymbolId of;
      std::size_t missing;
    };
    std::vector<bool> holds(symbols_.size(), false);
    std::vector<Alternative> alternatives;
    std::vector<std::vector<std::size_t>> users(symbols_.size());  // alternatives
    std::vector<SymbolId> queue;
    const auto found = [&](SymbolId id) {
      if (!holds[id]) queue.push_back(id);
      holds[id] = true;
    };
    for (SymbolId id = 0; id < symbols_.size() && grammar_.budget().take(1); ++id) {
      const Symbol& symbol = symbols_[id];
      if (is_terminal(id)) {
        if (test(symbol.regex)) found(id);
      } else if (symbol.kind == Symbol::Kind::Token) {
        if (tokens) found(id);
      } else if (symbol.kind == Symbol::Kind::Repeat) {
        if (symbol.least == 0) {
          found(id);
          continue;
        }
        users[symbol.of].push_back(alternatives.size());
        const bool separated = symbol.least > 1 && symbol.separator;
        if (separated) users[*symbol.separator].push_back(alternatives.size());
        alternatives.push_back({.of = id, .missing = separated ? std::size_t{2} : std::size_t{1}});
      }
      for (const auto& parts : symbol.alternatives) {
        grammar_.budget().take(1 + parts.size());
        if (parts.empty()) found(id);
        for (const SymbolId part : parts) users[part].push_back(alternatives.size());
        alternatives.push_back({.of = id, .missing = parts.size()});
      }
    }
    while (!queue.empty() && grammar_.budget().take(1)) {
      const SymbolId id = queue.back();
      queue.pop_back();
      for (const std::size_t user : users[id]) {
        if (--alternatives[user].missing == 0) found(alternatives[user].of);
      }
    }
    return holds;
  }

  Position waiting_for(SymbolId id) {
    Position position;
    position.skippable = nullable_[id];
    if (is_terminal(id)) {
      const Symbol& symbol = symbols_[id];
      position.waits = Waits::Terminal;
      const std::uint64_t key = std::uint64_t{symbol.regex} << 1 | (symbol.any_special ? 1U : 0U);
      const auto [found, added] = terminal_numbers_.emplace(key, static_cast<std::uint32_t>(out_.terminals.size()));
      if (added) out_.terminals.push_back({symbol.regex, symbol.any_special});
      position.symbol = found->second;
    } else if (symbols_[id].kind == Symbol::Kind::Token) {
      position.waits = Waits::Token;
      position.symbol = static_cast<std::uint32_t>(token_[id]);
    } else {
      position.waits = Waits::Rule;
      if (number_[id] == kNone) {
        number_[id] = static_cast<std::uint32_t>(rules_.size());
        rules_.push_back(id);
      }
      position.symbol = number_[id];
    }
    return position;
  }

  std::uint32_t append(const Position& position) {
    grammar_.budget().take(2, sizeof(Position));
    out_.positions.push_back(position);
    return static_cast<std::uint32_t>(out_.positions.size() - 1);
  }

  void add_rule(const Symbol& symbol) {
    if (symbol.kind == Symbol::Kind::Repeat) {
      add_repeat(symbol);
      return;
    }
    for (const auto& parts : symbol.alternatives) {
      if (!std::ranges::all_of(parts, [&](SymbolId part) { return productive_[part]; })) continue;
      bool at_start = true;
      for (std::size_t i = 0; i < parts.size(); ++i) {
        const std::uint32_t position = append(waiting_for(parts[i]));
        if (i + 1 < parts.size()) out_.positions[position].after = position + 1;
        if (at_start) out_.starts.push_back({position, 0, 0});
        at_start = at_start && nullable_[parts[i]];
      }
    }
  }

  void add_repeat(const Symbol& symbol) {
    if (!productive_[symbol.of] || symbol.most == 0) return;
    const bool separated = symbol.separator.has_value();
    const bool of_nullable = nullable_[symbol.of], separator_nullable = separated && nullable_[*symbol.separator];
    std::uint32_t least = symbol.least, most = symbol.most;
    if (separated && !productive_[*symbol.separator]) most = 1;
    // Empty elements fill up what is required.
    if (of_nullable && (!separated || separator_nullable)) least = 0;
    Position element = waiting_for(symbol.of);
    element.repeat_element = true;
    // Without separators a skipped element only spends the counter.
    element.skippable = of_nullable && separated;
    const std::uint32_t at = append(element);
    out_.positions[at].after = at;
    out_.starts.push_back({at, std::max(least, 1U), most});
    if (!separated || most == 1) return;
    Position separator = waiting_for(*symbol.separator);
    separator.repeat_separator = true;
    separator.after = at;
    const std::uint32_t separator_at = append(separator);
    out_.positions[at].after = separator_at;
    if (of_nullable && most > 1) {
      const std::uint32_t rest = most == kUnbounded ? kUnbounded : most - 1;
      out_.starts.push_back({separator_at, std::max(least, 2U) - 1, rest});
    }
    // A skipped separator right at the start would need a skipped element before it: that only spends the counter.
  }

  Grammar& grammar_;
  const text::Tokenizer& tokenizer_;
  std::span<const Symbol> symbols_;
  std::vector<bool> productive_, nullable_;
  std::vector<TokenId> token_;
  std::vector<std::uint32_t> number_;  // rule of a symbol
  std::vector<SymbolId> rules_;
  std::unordered_map<std::uint64_t, std::uint32_t> terminal_numbers_;
  Prepared out_;
};

}  // namespace

Result<Prepared> prepare(Grammar& grammar, const text::Tokenizer& tokenizer) {
  return Preparer(grammar, tokenizer).run();
}

}  // namespace quire::grammar
