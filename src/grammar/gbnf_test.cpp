#include "quire/grammar/gbnf.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "quire/grammar/grammar_testing.h"

namespace quire::grammar {
namespace {

using testing::HasSubstr;

class GbnfTest : public testing::Test {
 protected:
  // The grammar that the following calls of admits() mean.
  void use(std::string_view text) {
    grammar_ = Grammar();
    const auto start = add_gbnf(grammar_, text);
    ASSERT_TRUE(start.has_value()) << start.error().message;
    grammar_.set_start(*start);
    ASSERT_TRUE(grammar_.check().has_value());
  }
  bool admits(std::string_view text) { return SlowParser::admits(grammar_, text); }
  Symbol::Kind start_kind() { return grammar_.symbols()[grammar_.start()].kind; }
  static std::string refusal(std::string_view text) {
    Grammar grammar;
    const auto start = add_gbnf(grammar, text);
    return start ? "accepted" : start.error().message;
  }

  Grammar grammar_;
};

TEST_F(GbnfTest, RulesAlternativesAndClassesMatchWhatTheySay) {
  use("# a comment\nroot ::= greeting \" \" name\ngreeting ::= \"hello\" | \"hi\"\nname ::= [A-Z] [a-z]+ # the end\n");
  EXPECT_TRUE(admits("hi Bob"));
  EXPECT_TRUE(admits("hello Ann"));
  EXPECT_FALSE(admits("hello ann"));
  EXPECT_FALSE(admits("hello A"));
  EXPECT_EQ(start_kind(), Symbol::Kind::Terminal) << "a regular grammar is one expression";
}

TEST_F(GbnfTest, RepetitionsAreCounted) {
  use("root ::= \"ab\"{2,3} [0-9]{2} \"x\"* \"y\"? \".\"{1,} (\"p\" \"q\"){0,1}");
  EXPECT_TRUE(admits("abab12..pq"));
  EXPECT_TRUE(admits("ababab12xxy."));
  EXPECT_FALSE(admits("ab12."));
  EXPECT_FALSE(admits("abababab12."));
  EXPECT_FALSE(admits("abab123."));
  EXPECT_FALSE(admits("abab12"));
}

TEST_F(GbnfTest, EscapesNameCharacters) {
  use("root ::= \"\\x41\\u00e9\\U0001F600\\n\\t\\r\\\\\\\"\" [\\]\\-a] [^\\n\\x00-\\x1f]");
  EXPECT_TRUE(admits("Aé😀\n\t\r\\\"]字"));
  EXPECT_TRUE(admits("Aé😀\n\t\r\\\"-x"));
  EXPECT_FALSE(admits("Aé😀\n\t\r\\\"bx"));
  EXPECT_FALSE(admits("Aé😀\n\t\r\\\"a\n"));
}

TEST_F(GbnfTest, ADotIsAnyCharacter) {
  use("root ::= . .");
  EXPECT_TRUE(admits("é\n"));
  EXPECT_FALSE(admits("é"));
  EXPECT_FALSE(admits("\xC3"));
}

TEST_F(GbnfTest, ARuleMayHaveManyLinesAndAnEmptyAlternative) {
  use("root ::= (\n  # inside\n  \"a\" |\n  \"b\"\n)\n  ws\n  | \"c\"\n\nws ::= | \" \" | \"\\n\" [ \\t]{0,20}\n");
  EXPECT_TRUE(admits("a"));
  EXPECT_TRUE(admits("b "));
  EXPECT_TRUE(admits("a\n \t"));
  EXPECT_TRUE(admits("c"));
  EXPECT_FALSE(admits("c "));
}

TEST_F(GbnfTest, RecursiveRulesAreNotRegularAndStillExact) {
  use(R"gbnf(root ::= object
value ::= object | array | string | number | "true" | "false" | "null"
object ::= "{" ws ( string ws ":" ws value ws ("," ws string ws ":" ws value ws)* )? "}"
array ::= "[" ws ( value ws ("," ws value ws)* )? "]"
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4}) )* "\""
number ::= "-"? ([0-9] | [1-9] [0-9]{0,15}) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})?
ws ::= ([ \t\n] ws)?
)gbnf");
  EXPECT_TRUE(admits("{}"));
  EXPECT_TRUE(admits("{ \"a\": [1, -2.5e3, {\"b\": null}] }"));
  EXPECT_TRUE(admits("{\"\\u00e9\\n\":true}"));
  EXPECT_FALSE(admits("{\"a\"}"));
  EXPECT_FALSE(admits("[1]"));
  EXPECT_FALSE(admits("{\"a\":[1,]}"));
  // Strings, numbers and white space are expressions: only the two rules that use each other, and what stands between
  // them, are left.
  std::size_t rules = 0;
  for (const auto& symbol : grammar_.symbols()) rules += symbol.kind == Symbol::Kind::Rule ? 1 : 0;
  EXPECT_LE(rules, 8U);
}

TEST_F(GbnfTest, RulesThatUseThemselvesAtOneEndAreRegular) {
  use("root ::= a b\na ::= [0-9] a | [0-9]\nb ::= (b \",\")? \"x\"");
  EXPECT_EQ(start_kind(), Symbol::Kind::Terminal);
  EXPECT_TRUE(admits("12x"));
  EXPECT_TRUE(admits("1x,x,x"));
  EXPECT_FALSE(admits("x"));
  EXPECT_FALSE(admits("1x,"));
  use("root ::= \"(\" root \")\" | \"\"");
  EXPECT_NE(start_kind(), Symbol::Kind::Terminal);
  EXPECT_TRUE(admits("((()))"));
  EXPECT_FALSE(admits("(()"));
}

TEST_F(GbnfTest, LeftRecursionIsAllowed) {
  use("root ::= root \"+\" term | term\nterm ::= [0-9] | \"(\" root \")\"");
  EXPECT_TRUE(admits("1+(2+3)+4"));
  EXPECT_FALSE(admits("1+"));
}

TEST_F(GbnfTest, SpecialTokensStandInAngleBrackets) {
  use("root ::= <think> !</think>* </think> \"x\"");
  const auto symbols = grammar_.symbols();
  const auto has = [&](auto&& wanted) { return std::ranges::any_of(symbols, wanted); };
  EXPECT_TRUE(has([](const Symbol& s) { return s.kind == Symbol::Kind::Token && s.text == "<think>"; }));
  EXPECT_TRUE(has([](const Symbol& s) { return s.kind == Symbol::Kind::Token && s.text == "</think>"; }));
  EXPECT_TRUE(has([](const Symbol& s) { return s.kind == Symbol::Kind::Terminal && s.any_special; }));
  EXPECT_TRUE(admits("<think>some < text</think>x"));
  EXPECT_FALSE(admits("<think>some text"));
  EXPECT_THAT(refusal("root ::= <[12]>"), HasSubstr("tokens by number"));
  EXPECT_THAT(refusal("root ::= !<a>"), HasSubstr("only as"));
}

TEST_F(GbnfTest, ErrorsNameTheLine) {
  EXPECT_THAT(refusal("root ::= a\n"), HasSubstr("line 1: the rule \"a\" is used and not defined"));
  EXPECT_THAT(refusal("rot ::= \"a\""), HasSubstr("no rule \"root\""));
  EXPECT_THAT(refusal(""), HasSubstr("no rule \"root\""));
  EXPECT_THAT(refusal("root ::= \"a\"\n\nroot ::= \"b\""), HasSubstr("line 3: the rule \"root\" is defined twice"));
  EXPECT_THAT(refusal("root ::= \"a"), HasSubstr("line 1: a text without its end"));
  EXPECT_THAT(refusal("root ::= [a"), HasSubstr("\"[\" without \"]\""));
  EXPECT_THAT(refusal("root ::= (\"a\""), HasSubstr("\"(\" without \")\""));
  EXPECT_THAT(refusal("root ::= \"a\")"), HasSubstr("\")\" without \"(\""));
  EXPECT_THAT(refusal("root ::= \"\\q\""), HasSubstr("escape that is not known"));
  EXPECT_THAT(refusal("root ::= \"a\"{x}"), HasSubstr("without a number"));
  EXPECT_THAT(refusal("root ::= \"a\"{3,2}"), HasSubstr("ends before it begins"));
  EXPECT_THAT(refusal("root ::= [z-a]"), HasSubstr("ends before it begins"));
  EXPECT_THAT(refusal("root ::= %"), HasSubstr("\"%\" is not understood"));
  EXPECT_THAT(refusal("root \"a\""), HasSubstr("expected \"::=\""));
  EXPECT_THAT(refusal("root ::= " + std::string(1000, '(')), HasSubstr("nested too deeply"));
  EXPECT_THAT(refusal("root ::= \"a\"" + std::string(1000, '*')), HasSubstr("too many repetitions"));
  EXPECT_THAT(refusal("root ::= \"\xFF\""), HasSubstr("not UTF-8"));
}

TEST_F(GbnfTest, AChainOfManyRulesNeedsNoStack) {
  std::string text = "root ::= r0\n";
  for (int i = 0; i < 20000; ++i) text += "r" + std::to_string(i) + " ::= r" + std::to_string(i + 1) + "\n";
  use(text + "r20000 ::= \"a\" | \"(\" r0 \")\"\n");
}

}  // namespace
}  // namespace quire::grammar
