#include "quire/grammar/constraint.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "quire/grammar/grammar_testing.h"

namespace quire::grammar {
namespace {

using Kind = ConstraintSpec::Kind;
using testing::HasSubstr;

bool admits(const ConstraintSpec& spec, std::string_view text) {
  auto grammar = build(spec);
  EXPECT_TRUE(grammar.has_value()) << grammar.error().message;
  return grammar && SlowParser::admits(*grammar, text);
}

std::string refusal(const ConstraintSpec& spec) {
  const auto grammar = build(spec);
  return grammar ? "accepted" : grammar.error().message;
}

TEST(ConstraintTest, EveryKindBecomesAGrammar) {
  EXPECT_TRUE(admits({.kind = Kind::Regex, .text = "yes|no"}, "no"));
  EXPECT_FALSE(admits({.kind = Kind::Regex, .text = "yes|no"}, "nope"));
  EXPECT_TRUE(admits({.kind = Kind::Choice, .choices = {"a", "b c"}}, "b c"));
  EXPECT_FALSE(admits({.kind = Kind::Choice, .choices = {"a", "b c"}}, "b"));
  EXPECT_TRUE(admits({.kind = Kind::Grammar, .text = "root ::= \"a\""}, "a"));
  EXPECT_TRUE(admits({.kind = Kind::Grammar, .text = "start: \"a\""}, "a"));
  EXPECT_TRUE(admits({.kind = Kind::Gbnf, .text = "root ::= \"a\""}, "a"));
  EXPECT_TRUE(admits({.kind = Kind::Lark, .text = "start: \"a\""}, "a"));
  EXPECT_TRUE(admits({.kind = Kind::JsonObject}, "{\"a\":[1]}"));
  EXPECT_FALSE(admits({.kind = Kind::JsonObject}, "[1]"));
  const auto schema = parse_schema(R"({"type":"integer"})");
  ASSERT_TRUE(schema.has_value());
  EXPECT_TRUE(admits({.kind = Kind::JsonSchema, .schema = *schema}, "12"));
  EXPECT_FALSE(admits({.kind = Kind::JsonSchema, .schema = *schema}, "\"12\""));
}

TEST(ConstraintTest, TheFirstDefinitionSaysWhichKindAGrammarIs) {
  EXPECT_EQ(grammar_kind("# a: b\nroot ::= \"x: y\""), Kind::Gbnf);
  EXPECT_EQ(grammar_kind("// x ::= y\n?start: a\na: \"::=\""), Kind::Lark);
  EXPECT_EQ(grammar_kind("%import common.WS\n"), Kind::Lark);
  EXPECT_EQ(grammar_kind("hello"), Kind::Grammar);
  EXPECT_THAT(refusal({.kind = Kind::Grammar, .text = "hello"}), HasSubstr("neither GBNF"));
}

TEST(ConstraintTest, ReasoningMayComeBefore) {
  ConstraintSpec spec{.kind = Kind::Regex, .text = "yes|no"};
  spec.reasoning = {.begin = "<think>", .end = "</think>"};
  EXPECT_TRUE(admits(spec, "yes"));
  EXPECT_TRUE(admits(spec, "<think>\nyes? no? <b></think>\n\nno"));
  EXPECT_TRUE(admits(spec, "<think></think>no"));
  EXPECT_FALSE(admits(spec, "<think>yes"));
  EXPECT_FALSE(admits(spec, "hm</think>yes"));
  EXPECT_FALSE(admits(spec, "<think>a</think>perhaps"));
  const std::string key = content_key(spec);
  spec.reasoning.opened = true;
  EXPECT_NE(content_key(spec), key);
  EXPECT_TRUE(admits(spec, "hm</think>\n\nyes"));
  EXPECT_FALSE(admits(spec, "yes"));
  EXPECT_FALSE(admits(spec, "a</think>b</think>yes"));
}

TEST(ConstraintTest, WhatCannotBeEnforcedIsNamed) {
  EXPECT_THAT(refusal({.kind = Kind::Regex, .text = "(a)\\1"}), HasSubstr("back-references"));
  EXPECT_THAT(refusal({.kind = Kind::Choice}), HasSubstr("nothing to choose"));
  EXPECT_THAT(refusal({.kind = Kind::Gbnf, .text = "root ::= x"}), HasSubstr("\"x\" is used and not defined"));
  const auto broken = parse_schema("{");
  ASSERT_FALSE(broken.has_value());
  EXPECT_THAT(broken.error().message, HasSubstr("not JSON"));
}

TEST(ConstraintTest, AConstraintThatIsTooLargeIsRefused) {
  ConstraintSpec spec{.kind = Kind::Regex, .text = ""};
  for (int i = 0; i < 100'000; ++i) spec.text += "[a-z]" + std::to_string(i);
  const auto grammar = build(spec, {.steps = 100'000, .bytes = 1 << 20});
  ASSERT_FALSE(grammar.has_value());
  EXPECT_THAT(grammar.error().message, HasSubstr("too large"));
}

TEST(ConstraintTest, KeysTellConstraintsApart) {
  const ConstraintSpec a{.kind = Kind::Choice, .choices = {"a", "bc"}}, b{.kind = Kind::Choice, .choices = {"ab", "c"}};
  EXPECT_EQ(content_key(a), content_key(a));
  EXPECT_EQ(content_key(a).size(), 64U);
  EXPECT_NE(content_key(a), content_key(b));
  ConstraintSpec schema{.kind = Kind::JsonSchema, .schema = {{"type", "object"}}}, compact = schema;
  compact.compact = true;
  EXPECT_NE(content_key(schema), content_key(compact));
  EXPECT_NE(content_key({.kind = Kind::Gbnf, .text = "x"}), content_key({.kind = Kind::Lark, .text = "x"}));
}

}  // namespace
}  // namespace quire::grammar
