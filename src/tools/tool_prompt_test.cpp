#include "quire/tools/tool_prompt.h"

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/tools/answer_parser.h"
#include "quire/tools/formats_testing.h"

namespace quire::tools {
namespace {

namespace json = boost::json;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(ToolPrompt, EveryShapeIsReadBackAsItIsWritten) {
  const ToolList tools = testing::example_tools();
  const json::object arguments = json::parse(R"({"city": "Rome", "days": 3})").as_object();
  for (const Format& format : formats()) {
    for (const Shape& shape : format.shapes) {
      const std::string text = write_call(shape, "get_weather", arguments);
      const Format alone{.name = format.name, .shapes = {&shape, 1}};
      AnswerParser parser({.format = &alone, .tools = &tools});
      std::vector<Delta> deltas;
      parser.push(text, deltas);
      parser.finish(false, deltas);
      ASSERT_EQ(deltas.size(), 2u) << format.name << ": " << text;
      EXPECT_EQ(deltas[0].name, "get_weather") << text;
      EXPECT_EQ(json::parse(deltas[1].text), json::value(arguments)) << text;
    }
  }
}

// A model whose template knows nothing of tools.
Detected knows_nothing() {
  return {.format = &fallback_format(), .shape = &fallback_format().shapes.front(), .takes_system = true};
}

json::array tools() {
  return json::parse(
             R"([{"type": "function", "function": {"name": "get_weather", "description": "The weather of a city",
      "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}, "strict": true}}])")
      .get_array();
}

std::string content(const json::value& message) { return std::string(message.at("content").as_string()); }

TEST(ToolPrompt, FunctionsAndHowToCallThemGoIntoTheSystemMessage) {
  json::array messages = json::parse(R"([{"role": "user", "content": "Rome?"}])").get_array();
  tell_tools(messages, tools(), knows_nothing());
  ASSERT_EQ(messages.size(), 2u);
  EXPECT_EQ(messages[0].at("role"), "system");
  for (const char* const part :
       {R"({"name":"get_weather","description":"The weather of a city","parameters":{"type":"object",)",
        "<tool_call>\n{\"name\": \"FUNCTION\", \"arguments\": {\"ARGUMENT\":\"VALUE\"}}\n</tool_call>",
        "<tool_response>"}) {
    EXPECT_THAT(content(messages[0]), HasSubstr(part));
  }
  EXPECT_EQ(content(messages[1]), "Rome?");

  messages =
      json::parse(R"([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "x"}])").get_array();
  tell_tools(messages, tools(), knows_nothing());
  ASSERT_EQ(messages.size(), 2u);
  EXPECT_THAT(content(messages[0]), ::testing::StartsWith("Be brief.\n\nYou can call functions."));
}

TEST(ToolPrompt, WithoutASystemMessageTheyGoBeforeTheFirstQuestion) {
  json::array messages = json::parse(R"([{"role": "user", "content": "Rome?"}])").get_array();
  Detected style = knows_nothing();
  style.takes_system = false;
  tell_tools(messages, tools(), style);
  ASSERT_EQ(messages.size(), 1u);
  EXPECT_THAT(content(messages[0]), HasSubstr("get_weather"));
  EXPECT_THAT(content(messages[0]), ::testing::EndsWith("\n\nRome?"));
}

constexpr const char* kConversation =
    R"([{"role": "user", "content": "Rome?"}, {"role": "assistant", "content": "I look.",
    "tool_calls": [{"id": "1", "function": {"name": "get_weather", "arguments": {"city": "Rome"}}}]},
    {"role": "tool", "tool_call_id": "1", "content": "24 degrees"}, {"role": "tool", "content": "dry"}])";

TEST(ToolPrompt, CallsAndResultsBecomeTextWhereTheTemplateDropsThem) {
  json::array messages = json::parse(kConversation).get_array();
  tell_tools(messages, {}, knows_nothing());
  ASSERT_EQ(messages.size(), 3u);
  EXPECT_EQ(content(messages[1]),
            "I look.\n\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\":\"Rome\"}}\n</tool_call>");
  EXPECT_FALSE(messages[1].as_object().contains("tool_calls"));
  EXPECT_EQ(messages[2].at("role"), "user");
  EXPECT_EQ(content(messages[2]),
            "<tool_response>\n24 degrees\n</tool_response>\n\n<tool_response>\ndry\n</tool_response>");
}

TEST(ToolPrompt, WhatTheTemplateWritesStaysAsItIs) {
  const json::array before = json::parse(kConversation).get_array();
  json::array messages = before;
  Detected style = knows_nothing();
  style.tells_tools = style.writes_calls = style.writes_results = true;
  tell_tools(messages, tools(), style);
  EXPECT_EQ(messages, before);
}

}  // namespace
}  // namespace quire::tools
