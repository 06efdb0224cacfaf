// Whether a grammar admits a text, by filling a table until nothing changes: slow, and simple enough to be the truth.
#pragma once

#include <algorithm>
#include <set>
#include <string_view>
#include <vector>

#include "quire/grammar/grammar.h"

namespace quire::grammar {

class SlowParser {
 public:
  // Special tokens count as their spelling.
  static bool admits(Grammar& grammar, std::string_view text) { return SlowParser(grammar, text).run(); }

 private:
  using Ends = std::set<std::size_t>;

  SlowParser(Grammar& grammar, std::string_view text)
      : grammar_(grammar), text_(text), table_(grammar.symbols().size(), std::vector<Ends>(text.size() + 1)) {}

  bool run() {
    const auto symbols = grammar_.symbols();
    for (std::size_t id = 0; id < symbols.size(); ++id) {
      if (symbols[id].kind != Symbol::Kind::Terminal && symbols[id].kind != Symbol::Kind::Token) continue;
      for (std::size_t from = 0; from <= text_.size(); ++from) scan(id, from);
    }
    for (changed_ = true; changed_;) {
      changed_ = false;
      for (std::size_t id = 0; id < symbols.size(); ++id) {
        for (std::size_t from = 0; from <= text_.size(); ++from) {
          if (symbols[id].kind == Symbol::Kind::Rule) {
            for (const auto& alternative : symbols[id].alternatives) {
              Ends ends = {from};
              for (const SymbolId part : alternative) ends = after(ends, part);
              note(id, from, ends);
            }
          } else if (symbols[id].kind == Symbol::Kind::Repeat) {
            repeat(id, from);
          }
        }
      }
    }
    return table_[grammar_.start()][0].contains(text_.size());
  }

  void scan(std::size_t id, std::size_t from) {
    RegexSet& regexes = grammar_.regexes();
    RegexId regex = grammar_.symbols()[id].regex;
    if (grammar_.symbols()[id].kind == Symbol::Kind::Token) regex = regexes.text(grammar_.symbols()[id].text);
    for (std::size_t at = from;; ++at) {
      if (regexes.matches_empty(regex)) table_[id][from].insert(at);
      if (at == text_.size()) return;
      regex = regexes.derivative(regex, static_cast<std::uint8_t>(text_[at]));
    }
  }

  Ends after(const Ends& starts, SymbolId symbol) const {
    Ends out;
    for (const std::size_t at : starts) out.insert(table_[symbol][at].begin(), table_[symbol][at].end());
    return out;
  }

  void repeat(std::size_t id, std::size_t from) {
    const Symbol& symbol = grammar_.symbols()[id];
    // After as many times as the text has characters, one more that is not empty cannot come; those that are may come
    // as often as needed.
    Ends ends = {from};
    if (symbol.least == 0) note(id, from, ends);
    const std::uint32_t times = static_cast<std::uint32_t>(text_.size()) + 2;
    for (std::uint32_t count = 1; count <= symbol.most && count <= std::max(times, symbol.least); ++count) {
      if (count > 1 && symbol.separator) ends = after(ends, *symbol.separator);
      ends = after(ends, symbol.of);
      if (count >= symbol.least) note(id, from, ends);
      if (ends.empty()) break;
    }
  }

  void note(std::size_t id, std::size_t from, const Ends& ends) {
    for (const std::size_t end : ends) changed_ = table_[id][from].insert(end).second || changed_;
  }

  Grammar& grammar_;
  std::string_view text_;
  std::vector<std::vector<Ends>> table_;
  bool changed_ = false;
};

}  // namespace quire::grammar
