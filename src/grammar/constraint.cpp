#include "quire/grammar/constraint.h"

#include <algorithm>
#include <utility>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <fmt/format.h>

#include "quire/base/sha256.h"
#include "quire/base/utf8.h"
#include "quire/grammar/gbnf.h"
#include "quire/grammar/json_schema.h"
#include "quire/grammar/regex_syntax.h"

namespace quire::grammar {
namespace {

using Kind = ConstraintSpec::Kind;

Result<SymbolId> add_choices(Grammar& grammar, const std::vector<std::string>& choices) {
  if (choices.empty()) return fail("there is nothing to choose from");
  std::vector<RegexId> texts;
  for (const std::string& choice : choices) {
    if (utf8_valid_prefix(choice) != choice.size()) return fail("a choice is not UTF-8");
    grammar.budget().take(choice.size());
    texts.push_back(grammar.regexes().text(choice));
  }
  return grammar.terminal(grammar.regexes().any_of(texts));
}

Result<SymbolId> add(Grammar& grammar, const ConstraintSpec& spec) {
  switch (spec.kind) {
    case Kind::JsonSchema: return add_json_schema(grammar, spec.schema, {.compact = spec.compact});
    case Kind::JsonObject: return add_any_json_object(grammar, {.compact = spec.compact});
    case Kind::Regex: {
      const auto regex = parse_regex(grammar.regexes(), spec.text);
      if (!regex) return std::unexpected(regex.error());
      return grammar.terminal(*regex);
    }
    case Kind::Choice: return add_choices(grammar, spec.choices);
    case Kind::Gbnf: return add_gbnf(grammar, spec.text);
    case Kind::Lark: return add_lark(grammar, spec.text);
    case Kind::Grammar: {
      const Kind kind = grammar_kind(spec.text);
      if (kind == Kind::Gbnf) return add_gbnf(grammar, spec.text);
      if (kind == Kind::Lark) return add_lark(grammar, spec.text);
      return fail("the grammar is neither GBNF (\"root ::= ...\") nor Lark (\"start: ...\")");
    }
  }
  return fail("an unknown kind of constraint");
}

// Reasoning before the constraint, where the model wants it or the prompt has begun it; then a few line breaks.
SymbolId after_reasoning(Grammar& grammar, const ConstraintSpec::Reasoning& reasoning, SymbolId body) {
  const std::string marks[] = {reasoning.end};
  const RegexId blank = grammar.regexes().bytes(ByteSet::range(' ', ' ') | ByteSet::range('\n', '\n'));
  const SymbolId rest = grammar.sequence({grammar.free_text(marks), grammar.token(reasoning.end),
                                          grammar.terminal(grammar.regexes().repeat(blank, 0, 4))});
  if (reasoning.opened) return grammar.sequence({rest, body});
  return grammar.sequence({grammar.optional(grammar.sequence({grammar.token(reasoning.begin), rest})), body});
}

}  // namespace

Result<SymbolId> add_constraint(Grammar& grammar, const ConstraintSpec& spec) {
  auto start = add(grammar, spec);
  if (grammar.budget().exhausted()) return fail("the constraint is too large");
  return start;
}

Result<Grammar> build(const ConstraintSpec& spec, const Limits& limits) {
  Grammar grammar(limits);
  const auto start = add_constraint(grammar, spec);
  if (!start) return std::unexpected(start.error());
  grammar.set_start(spec.reasoning.end.empty() ? *start : after_reasoning(grammar, spec.reasoning, *start));
  if (auto usable = grammar.check(); !usable) return std::unexpected(usable.error());
  return grammar;
}

std::string content_key(const ConstraintSpec& spec) {
  Sha256 hash;
  // Every part has its length before it, so that no two lists of parts read alike.
  const auto part = [&](std::string_view text) { hash.add(fmt::format("{}:", text.size())).add(text); };
  part(fmt::format("{} {}", static_cast<int>(spec.kind), spec.compact));
  if (spec.kind == Kind::JsonSchema) part(boost::json::serialize(spec.schema));
  part(spec.text);
  for (const std::string& choice : spec.choices) part(choice);
  part(spec.reasoning.begin);
  part(spec.reasoning.end);
  part(spec.reasoning.opened ? "opened" : "");
  return to_hex(hash.finish());
}

Kind grammar_kind(std::string_view text) {
  // The first definition decides. Texts and comments before it may have colons, so only names at the beginnings of
  // lines are looked at.
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const std::size_t begin = line.find_first_not_of(" \t?!");
    if (begin == std::string_view::npos) continue;
    line.remove_prefix(begin);
    if (line.starts_with('%')) return Kind::Lark;
    const auto named = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
    };
    const auto end = std::ranges::find_if_not(line, named);
    if (end == line.begin()) continue;
    line.remove_prefix(static_cast<std::size_t>(end - line.begin()));
    line.remove_prefix(std::min(line.size(), line.find_first_not_of(" \t")));
    if (line.starts_with("::=")) return Kind::Gbnf;
    if (line.starts_with(":") || line.starts_with(".") || line.starts_with("[") || line.starts_with("{")) {
      return Kind::Lark;
    }
  }
  return Kind::Grammar;
}

Result<boost::json::value> parse_schema(std::string_view text) {
  boost::system::error_code code;
  auto value = boost::json::parse(text, code, {}, {.max_depth = 256});
  if (code) return fail(fmt::format("not JSON: {}", code.message()));
  return value;
}

}  // namespace quire::grammar
