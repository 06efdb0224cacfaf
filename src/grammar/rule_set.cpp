#include "quire/grammar/rule_set.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace quire::grammar {
namespace {

using Expression = RuleExpression;
using Kind = RuleExpression::Kind;

void collect_rules(const Expression& expression, std::vector<std::size_t>& rules) {
  if (expression.kind == Kind::Rule) rules.push_back(expression.rule);
  for (const auto& part : expression.parts) collect_rules(part, rules);
}

bool uses(const Expression& expression, std::size_t rule) {
  if (expression.kind == Kind::Rule && expression.rule == rule) return true;
  return std::ranges::any_of(expression.parts, [&](const auto& part) { return uses(part, rule); });
}

}  // namespace

Expression Expression::of_regex(RegexId regex) {
  Expression out;
  out.kind = Kind::Regex;
  out.regex = regex;
  return out;
}
Expression Expression::of_symbol(SymbolId symbol) {
  Expression out;
  out.kind = Kind::Symbol;
  out.symbol = symbol;
  return out;
}
Expression Expression::of_rule(std::size_t rule) {
  Expression out;
  out.kind = Kind::Rule;
  out.rule = rule;
  return out;
}
Expression Expression::sequence(std::vector<Expression> parts) {
  if (parts.size() == 1) return std::move(parts[0]);
  Expression out;
  out.kind = Kind::Sequence;
  out.parts = std::move(parts);
  return out;
}
Expression Expression::choice(std::vector<Expression> parts) {
  if (parts.size() == 1) return std::move(parts[0]);
  Expression out;
  out.kind = Kind::Choice;
  out.parts = std::move(parts);
  return out;
}
Expression Expression::repeat(Expression of, std::uint32_t least, std::uint32_t most) {
  Expression out;
  out.kind = Kind::Repeat;
  out.parts.push_back(std::move(of));
  out.least = least;
  out.most = most;
  return out;
}

std::size_t RuleSet::find(std::string_view name, std::size_t line) {
  const auto found = names_.find(name);
  if (found != names_.end()) return found->second;
  const std::size_t rule = rules_.size();
  rules_.push_back({.name = std::string(name), .line = line});
  names_.emplace(std::string(name), rule);
  return rule;
}

std::optional<std::size_t> RuleSet::known(std::string_view name) const {
  const auto found = names_.find(name);
  if (found == names_.end() || !rules_[found->second].expression) return std::nullopt;
  return found->second;
}

bool RuleSet::define(std::size_t rule, Expression expression) {
  if (rules_[rule].expression) return false;
  rules_[rule].expression = std::move(expression);
  return true;
}

// Decides for every rule that `start` uses whether it is regular, those that are used before those that use them. Rules
// that use each other (a strongly connected component, by Tarjan's algorithm) are not. Without recursion: a grammar may
// have a long chain of rules.
Result<void> RuleSet::decide(std::size_t start) {
  struct Visit {
    std::size_t rule;
    std::vector<std::size_t> used;
    std::size_t next = 0;
  };
  constexpr std::size_t kNew = static_cast<std::size_t>(-1);
  std::vector<std::size_t> order(rules_.size(), kNew), low(rules_.size(), 0);
  std::vector<bool> on_stack(rules_.size(), false);
  std::vector<std::size_t> stack;
  std::vector<Visit> visits;
  std::size_t count = 0;
  const auto enter = [&](std::size_t rule) -> Result<void> {
    if (!rules_[rule].expression) {
      return fail(
          fmt::format("line {}: the rule \"{}\" is used and not defined", rules_[rule].line, rules_[rule].name));
    }
    order[rule] = low[rule] = count++;
    stack.push_back(rule);
    on_stack[rule] = true;
    visits.push_back({rule, {}, 0});
    collect_rules(*rules_[rule].expression, visits.back().used);
    return {};
  };
  if (auto entered = enter(start); !entered) return entered;
  while (!visits.empty()) {
    Visit& visit = visits.back();
    const std::size_t rule = visit.rule;
    if (visit.next < visit.used.size()) {
      const std::size_t used = visit.used[visit.next++];
      if (order[used] == kNew) {
        if (auto entered = enter(used); !entered) return entered;
      } else if (on_stack[used]) {
        low[rule] = std::min(low[rule], order[used]);
      }
      continue;
    }
    const bool recursive = std::ranges::find(visit.used, rule) != visit.used.end();
    visits.pop_back();
    if (!visits.empty()) low[visits.back().rule] = std::min(low[visits.back().rule], low[rule]);
    if (low[rule] != order[rule]) continue;
    const bool alone = stack.back() == rule;
    while (true) {
      const std::size_t member = stack.back();
      stack.pop_back();
      on_stack[member] = false;
      if (!rules_[member].decided && alone) decide_one(member, recursive);
      rules_[member].decided = true;
      if (member == rule) break;
    }
  }
  return {};
}

void RuleSet::decide_one(std::size_t rule, bool recursive) {
  if (!recursive) {
    rules_[rule].regex = regular(*rules_[rule].expression);
    return;
  }
  rules_[rule].regex = regular_at_end(rule, true);
  if (!rules_[rule].regex) rules_[rule].regex = regular_at_end(rule, false);
}

std::optional<RegexId> RuleSet::regular(const Expression& expression) const {
  RegexSet& regexes = grammar_.regexes();
  std::vector<RegexId> parts;
  for (const auto& part : expression.parts) {
    const auto regex = regular(part);
    if (!regex) return std::nullopt;
    parts.push_back(*regex);
  }
  switch (expression.kind) {
    case Kind::Regex: return expression.regex;
    case Kind::Symbol: return std::nullopt;
    case Kind::Rule: return rules_[expression.rule].regex;
    case Kind::Sequence: return regexes.concat(parts);
    case Kind::Choice: return regexes.any_of(parts);
    case Kind::Both: return regexes.all_of(parts);
    case Kind::Not: return regexes.complement(parts[0]);
    case Kind::Repeat: return regexes.repeat(parts[0], expression.least, expression.most);
  }
  return std::nullopt;
}

// x ::= step x | last   (or the mirror image) is step* last.
struct RuleSet::Split {
  RegexId step = RegexSet::kNothing, last = RegexSet::kNothing;
};

std::optional<RuleSet::Split> RuleSet::split(const Expression& expression, std::size_t rule, bool right) const {
  RegexSet& regexes = grammar_.regexes();
  if (!uses(expression, rule)) {
    const auto regex = regular(expression);
    if (!regex) return std::nullopt;
    return Split{RegexSet::kNothing, *regex};
  }
  switch (expression.kind) {
    case Kind::Rule: return Split{RegexSet::kEmpty, RegexSet::kNothing};
    case Kind::Sequence: {
      const std::size_t end = right ? expression.parts.size() - 1 : 0;
      std::vector<RegexId> others;
      for (std::size_t i = 0; i < expression.parts.size(); ++i) {
        if (i == end) continue;
        const auto other = uses(expression.parts[i], rule) ? std::nullopt : regular(expression.parts[i]);
        if (!other) return std::nullopt;
        others.push_back(*other);
      }
      const auto at_end = split(expression.parts[end], rule, right);
      if (!at_end) return std::nullopt;
      const RegexId rest = regexes.concat(others);
      if (right) return Split{regexes.concat({rest, at_end->step}), regexes.concat({rest, at_end->last})};
      return Split{regexes.concat({at_end->step, rest}), regexes.concat({at_end->last, rest})};
    }
    case Kind::Choice: {
      std::vector<RegexId> steps, lasts;
      for (const auto& part : expression.parts) {
        const auto one = split(part, rule, right);
        if (!one) return std::nullopt;
        steps.push_back(one->step);
        lasts.push_back(one->last);
      }
      return Split{regexes.any_of(steps), regexes.any_of(lasts)};
    }
    case Kind::Repeat: {
      if (expression.least > 1 || expression.most != 1) return std::nullopt;
      const auto once = split(expression.parts[0], rule, right);
      if (!once || expression.least == 1) return once;
      return Split{once->step, regexes.optional(once->last)};
    }
    default: return std::nullopt;
  }
}

std::optional<RegexId> RuleSet::regular_at_end(std::size_t rule, bool right) {
  const auto parts = split(*rules_[rule].expression, rule, right);
  if (!parts) return std::nullopt;
  RegexSet& regexes = grammar_.regexes();
  const RegexId steps = regexes.repeat(parts->step, 0);
  return right ? regexes.concat({steps, parts->last}) : regexes.concat({parts->last, steps});
}

Result<RegexId> RuleSet::regex(std::size_t start) {
  if (auto decided = decide(start); !decided) return std::unexpected(decided.error());
  if (!rules_[start].regex) {
    return fail(fmt::format("line {}: \"{}\" is not regular: it uses itself or a special token", rules_[start].line,
                            rules_[start].name));
  }
  return *rules_[start].regex;
}

Result<SymbolId> RuleSet::symbol(std::size_t start) {
  if (auto decided = decide(start); !decided) return std::unexpected(decided.error());
  auto symbol = emit(Expression::of_rule(start));
  if (!symbol) return symbol;
  while (!open_.empty()) {
    const std::size_t rule = open_.back();
    open_.pop_back();
    const Expression& expression = *rules_[rule].expression;
    std::vector<Expression> only;
    const bool is_choice = expression.kind == Kind::Choice;
    if (!is_choice) only.push_back(expression);
    // Alternatives that are regular are one alternative.
    std::vector<RegexId> regulars;
    for (const auto& alternative : is_choice ? expression.parts : only) {
      if (const auto regex = regular(alternative)) {
        regulars.push_back(*regex);
        continue;
      }
      auto parts = emit_sequence(alternative);
      if (!parts) return std::unexpected(parts.error());
      grammar_.add(*rules_[rule].symbol, *std::move(parts));
    }
    if (!regulars.empty()) {
      grammar_.add(*rules_[rule].symbol, {grammar_.terminal(grammar_.regexes().any_of(regulars))});
    }
  }
  return symbol;
}

Result<SymbolId> RuleSet::emit(const Expression& expression) {
  if (const auto regex = regular(expression)) return grammar_.terminal(*regex);
  switch (expression.kind) {
    case Kind::Symbol: return expression.symbol;
    case Kind::Rule: {
      Rule& rule = rules_[expression.rule];
      if (!rule.symbol) {
        rule.symbol = grammar_.rule();
        open_.push_back(expression.rule);
      }
      return *rule.symbol;
    }
    case Kind::Sequence: {
      auto parts = emit_sequence(expression);
      if (!parts) return std::unexpected(parts.error());
      return grammar_.sequence(*std::move(parts));
    }
    case Kind::Choice: {
      std::vector<SymbolId> alternatives;
      std::vector<RegexId> regulars;
      for (const auto& part : expression.parts) {
        if (const auto regex = regular(part)) {
          regulars.push_back(*regex);
          continue;
        }
        auto symbol = emit(part);
        if (!symbol) return symbol;
        alternatives.push_back(*symbol);
      }
      if (!regulars.empty()) alternatives.push_back(grammar_.terminal(grammar_.regexes().any_of(regulars)));
      return grammar_.choice(std::move(alternatives));
    }
    case Kind::Repeat: {
      auto of = emit(expression.parts[0]);
      if (!of) return of;
      return grammar_.repeat(*of, expression.least, expression.most);
    }
    case Kind::Both:
    case Kind::Not: return fail("\"&\" and \"~\" need operands that are regular");
    case Kind::Regex: break;
  }
  return grammar_.empty();
}

Result<std::vector<SymbolId>> RuleSet::emit_sequence(const Expression& expression) {
  std::vector<SymbolId> symbols;
  if (expression.kind != Kind::Sequence) {
    auto symbol = emit(expression);
    if (!symbol) return std::unexpected(symbol.error());
    symbols.push_back(*symbol);
    return symbols;
  }
  std::vector<RegexId> run;
  const auto end_run = [&] {
    if (!run.empty()) symbols.push_back(grammar_.terminal(grammar_.regexes().concat(run)));
    run.clear();
  };
  for (const auto& part : expression.parts) {
    if (const auto regex = regular(part)) {
      run.push_back(*regex);
      continue;
    }
    end_run();
    auto symbol = emit(part);
    if (!symbol) return std::unexpected(symbol.error());
    symbols.push_back(*symbol);
  }
  end_run();
  return symbols;
}

}  // namespace quire::grammar
