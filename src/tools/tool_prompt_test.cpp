#include "quire/tools/tool_prompt.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/tools/answer_parser.h"
#include "quire/tools/formats_testing.h"

namespace quire::tools {
namespace {

namespace json = boost::json;
using ::testing::ElementsAre;
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

// A model whose ids have the name and a number, as Kimi's do.
Detected numbers_calls() {
  const auto found = std::ranges::find(formats(), "kimi", &Format::name);
  return {.format = &*found,
          .shape = &found->shapes.front(),
          .tells_tools = true,
          .writes_calls = true,
          .writes_results = true,
          .takes_system = true};
}

// Calls of these ids and functions in one message, and their results. An empty id is left out.
void add_round(json::array& messages, const std::vector<std::pair<std::string, std::string>>& calls,
               const std::vector<std::string>& results) {
  json::array written;
  for (const auto& [id, name] : calls) {
    json::object call{{"function", {{"name", name}, {"arguments", json::object()}}}};
    if (!id.empty()) call["id"] = id;
    written.push_back(std::move(call));
  }
  messages.push_back({{"role", "assistant"}, {"content", ""}, {"tool_calls", std::move(written)}});
  for (const std::string& id : results) {
    json::object result{{"role", "tool"}, {"content", "24 degrees"}};
    if (!id.empty()) result["tool_call_id"] = id;
    messages.push_back(std::move(result));
  }
}

// The ids of all calls and results in their order.
std::vector<std::string> ids(const json::array& messages) {
  std::vector<std::string> out;
  for (const json::value& message : messages) {
    if (const json::value* const id = message.as_object().if_contains("tool_call_id")) {
      out.push_back("> " + std::string(id->as_string()));
    }
    if (const json::value* const calls = message.as_object().if_contains("tool_calls")) {
      for (const json::value& call : calls->as_array()) out.emplace_back(call.at("id").as_string());
    }
  }
  return out;
}

TEST(ToolPrompt, IdsBecomeThoseOfTheModelAndTheirNumbersGoOn) {
  json::array messages;
  add_round(messages, {{"call_x", "f"}, {"call_y", "g"}}, {"call_y", "call_x", "call_z"});
  add_round(messages, {{"toolu_1", "f"}}, {"toolu_1"});
  // What the client says is kept if there are no such ids.
  json::array same = messages;
  Detected style = knows_nothing();
  style.writes_calls = style.writes_results = true;
  tell_tools(same, {}, style);
  EXPECT_EQ(same, messages);

  tell_tools(messages, {}, numbers_calls());
  EXPECT_THAT(ids(messages), ElementsAre("functions.f:0", "functions.g:1", "> functions.g:1", "> functions.f:0",
                                         "> call_z", "functions.f:2", "> functions.f:2"));
}

TEST(ToolPrompt, IdsThatTheModelWroteStay) {
  json::array messages;
  // The first messages of the conversation are missing.
  add_round(messages, {{"functions.f:3", "f"}, {"functions.g:4", "g"}}, {"functions.f:3", "functions.g:4"});
  add_round(messages, {{"functions.f:5", "f"}}, {"functions.f:5"});
  const json::array before = messages;
  tell_tools(messages, {}, numbers_calls());
  EXPECT_EQ(messages, before);
}

TEST(ToolPrompt, NumbersThatBeginAgainGoOn) {
  json::array messages;
  add_round(messages, {{"functions.f:0", "f"}}, {"functions.f:0"});
  // The same id again, and then twice.
  add_round(messages, {{"functions.f:0", "f"}}, {"functions.f:0"});
  add_round(messages, {{"functions.f:0", "f"}, {"functions.f:0", "f"}}, {"functions.f:0", "functions.f:0"});
  tell_tools(messages, {}, numbers_calls());
  EXPECT_THAT(ids(messages), ElementsAre("functions.f:0", "> functions.f:0", "functions.f:1", "> functions.f:1",
                                         "functions.f:2", "functions.f:3", "> functions.f:2", "> functions.f:3"));
}

TEST(ToolPrompt, WhatIsNoIdOfTheModelGetsANumber) {
  json::array messages;
  add_round(messages, {{"", "f"}, {"", "f"}}, {"", ""});
  // Of another function, without a number, with one that is none, and with one that is too long.
  add_round(messages,
            {{"functions.g:7", "f"},
             {"functions.f", "f"},
             {"functions.f:", "f"},
             {"functions.f:-7", "f"},
             {"functions.f:7x", "f"},
             {"functions.f:99999999999999999999", "f"},
             {"functions.f:9", "f"},
             {"functions.f:8", "f"}},
            {});
  // And what is no call.
  messages.push_back(json::parse(R"({"role": "assistant", "content": "", "tool_calls": [1, {}, {"function": 1},
    {"function": {"name": 1}}]})"));
  messages.push_back(json::parse(R"({"role": "assistant", "content": "", "tool_calls": {}})"));
  const json::array no_calls(messages.end() - 2, messages.end());
  tell_tools(messages, {}, numbers_calls());
  EXPECT_EQ(json::array(messages.end() - 2, messages.end()), no_calls);
  messages.erase(messages.end() - 2, messages.end());
  EXPECT_THAT(ids(messages), ElementsAre("functions.f:0", "functions.f:1", "> functions.f:0", "> functions.f:1",
                                         "functions.f:2", "functions.f:3", "functions.f:4", "functions.f:5",
                                         "functions.f:6", "functions.f:7", "functions.f:9", "functions.f:10"));
}

TEST(ToolPrompt, CallsThatBecomeTextHaveTheirNumbers) {
  json::array messages;
  add_round(messages, {{"call_x", "f"}}, {"call_x"});
  add_round(messages, {{"call_y", "g"}}, {"call_y"});
  Detected style = numbers_calls();
  style.writes_calls = false;
  tell_tools(messages, {}, style);
  ASSERT_EQ(messages.size(), 4u);
  EXPECT_THAT(content(messages[0]), HasSubstr("<|tool_call_begin|>\nfunctions.f:0\n"));
  EXPECT_THAT(content(messages[2]), HasSubstr("<|tool_call_begin|>\nfunctions.g:1\n"));
  EXPECT_THAT(ids(messages), ElementsAre("> functions.f:0", "> functions.g:1"));
}

}  // namespace
}  // namespace quire::tools
