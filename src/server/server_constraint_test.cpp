// Answers with a shape, from the real server and the demo model.
#include <string>
#include <thread>
#include <vector>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/server/server_testing.h"

namespace quire::server {
namespace {

using testing::events;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using testing::Reply;
using testing::Running;
namespace json = boost::json;

constexpr const char* kFormat =
    R"("response_format": {"type": "json_schema", "json_schema": {"name": "note", "schema": {
    "type": "object",
    "properties": {"name": {"type": "string", "minLength": 1, "maxLength": 12},
                   "age": {"type": "integer", "minimum": 3, "maximum": 120},
                   "colour": {"enum": ["red", "green", "dark blue"]},
                   "notes": {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 3}},
    "required": ["name", "age", "colour", "notes"], "additionalProperties": false}}})";

std::string chat(std::uint64_t seed, std::string_view more = "") {
  return fmt::format(R"({{"messages": [{{"role": "user", "content": "Write about Mia."}}], "seed": {}, {}{}}})", seed,
                     kFormat, more);
}

std::string content(const Reply& reply) {
  EXPECT_EQ(reply.status, 200U) << reply.body;
  return std::string(reply.parsed().at("choices").at(0).at("message").at("content").as_string());
}

void expect_a_note(const std::string& text) {
  json::error_code error;
  const json::value note = json::parse(text, error);
  ASSERT_FALSE(error) << text;
  ASSERT_EQ(note.as_object().size(), 4U) << text;
  EXPECT_TRUE(note.at("name").is_string());
  EXPECT_GE(note.at("age").as_int64(), 3);
  EXPECT_LE(note.at("age").as_int64(), 120);
  EXPECT_THAT((std::vector<json::string>{"red", "green", "dark blue"}),
              ::testing::Contains(note.at("colour").as_string()));
  EXPECT_GE(note.at("notes").as_array().size(), 1U);
  EXPECT_LE(note.at("notes").as_array().size(), 3U);
  for (const json::value& each : note.at("notes").as_array()) EXPECT_TRUE(each.is_bool());
}

TEST(ServerConstraint, EveryAnswerFitsItsSchemaWhateverTheSeed) {
  Running server;
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    const Reply reply = server.post("/v1/chat/completions", chat(seed, R"(, "temperature": 1.5)"));
    expect_a_note(content(reply));
    EXPECT_EQ(reply.parsed().at("choices").at(0).at("finish_reason").as_string(), "stop");
  }
}

TEST(ServerConstraint, AStreamAndLogprobsHaveTheSameAnswer) {
  Running server;
  const std::string whole = content(server.post("/v1/chat/completions", chat(5)));
  const Reply scored = server.post("/v1/chat/completions", chat(5, R"(, "logprobs": true, "top_logprobs": 2)"));
  EXPECT_EQ(content(scored), whole);
  std::string spelled;
  const json::value answer = scored.parsed();
  for (const json::value& token : answer.at("choices").at(0).at("logprobs").at("content").as_array()) {
    spelled += token.at("token").as_string();
  }
  EXPECT_EQ(spelled, whole);
  const Reply streamed = server.post("/v1/chat/completions", chat(5, R"(, "stream": true)"));
  std::string together;
  for (const std::string& event : events(streamed.body)) {
    if (event == "[DONE]") continue;
    const json::value parsed = json::parse(event);
    const json::object& delta = parsed.at("choices").at(0).at("delta").as_object();
    if (const json::value* const text = delta.if_contains("content")) together += text->as_string();
  }
  EXPECT_EQ(together, whole);
}

// Many at once, constrained and not, in a pool that must suspend: the answers are those given alone.
TEST(ServerConstraint, AnswersAreTheSameUnderLoad) {
  std::vector<std::string> alone;
  constexpr std::uint64_t kAsked = 12;
  const auto body = [](std::uint64_t i) {
    return i % 3 == 2 ? fmt::format(R"({{"messages": [{{"role": "user", "content": "Write about Mia."}}], "seed": {},
                                       "max_tokens": 120}})",
                                    i)
                      : chat(i);
  };
  {
    Running server({}, {.context = 512});
    for (std::uint64_t i = 0; i < kAsked; ++i) alone.push_back(content(server.post("/v1/chat/completions", body(i))));
  }
  Running server({}, {.context = 512, .memory = 2 << 20});
  std::vector<std::string> loaded(kAsked);
  std::vector<std::thread> clients;
  for (std::uint64_t i = 0; i < kAsked; ++i) {
    clients.emplace_back([&, i] { loaded[i] = content(server.post("/v1/chat/completions", body(i))); });
  }
  for (std::thread& client : clients) client.join();
  for (std::uint64_t i = 0; i < kAsked; ++i) EXPECT_EQ(loaded[i], alone[i]) << i;
  const json::value pool = server.pool();
  EXPECT_GT(pool.at("stats").at("suspensions_by_copy").to_number<int>() +
                pool.at("stats").at("suspensions_by_recompute").to_number<int>(),
            0);
}

TEST(ServerConstraint, EveryWayToAskForAShapeIsKept) {
  Running server;
  const auto text = [&](std::string_view field, std::uint64_t seed) {
    const Reply reply = server.post(
        "/v1/completions", fmt::format(R"({{"prompt": "Once", "seed": {}, "max_tokens": 200, {}}})", seed, field));
    EXPECT_EQ(reply.status, 200U) << reply.body;
    EXPECT_EQ(reply.parsed().at("choices").at(0).at("finish_reason").as_string(), "stop") << reply.body;
    return std::string(reply.parsed().at("choices").at(0).at("text").as_string());
  };
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    EXPECT_THAT(text(R"("guided_regex": "[0-9]{3}-[a-f]{1,8}x")", seed), MatchesRegex("[0-9]{3}-[a-f]{1,8}x"));
    EXPECT_THAT((std::vector<std::string>{"yes", "no", "maybe so"}),
                ::testing::Contains(text(R"("guided_choice": ["yes", "no", "maybe so"])", seed)));
    EXPECT_THAT(text(R"("grammar": "root ::= \"The \" (\"cat\" | \"dog\") \" sat\" \".\"{1,5} \"!\"")", seed),
                MatchesRegex("The (cat|dog) sat\\.{1,5}!"));
    EXPECT_THAT(text(R"("structured_outputs": {"grammar": "start: \"a\" B~1..6 \"c\"\nB: /[xy]/"})", seed),
                MatchesRegex("a[xy]{1,6}c"));
    const std::string flag = text(R"("guided_json": {"type": "boolean"})", seed);
    EXPECT_TRUE(flag == "true" || flag == "false") << flag;
  }
}

TEST(ServerConstraint, ResponsesAndMessagesHaveTheShapesOfChats) {
  Running server;
  const auto response = [&](std::string_view field, std::uint64_t seed) {
    const Reply reply = server.post(
        "/v1/responses",
        fmt::format(R"({{"input": "Write about Mia.", "seed": {}, "max_output_tokens": 200, {}}})", seed, field));
    EXPECT_EQ(reply.status, 200U) << reply.body;
    if (reply.status != 200) return std::string();
    EXPECT_EQ(reply.parsed().at("status").as_string(), "completed") << reply.body;
    return std::string(reply.parsed().at("output").at(0).at("content").at(0).at("text").as_string());
  };
  const auto message = [&](std::string_view field, std::uint64_t seed) {
    const Reply reply = server.post("/v1/messages", fmt::format(R"({{"messages": [{{"role": "user", "content":
        "Write about Mia."}}], "seed": {}, "max_tokens": 200, {}}})",
                                                                seed, field));
    EXPECT_EQ(reply.status, 200U) << reply.body;
    if (reply.status != 200) return std::string();
    EXPECT_EQ(reply.parsed().at("stop_reason").as_string(), "end_turn") << reply.body;
    return std::string(reply.parsed().at("content").at(0).at("text").as_string());
  };
  const std::pair<const char*, const char*> cases[] = {
      {R"("guided_regex": "[0-9]{3}-[a-f]{1,8}x")", "[0-9]{3}-[a-f]{1,8}x"},
      {R"("regex": "[0-9]{3}x")", "[0-9]{3}x"},
      {R"("guided_choice": ["yes", "no"])", "yes|no"},
      {R"("grammar": "root ::= \"The \" (\"cat\" | \"dog\") \" sat\"")", "The (cat|dog) sat"},
      {R"("guided_grammar": "root ::= [ab]{3}")", "[ab]{3}"},
      {R"("structured_outputs": {"choice": ["one", "two"]})", "one|two"},
      {R"("guided_json": {"type": "boolean"})", "true|false"},
      {R"("json_schema": {"enum": ["a", "b"]})", "\"(a|b)\""},
  };
  for (const auto& [field, shape] : cases) {
    for (std::uint64_t seed = 0; seed < 2; ++seed) {
      EXPECT_THAT(response(field, seed), MatchesRegex(shape)) << field;
      EXPECT_THAT(message(field, seed), MatchesRegex(shape)) << field;
    }
  }
  // The fields of Anthropic's API, and response_format as chats have it.
  const std::string schema = R"({"type": "object", "properties": {"age": {"type": "integer", "minimum": 3,
      "maximum": 120}}, "required": ["age"], "additionalProperties": false})";
  for (const std::string& field :
       {fmt::format(R"("output_config": {{"format": {{"type": "json_schema", "schema": {}}}}})", schema),
        fmt::format(R"("output_format": {{"type": "json_schema", "schema": {}}})", schema),
        fmt::format(R"("response_format": {{"type": "json_schema", "json_schema": {{"schema": {}}}}})", schema)}) {
    const std::string text = message(field, 1);
    json::error_code error;
    const json::value note = json::parse(text, error);
    ASSERT_FALSE(error) << text;
    EXPECT_EQ(note.as_object().size(), 1U) << text;
    EXPECT_GE(note.at("age").as_int64(), 3);
    EXPECT_LE(note.at("age").as_int64(), 120);
  }
  EXPECT_THAT(response(R"("text": {"format": {"type": "json_object", "schema": {"type": "object", "properties":
      {"a": {"type": "boolean"}}, "required": ["a"], "additionalProperties": false}}},
      "structured_outputs": {})",
                       1),
              HasSubstr("\"a\""));
}

TEST(ServerConstraint, WhatCannotBeEnforcedIsRefusedByItsName) {
  Running server;
  const Reply reply = server.post("/v1/completions", R"({"prompt": "Once", "guided_json":
      {"type": "array", "items": {"type": "object", "properties": {"a": {"uniqueItems": true}}}}})");
  EXPECT_EQ(reply.status, 400U);
  EXPECT_THAT(reply.error_message(), HasSubstr("'guided_json' cannot be enforced"));
  EXPECT_THAT(reply.error_message(), HasSubstr("uniqueItems"));
}

}  // namespace
}  // namespace quire::server
