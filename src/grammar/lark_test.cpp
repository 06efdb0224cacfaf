#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "quire/grammar/gbnf.h"
#include "quire/grammar/grammar_testing.h"

namespace quire::grammar {
namespace {

using testing::HasSubstr;

class LarkTest : public testing::Test {
 protected:
  void use(std::string_view text) {
    grammar_ = Grammar();
    const auto start = add_lark(grammar_, text);
    ASSERT_TRUE(start.has_value()) << start.error().message;
    grammar_.set_start(*start);
    ASSERT_TRUE(grammar_.check().has_value());
  }
  bool admits(std::string_view text) { return SlowParser::admits(grammar_, text); }
  static std::string refusal(std::string_view text) {
    Grammar grammar;
    const auto start = add_lark(grammar, text);
    return start ? "accepted" : start.error().message;
  }

  Grammar grammar_;
};

TEST_F(LarkTest, RulesAndTerminalsMatchWhatTheySay) {
  use("start: greeting \" \" NAME // a comment\n"
      "greeting: \"hello\"i | \"hi\" -> short\n"
      "NAME: /[A-Z]/ LETTER+ | \"x\"..\"z\"\n"
      "LETTER: /[a-z]/i\n");
  EXPECT_TRUE(admits("HeLLo Bob"));
  EXPECT_TRUE(admits("hi BOB"));
  EXPECT_TRUE(admits("hi y"));
  EXPECT_FALSE(admits("HI y"));
  EXPECT_FALSE(admits("hi a"));
  EXPECT_EQ(grammar_.symbols()[grammar_.start()].kind, Symbol::Kind::Terminal) << "a regular grammar is one expression";
}

TEST_F(LarkTest, RepetitionsAndOptionalParts) {
  use("start: \"a\"? \"b\"* \"c\"+ \"d\" ~ 2 \"e\" ~ 1..2 [\"f\" \"g\"] (\"h\" | \"i\"){2,3}");
  EXPECT_TRUE(admits("cddehi"));
  EXPECT_TRUE(admits("abbccddeefgihh"));
  EXPECT_FALSE(admits("cdehi"));
  EXPECT_FALSE(admits("cddeeehi"));
  EXPECT_FALSE(admits("cddefhi"));
  EXPECT_FALSE(admits("cddeh"));
}

TEST_F(LarkTest, RegularExpressionsHaveFlags) {
  use("start: A B\nA: /a.b\\/[\\/\"]/s\nB: /x/i");
  EXPECT_TRUE(admits("a\nb//X"));
  EXPECT_FALSE(admits("a\nb/xx"));
  EXPECT_THAT(refusal("start: /a/m"), HasSubstr("the flag \"m\""));
  EXPECT_THAT(refusal("start: /(/"), HasSubstr("line 1: regular expression"));
}

TEST_F(LarkTest, WhatIsIgnoredMayStandBetweenTerminalsOnly) {
  use("start: item (\",\" item)*\nitem: WORD \"=\" NUMBER\n%import common (WORD, WS)\n%import common.SIGNED_NUMBER -> "
      "NUMBER\n"
      "%ignore WS\n%ignore /#[^\\n]*/\n");
  EXPECT_TRUE(admits("a=1"));
  EXPECT_TRUE(admits(" a = 1 , # the second\n bc = -2.5e3 "));
  EXPECT_FALSE(admits("a b=1"));
  EXPECT_FALSE(admits("a=1 2"));
}

TEST_F(LarkTest, RecursiveRulesAreExact) {
  use(R"lark(?start: sum
?sum: product | sum "+" product -> add | sum "-" product -> sub
?product.2: atom | product "*" atom
?atom: NUMBER | "-" atom | "(" sum ")"
%import common.NUMBER
%import common.WS_INLINE
%ignore WS_INLINE
)lark");
  EXPECT_TRUE(admits("1 + 2 * (3 - -4)"));
  EXPECT_FALSE(admits("1 + * 2"));
  EXPECT_FALSE(admits("(1"));
}

TEST_F(LarkTest, TheCommonTerminalsAreThoseOfLark) {
  const auto is = [&](const std::string& name, std::string_view text) {
    use("start: " + name + "\n%import common." + name);
    return admits(text);
  };
  EXPECT_TRUE(is("ESCAPED_STRING", "\"a\\\"b\""));
  EXPECT_FALSE(is("ESCAPED_STRING", "\"a\"b\""));
  EXPECT_TRUE(is("CNAME", "_a1"));
  EXPECT_FALSE(is("CNAME", "1a"));
  EXPECT_TRUE(is("FLOAT", "1.5e-3"));
  EXPECT_FALSE(is("FLOAT", "15"));
  EXPECT_TRUE(is("FLOAT", "1e5"));
  EXPECT_TRUE(is("NUMBER", ".5"));
  EXPECT_TRUE(is("SIGNED_INT", "-5"));
  EXPECT_FALSE(is("INT", "-5"));
  EXPECT_TRUE(is("C_COMMENT", "/* a * b **/"));
  EXPECT_FALSE(is("C_COMMENT", "/* a */ b */"));
  EXPECT_TRUE(is("NEWLINE", "\r\n\n"));
  EXPECT_TRUE(is("HEXDIGIT", "F"));
}

TEST_F(LarkTest, TerminalsMayBeIntersectedAndNegated) {
  use("start: A & ~B\nA: /[a-z]+/\nB: /.*(if|else).*/");
  EXPECT_TRUE(admits("abc"));
  EXPECT_FALSE(admits("elsewhere"));
  EXPECT_FALSE(admits("ABC"));
}

TEST_F(LarkTest, SpecialTokensStandInAngleBrackets) {
  use("start: <|tool|> /[a-z]+/ <|end|>");
  EXPECT_TRUE(admits("<|tool|>abc<|end|>"));
  EXPECT_FALSE(admits("<|tool|>abc"));
  EXPECT_THAT(refusal("start: A\nA: <|x|>"), HasSubstr("inside of a terminal"));
}

TEST_F(LarkTest, ASchemaMayStandInARule) {
  use("start: call | /[^{].*/\ncall: %json {\"type\": \"object\",\n \"properties\": {\"a\": {\"type\": \"integer\"}},\n"
      " \"required\": [\"a\"], \"additionalProperties\": false} \"!\"\n");
  EXPECT_TRUE(admits("{\"a\": 1}!"));
  EXPECT_TRUE(admits("text"));
  EXPECT_FALSE(admits("{\"a\": true}!"));
  EXPECT_FALSE(admits("{\"a\": 1}"));
  EXPECT_THAT(refusal("start: %json {"), HasSubstr("%json without a JSON object"));
}

TEST_F(LarkTest, WhatIsNotSupportedIsRefusedByName) {
  EXPECT_THAT(refusal("start: list{\"a\"}\nlist{x}: x"), HasSubstr("templates"));
  EXPECT_THAT(refusal("list{x}: x\nstart: \"a\""), HasSubstr("templates"));
  EXPECT_THAT(refusal("start[max_tokens=3]: /a/"), HasSubstr("\"max_tokens=3\" is not supported"));
  EXPECT_THAT(refusal("%declare A\nstart: A"), HasSubstr("%declare is not supported"));
  EXPECT_THAT(refusal("%import python.A\nstart: A"), HasSubstr("only \"%import common\""));
  EXPECT_THAT(refusal("%import common.NONE\nstart: NONE"), HasSubstr("common.NONE is not known"));
  EXPECT_THAT(refusal("start: A\nA: b\nb: \"x\""), HasSubstr("inside of a terminal"));
  EXPECT_THAT(refusal("start: <[12]>"), HasSubstr("tokens by number"));
}

TEST_F(LarkTest, ErrorsNameTheLine) {
  EXPECT_THAT(refusal("start: a\n"), HasSubstr("line 1: the rule \"a\" is used and not defined"));
  EXPECT_THAT(refusal("begin: \"a\""), HasSubstr("no rule \"start\""));
  EXPECT_THAT(refusal("start: \"a\"\nstart: \"b\""), HasSubstr("line 2: \"start\" is defined twice"));
  EXPECT_THAT(refusal("start: \"a"), HasSubstr("a text without its end"));
  EXPECT_THAT(refusal("start: (\"a\""), HasSubstr("\"(\" without \")\""));
  EXPECT_THAT(refusal("start: \"a\")"), HasSubstr("\")\" is not understood"));
  EXPECT_THAT(refusal("start: \"b\"..\"a\""), HasSubstr("range"));
  EXPECT_THAT(refusal("start \"a\""), HasSubstr("expected \":\""));
  EXPECT_THAT(refusal("start: " + std::string(1000, '(')), HasSubstr("nested too deeply"));
  EXPECT_THAT(refusal("start: " + std::string(1000, '~') + "A\nA: \"a\""), HasSubstr("too many"));
}

}  // namespace
}  // namespace quire::grammar
