#include "quire/grammar/grammar.h"

#include <utility>

namespace quire::grammar {

Grammar::Grammar(const Limits& limits) : budget_(std::make_unique<Budget>(limits)), regexes_(*budget_) {}

SymbolId Grammar::append(Symbol symbol) {
  // An exhausted grammar is not used; its symbols only need to be valid.
  if (!budget_->take(10, sizeof(Symbol)) && !symbols_.empty()) return 0;
  symbols_.push_back(std::move(symbol));
  return static_cast<SymbolId>(symbols_.size() - 1);
}

SymbolId Grammar::terminal(RegexId regex) {
  if (const auto found = terminals_.find(regex); found != terminals_.end()) return found->second;
  const SymbolId id = append({.kind = Symbol::Kind::Terminal, .regex = regex});
  terminals_.emplace(regex, id);
  return id;
}

SymbolId Grammar::text(std::string_view text) { return terminal(regexes_.text(text)); }

SymbolId Grammar::token(std::string_view spelling) {
  budget_->take(spelling.size(), spelling.size());
  const RegexId regex = regexes_.text(spelling);
  return append({.kind = Symbol::Kind::Token, .regex = regex, .text = std::string(spelling)});
}

SymbolId Grammar::free_text(std::span<const std::string> marks, std::span<const std::string> not_first) {
  const auto one_of = [this](std::span<const std::string> all) {
    std::vector<RegexId> texts;
    for (const std::string& each : all) texts.push_back(regexes_.text(each));
    return regexes_.any_of(texts);
  };
  const RegexId any = RegexSet::kEverything;
  ByteSet blanks;
  for (const char c : {' ', '\t', '\n', '\r'}) blanks.add(static_cast<std::uint8_t>(c));
  const RegexId spaces = regexes_.repeat(regexes_.bytes(blanks), 0);
  const RegexId excluded[] = {regexes_.concat({any, one_of(marks), any}),
                              regexes_.concat({spaces, one_of(not_first), any})};
  return append(
      {.kind = Symbol::Kind::Terminal, .regex = regexes_.complement(regexes_.any_of(excluded)), .any_special = true});
}

SymbolId Grammar::rule() { return append({.kind = Symbol::Kind::Rule}); }

void Grammar::add(SymbolId rule, std::vector<SymbolId> alternative) {
  if (!budget_->take(4 + alternative.size(), sizeof(std::vector<SymbolId>) + alternative.size() * sizeof(SymbolId)))
    return;
  symbols_[rule].alternatives.push_back(std::move(alternative));
}

SymbolId Grammar::sequence(std::vector<SymbolId> parts) {
  if (parts.size() == 1) return parts.front();
  const SymbolId id = rule();
  add(id, std::move(parts));
  return id;
}

SymbolId Grammar::choice(std::vector<SymbolId> alternatives) {
  if (alternatives.size() == 1) return alternatives.front();
  const SymbolId id = rule();
  for (const SymbolId alternative : alternatives) add(id, {alternative});
  return id;
}

SymbolId Grammar::repeat(SymbolId of, std::uint32_t least, std::uint32_t most, std::optional<SymbolId> separator) {
  if (least > most) return rule();  // matches nothing
  return append({.kind = Symbol::Kind::Repeat, .of = of, .separator = separator, .least = least, .most = most});
}

Result<void> Grammar::check() const {
  if (budget_->exhausted()) return fail("the grammar is too large");
  if (start_ >= symbols_.size()) return fail("the grammar has no start");
  return {};
}

}  // namespace quire::grammar
