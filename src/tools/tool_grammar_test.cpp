#include "quire/tools/tool_grammar.h"

#include <boost/json/parse.hpp>

#include "quire/grammar/grammar_testing.h"
#include "quire/tools/answer_parser.h"
#include "quire/tools/formats_testing.h"

namespace quire::tools {
namespace {

using grammar::SlowParser;

const Format& format_of(std::string_view name) { return *std::ranges::find(formats(), name, &Format::name); }

bool admits(const CallGrammar& asked, std::string_view text) {
  auto grammar = call_grammar(asked);
  EXPECT_TRUE(grammar) << (grammar ? "" : grammar.error().message);
  return grammar && SlowParser::admits(*grammar, text);
}

// The shape that an example is written in.
const Shape* shape_of(const testing::Example& example) {
  for (const Shape& shape : format_of(example.format).shapes) {
    if (example.one.starts_with(trigger(shape))) return &shape;
  }
  return nullptr;
}

TEST(ToolGrammar, AdmitsTheCallsOfEveryFormatAndNoOthers) {
  const ToolList tools = testing::example_tools();
  for (const testing::Example& example : testing::examples()) {
    ASSERT_NE(shape_of(example), nullptr) << example.format;
    const CallGrammar asked{
        .format = &format_of(example.format), .shape = shape_of(example), .tools = &tools, .required = true};
    std::string one = example.one;
    // The id of a call and a mark that ends the answer are not written.
    if (const std::size_t at = one.find("\"tool_call_id\": \"0\", "); at != std::string::npos) one.erase(at, 21);
    if (one.ends_with("<|call|>")) one.resize(one.size() - 8);
    EXPECT_TRUE(admits(asked, one)) << one;
    EXPECT_FALSE(admits(asked, example.broken)) << example.broken;
    EXPECT_FALSE(admits(asked, "Hello. " + one)) << one;
    EXPECT_FALSE(admits(asked, one.substr(0, one.size() - 1))) << one;
    EXPECT_FALSE(admits(asked, ""));
    std::string other = one;
    other.replace(other.find("get_weather"), 11, "get_feather");
    EXPECT_FALSE(admits(asked, other)) << other;
    CallGrammar named = asked;
    named.only = "find_place";
    EXPECT_FALSE(admits(named, one)) << one;
  }
}

TEST(ToolGrammar, SeveralCallsOnlyIfTheyAreWanted) {
  const ToolList tools = testing::example_tools();
  for (const char* const format : {"hermes", "mistral", "lfm2", "deepseek", "glm"}) {
    const std::vector<testing::Example> all = testing::examples();
    const std::string two = std::ranges::find(all, format, &testing::Example::format)->two;
    CallGrammar asked{.format = &format_of(format), .tools = &tools, .required = true};
    EXPECT_TRUE(admits(asked, two) || std::string_view(format) == "lfm2" || std::string_view(format) == "glm") << two;
    asked.several = false;
    EXPECT_FALSE(admits(asked, two)) << two;
  }
}

TEST(ToolGrammar, ArgumentsFitTheSchema) {
  const ToolList tools = testing::example_tools();
  const CallGrammar asked{.format = &format_of("hermes"), .tools = &tools, .required = true};
  const auto call = [](std::string_view arguments) {
    return "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": " + std::string(arguments) + "}\n</tool_call>";
  };
  EXPECT_TRUE(admits(asked, call(R"({"city": "Rome"})")));
  EXPECT_FALSE(admits(asked, call(R"({"days": 3})")));
  EXPECT_FALSE(admits(asked, call(R"({"city": 3})")));
  EXPECT_FALSE(admits(asked, call(R"({"city": "Rome", "days": "three"})")));
  const CallGrammar coder{.format = &format_of("qwen3-coder"), .tools = &tools, .required = true};
  const auto tagged = [](std::string_view days) {
    return "<tool_call>\n<function=get_weather>\n<parameter=city>\nRome\n</parameter>\n<parameter=days>\n" +
           std::string(days) + "\n</parameter>\n</function>\n</tool_call>";
  };
  EXPECT_TRUE(admits(coder, tagged("3")));
  EXPECT_FALSE(admits(coder, tagged("three")));
}

TEST(ToolGrammar, ReasoningMayComeFirstAndIsFree) {
  const ToolList tools = testing::example_tools();
  CallGrammar asked{.format = &format_of("hermes"), .reasoning = &reasonings()[0], .tools = &tools, .required = true};
  const std::string call = testing::examples()[0].one;
  EXPECT_TRUE(admits(asked, call));
  EXPECT_TRUE(admits(asked, "<think>\nHm, <tool_call>?\n</think>\n\n" + call));
  EXPECT_FALSE(admits(asked, "<think>\nHm.\n</think>\n\nNo."));
  asked.primer = "<think>";
  EXPECT_TRUE(admits(asked, "\nHm.\n</think>\n\n" + call));
  EXPECT_FALSE(admits(asked, call));
}

TEST(ToolGrammar, WithoutAnObligationTextIsFreeUntilACallBegins) {
  const ToolList tools = testing::example_tools();
  const CallGrammar asked{.format = &format_of("hermes"), .tools = &tools};
  const std::string call = testing::examples()[0].one;
  EXPECT_TRUE(admits(asked, ""));
  EXPECT_TRUE(admits(asked, "Hello, {}."));
  EXPECT_TRUE(admits(asked, "I look. " + call));
  EXPECT_FALSE(admits(asked, "I look. <tool_call>{}</tool_call>"));
  EXPECT_FALSE(admits(asked, "I look. <tool_call>"));
  // Channels have no place for free text.
  EXPECT_FALSE(call_grammar({.format = &format_of("channels"), .tools = &tools}));
}

TEST(ToolGrammar, WhatThePromptHasWrittenIsNotWrittenAgain) {
  const ToolList tools = testing::example_tools();
  const CallGrammar asked{.format = &format_of("functionary-v3.2"), .tools = &tools, .primer = ">>>", .required = true};
  EXPECT_TRUE(admits(asked, "get_weather\n{\"city\": \"Rome\"}"));
  EXPECT_TRUE(admits(asked, "get_weather\n{\"city\": \"Rome\"}>>>find_place\n{\"query\": \"x\"}"));
  EXPECT_FALSE(admits(asked, ">>>get_weather\n{\"city\": \"Rome\"}"));
}

TEST(ToolGrammar, AStrictSchemaThatCannotBeEnforcedIsRefusedAndAnotherTakesAnyObject) {
  const auto list = [](std::string_view strict) {
    const std::string text = R"([{"type": "function", "function": {"name": "f", "parameters": {"type": "object",
        "properties": {"a": {"type": "array", "uniqueItems": true}}}, "strict": )" +
                             std::string(strict) + "}}]";
    return *ToolList::parse(boost::json::parse(text).get_array());
  };
  const ToolList strict = list("true"), loose = list("false");
  const auto refused = call_grammar({.format = &format_of("hermes"), .tools = &strict, .required = true});
  ASSERT_FALSE(refused);
  EXPECT_TRUE(refused.error().message.starts_with("the schema of the function 'f' cannot be enforced: "));
  EXPECT_TRUE(admits({.format = &format_of("hermes"), .tools = &loose, .required = true},
                     R"(<tool_call>{"name": "f", "arguments": {"x": 1}}</tool_call>)"));
}

}  // namespace
}  // namespace quire::tools
