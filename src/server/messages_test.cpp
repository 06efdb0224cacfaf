#include "quire/server/messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/server/answers_testing.h"

namespace quire::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::kAnswersArguments;
using testing::named_events;
using testing::Reply;
using testing::Running;
namespace json = boost::json;

constexpr const char* kTools =
    R"("tools": [{"name": "get_weather", "description": "Weather", "input_schema": {"type": "object", "properties":
       {"city": {"type": "string"}, "days": {"type": "integer"}}}}])";

class Messages : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { server_ = testing::serve_answers(); }
  static void TearDownTestSuite() { server_.reset(); }
  static Reply ask(std::string_view content, std::string_view more = {}) {
    return server_->post("/v1/messages",
                         fmt::format(R"({{"max_tokens": 200, "messages": [{{"role": "user", "content": "{}"}}]{}{}}})",
                                     content, more.empty() ? "" : ", ", more));
  }
  static inline std::unique_ptr<Running> server_;
};

// What the events of a stream make together: the message that the whole answer would be.
json::object gathered(const Reply& reply) {
  json::object message;
  std::string partial;
  for (auto& [name, data] : named_events(reply.body)) {
    if (name == "message_start") {
      EXPECT_TRUE(message.empty());
      message = data.at("message").as_object();
    } else if (name == "content_block_start") {
      EXPECT_EQ(static_cast<std::size_t>(data.at("index").as_int64()), message.at("content").as_array().size());
      message.at("content").as_array().push_back(data.at("content_block"));
      partial.clear();
    } else if (name == "content_block_delta") {
      json::object& block = message.at("content").as_array().back().as_object();
      const json::value& delta = data.at("delta");
      if (delta.at("type") == "text_delta") block.at("text").as_string() += delta.at("text").as_string();
      if (delta.at("type") == "thinking_delta") block.at("thinking").as_string() += delta.at("thinking").as_string();
      if (delta.at("type") == "input_json_delta") partial += delta.at("partial_json").as_string();
    } else if (name == "content_block_stop") {
      json::object& block = message.at("content").as_array().back().as_object();
      if (block.at("type") == "tool_use") block["input"] = json::parse(partial);
    } else if (name == "message_delta") {
      message["stop_reason"] = data.at("delta").at("stop_reason");
      message["stop_sequence"] = data.at("delta").at("stop_sequence");
      message["usage"] = data.at("usage");
    }
  }
  return message;
}

TEST_F(Messages, APlainAnswerHasAnthropicsShape) {
  const Reply reply = ask("plain, please");
  ASSERT_EQ(reply.status, 200u) << reply.body;
  const json::value answer = reply.parsed();
  EXPECT_EQ(answer.at("type"), "message");
  EXPECT_EQ(answer.at("role"), "assistant");
  EXPECT_EQ(answer.at("content"), json::parse(R"([{"type": "text", "text": "Just words; no more."}])"));
  EXPECT_EQ(answer.at("stop_reason"), "end_turn");
  EXPECT_TRUE(answer.at("stop_sequence").is_null());
  EXPECT_GT(answer.at("usage").at("input_tokens").as_int64(), 0);
  EXPECT_GT(answer.at("usage").at("output_tokens").as_int64(), 0);
}

TEST_F(Messages, CallsAreToolUseAndReasoningIsThinking) {
  const json::value call = ask("weather?", kTools).parsed();
  EXPECT_EQ(call.at("stop_reason"), "tool_use");
  ASSERT_EQ(call.at("content").as_array().size(), 2u) << json::serialize(call);
  EXPECT_EQ(call.at("content").at(0).at("text"), "Let me look.");
  EXPECT_EQ(call.at("content").at(1).at("type"), "tool_use");
  EXPECT_EQ(call.at("content").at(1).at("name"), "get_weather");
  EXPECT_EQ(call.at("content").at(1).at("input"), json::parse(kAnswersArguments));
  EXPECT_FALSE(call.at("content").at(1).at("id").as_string().empty());
  const json::value thought = ask("think!").parsed();
  ASSERT_EQ(thought.at("content").as_array().size(), 2u) << json::serialize(thought);
  EXPECT_EQ(thought.at("content").at(0).at("type"), "thinking");
  EXPECT_THAT(std::string(thought.at("content").at(0).at("thinking").as_string()), HasSubstr("Hmm, it is warm there"));
  EXPECT_EQ(thought.at("content").at(1).at("text"), "It will be warm!");
}

TEST_F(Messages, AStreamSaysWhatTheWholeAnswerSays) {
  for (const char* content : {"plain", "think!", "weather?"}) {
    json::object whole = ask(content, kTools).parsed().as_object();
    const Reply stream = ask(content, std::string(kTools) + R"(, "stream": true)");
    EXPECT_EQ(stream.header("content-type"), "text/event-stream");
    json::object parts = gathered(stream);
    for (json::object* each : {&whole, &parts}) {
      each->erase("id");
      each->erase("usage");  // the second prompt is in the cache
      for (json::value& block : each->at("content").as_array()) block.as_object().erase("id");
    }
    EXPECT_EQ(parts, whole);
    std::vector<std::string> names;
    for (const auto& [name, data] : named_events(stream.body)) {
      if (names.empty() || names.back() != name) names.push_back(name);
    }
    EXPECT_EQ(names.front(), "message_start");
    EXPECT_EQ(names[names.size() - 2], "message_delta");
    EXPECT_EQ(names.back(), "message_stop");
  }
}

TEST_F(Messages, AResultOfAToolIsAnswered) {
  const Reply reply = server_->post("/v1/messages", fmt::format(R"({{"max_tokens": 100, "system": [{{"type": "text",
      "text": "Be kind."}}], {}, "messages": [{{"role": "user", "content": "weather?"}},
      {{"role": "assistant", "content": [{{"type": "thinking", "thinking": "hm", "signature": ""}},
        {{"type": "text", "text": "Let me look."}},
        {{"type": "tool_use", "id": "t1", "name": "get_weather", "input": {{"city": "Rome"}}}}]}},
      {{"role": "user", "content": [{{"type": "tool_result", "tool_use_id": "t1", "content": "sunny"}}]}}]}})",
                                                                kTools));
  ASSERT_EQ(reply.status, 200u) << reply.body;
  EXPECT_EQ(reply.parsed().at("content").at(0).at("text"), "It is sunny in Rome, 24 degrees.");
}

TEST_F(Messages, BecomeTheConversationThatATemplateExpects) {
  const auto chat = chat_of_messages(json::parse(R"({"system": "Be kind.", "max_tokens": 5, "stop_sequences": ["x"],
      "tool_choice": {"type": "tool", "name": "f", "disable_parallel_tool_use": true}, "thinking": {"type": "enabled",
      "budget_tokens": 1024}, "metadata": {"user_id": "u"},
      "tools": [{"name": "f", "input_schema": {"type": "object"}}],
      "messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "t"}, {"type": "tool_use", "id": "1",
          "name": "f", "input": {"k": 1}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text",
          "text": "r"}], "is_error": true}, {"type": "text", "text": "go on"}]}]})")
                                         .as_object());
  ASSERT_TRUE(chat.has_value()) << chat.error().message;
  EXPECT_EQ(chat->at("messages"), json::parse(R"([{"role": "system", "content": "Be kind."},
      {"role": "user", "content": "a\nb"},
      {"role": "assistant", "reasoning_content": "t", "content": "", "tool_calls": [{"id": "1", "type": "function",
        "function": {"name": "f", "arguments": {"k": 1}}}]},
      {"role": "tool", "tool_call_id": "1", "name": "f", "content": "Error: r"},
      {"role": "user", "content": "go on"}])"));
  EXPECT_EQ(chat->at("tools"), json::parse(R"([{"type": "function", "function": {"name": "f", "parameters":
      {"type": "object"}}}])"));
  EXPECT_EQ(chat->at("tool_choice"), json::parse(R"({"type": "function", "function": {"name": "f"}})"));
  EXPECT_EQ(chat->at("parallel_tool_calls"), json::value(false));
  EXPECT_EQ(chat->at("stop"), json::parse(R"(["x"])"));
  EXPECT_EQ(chat->at("chat_template_kwargs").at("enable_thinking"), json::value(true));
  EXPECT_FALSE(chat->contains("continue_final_message"));
  const auto begun = chat_of_messages(json::parse(R"({"messages": [{"role": "user", "content": "a"},
      {"role": "assistant", "content": "It is"}]})")
                                          .as_object());
  EXPECT_EQ(begun->at("continue_final_message"), json::value(true)) << "the answer continues it";
}

TEST_F(Messages, TakeTheShapesOfChatsAndTheirOwn) {
  const auto chat = [](std::string_view more) {
    return chat_of_messages(
        json::parse(fmt::format(R"({{"messages": [{{"role": "user", "content": "a"}}], {}}})", more)).as_object());
  };
  const json::value format = json::parse(R"({"type": "json_schema", "json_schema": {"name": "output", "schema":
      {"type": "object"}, "strict": true}})");
  for (const char* const field :
       {R"("output_config": {"effort": "low", "format": {"type": "json_schema", "schema": {"type": "object"}}})",
        R"("output_format": {"type": "json_schema", "schema": {"type": "object"}})",
        R"("output_config": {}, "output_format": {"type": "json_schema", "schema": {"type": "object"}})"}) {
    const auto made = chat(field);
    ASSERT_TRUE(made.has_value()) << made.error().message;
    EXPECT_EQ(made->at("response_format"), format) << field;
  }
  for (const char* const field :
       {"response_format", "structured_outputs", "json_schema", "guided_json", "guided_regex", "guided_choice",
        "guided_grammar", "grammar", "regex", "stop_token_ids", "ignore_eos", "skip_special_tokens", "min_p"}) {
    EXPECT_EQ(chat(fmt::format(R"("{}": "x")", field))->at(field), "x");
  }
  const struct {
    const char* fields;
    const char* message;
  } cases[] = {
      {R"("output_config": {"format": {"type": "text"}})", "'output_config.format.type' must be json_schema"},
      {R"("output_format": {"type": "json_schema"})", "'output_format.schema' is missing"},
      {R"("output_format": 5)", "'output_format' must be an object"},
      {R"("output_config": {"format": 5})", "'output_config.format' must be an object"},
      {R"("output_config": {"format": {"type": "json_schema", "schema": {}}}, "output_format": {})",
       "'output_format' cannot be used together with 'output_config.format'"},
      {R"("output_config": {"format": {"type": "json_schema", "schema": {}}}, "guided_regex": "a")",
       "'guided_regex' cannot be used together with 'output_config.format'"},
      {R"("output_format": {"type": "json_schema", "schema": {}}, "response_format": {"type": "json_object"})",
       "'response_format' cannot be used together with 'output_format'"},
  };
  for (const auto& [fields, message] : cases) {
    const auto made = chat(fields);
    ASSERT_FALSE(made.has_value()) << fields;
    EXPECT_EQ(made.error().message, message);
  }
}

TEST_F(Messages, WhatCannotBeEnforcedIsRefusedByTheNameThatTheClientUsed) {
  const char* const bad = R"({"type": "array", "uniqueItems": true})";
  const std::pair<std::string, const char*> cases[] = {
      {fmt::format(R"("output_config": {{"format": {{"type": "json_schema", "schema": {}}}}})", bad),
       "'output_config.format.schema' cannot be enforced"},
      {fmt::format(R"("output_format": {{"type": "json_schema", "schema": {}}})", bad),
       "'output_format.schema' cannot be enforced"},
      {fmt::format(R"("response_format": {{"type": "json_schema", "json_schema": {{"schema": {}}}}})", bad),
       "'response_format.json_schema.schema' cannot be enforced"},
      {fmt::format(R"("guided_json": {})", bad), "'guided_json' cannot be enforced"},
      {R"("grammar": "root ::= nothing")", "'grammar' cannot be enforced"},
      {R"("structured_outputs": {"json": {}, "whitespace_pattern": " "})",
       "'structured_outputs.whitespace_pattern' is not supported"},
      {R"("guided_whitespace_pattern": " ")", "'guided_whitespace_pattern' is not supported"},
      {R"("mirostat": 2)", "'mirostat' is not supported, except as 0"},
      {R"("stop": ["x"])", "'stop' is not supported, except as []: send 'stop_sequences'"},
      {R"("n": 2)", "'n' is not supported, except as 1"},
  };
  for (const auto& [field, message] : cases) {
    const Reply reply = ask("plain", field);
    EXPECT_EQ(reply.status, 400u) << field;
    EXPECT_THAT(reply.error_message(), HasSubstr(message));
  }
}

// As Claude Code and Anthropic's packages send them.
TEST_F(Messages, FieldsThatClientsSendAnywayAreTaken) {
  const Reply reply =
      server_->post("/v1/messages?beta=true", R"({"max_tokens": 100, "stream": false,
      "system": [{"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}],
      "messages": [{"role": "system", "content": "Agents: none."}, {"role": "user", "content": [{"type": "text",
        "text": "plain", "cache_control": {"type": "ephemeral", "ttl": "5m"}}]}],
      "tools": [{"name": "f", "input_schema": {"type": "object"}, "cache_control": {"type": "ephemeral"}}],
      "metadata": {"user_id": "u"}, "thinking": {"type": "enabled", "budget_tokens": 1024}, "temperature": 1,
      "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
      "output_config": {"effort": "medium"}, "service_tier": "auto", "stop_sequences": [], "betas": ["x"],
      "mirostat": 0, "n": 1, "logprobs": false})",
                    "anthropic-beta: context-management-2025-06-27\r\nanthropic-version: 2023-06-01\r\n");
  ASSERT_EQ(reply.status, 200u) << reply.body;
  EXPECT_EQ(reply.parsed().at("content").at(0).at("text"), "Just words; no more.");
}

TEST_F(Messages, WhatTheSystemSaysBetweenOthersComesFirst) {
  const auto chat_of = [](std::string_view body) { return chat_of_messages(json::parse(body).as_object()); };
  const auto chat = chat_of(R"({"system": [{"type": "text", "text": "Be kind."}], "messages": [
      {"role": "user", "content": "hi"}, {"role": "system", "content": [{"type": "text", "text": "It is late."}]},
      {"role": "assistant", "content": "yes?"}, {"role": "user", "content": "plain"},
      {"role": "system", "content": "Be brief."}]})");
  ASSERT_TRUE(chat) << chat.error().message;
  const json::array& messages = chat->at("messages").as_array();
  ASSERT_EQ(messages.size(), 4u);
  EXPECT_EQ(messages[0], json::value({{"role", "system"}, {"content", "Be kind.\n\nIt is late.\n\nBe brief."}}));
  EXPECT_EQ(messages[3].at("content"), "plain");
  EXPECT_FALSE(chat->contains("continue_final_message"));
  const auto refusal = [&](std::string_view message) {
    const auto refused = chat_of(fmt::format(R"({{"messages": [{{"role": "user", "content": "hi"}}, {}]}})", message));
    return refused ? "" : refused.error().message;
  };
  EXPECT_EQ(refusal(R"({"role": "system"})"), "'messages[1].content' is missing");
  EXPECT_THAT(refusal(R"({"role": "system", "content": [{"type": "image"}]})"), HasSubstr("messages[1].content"));
  EXPECT_EQ(refusal(R"({"role": "tool", "content": "x"})"), "'messages[1].role' must be user, assistant or system");
}

TEST_F(Messages, AnAnswerThatOnlyReasonedCanBeSentBack) {
  const Reply reply = server_->post("/v1/messages", R"({"max_tokens": 20, "messages": [
      {"role": "user", "content": "weather?"},
      {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm.", "signature": ""}]},
      {"role": "user", "content": "plain"}]})");
  EXPECT_EQ(reply.status, 200u) << reply.body;
}

TEST_F(Messages, EndWhereTheyAreTold) {
  const json::value cut = ask("plain", R"("stop_sequences": ["; no"])").parsed();
  EXPECT_EQ(cut.at("content").at(0).at("text"), "Just words");
  EXPECT_EQ(cut.at("stop_reason"), "stop_sequence");
  EXPECT_EQ(cut.at("stop_sequence"), "; no");
  const json::value brief =
      server_->post("/v1/messages", R"({"max_tokens": 3, "messages": [{"role": "user", "content": "plain"}]})")
          .parsed();
  EXPECT_EQ(brief.at("stop_reason"), "max_tokens");
}

TEST_F(Messages, TokensAreCountedAsTheyAreUsed) {
  const char* body = R"("system": "Be kind.", "messages": [{"role": "user", "content": "plain"}])";
  const std::int64_t counted =
      server_->post("/v1/messages/count_tokens", fmt::format("{{{}}}", body)).parsed().at("input_tokens").as_int64();
  const json::value usage =
      server_->post("/v1/messages", fmt::format(R"({{"max_tokens": 1, {}}})", body)).parsed().at("usage");
  EXPECT_EQ(usage.at("input_tokens").as_int64() + usage.at("cache_read_input_tokens").as_int64(), counted);
}

TEST_F(Messages, ErrorsHaveAnthropicsShape) {
  const struct {
    const char* body;
    const char* message;
  } cases[] = {
      {R"({"max_tokens": 5})", "'messages' is missing"},
      {R"({"messages": [{"role": "system", "content": "x"}]})",
       "'messages' must have one of the user or the assistant"},
      {R"({"messages": [{"role": "user", "content": [{"type": "image"}]}]})",
       "'messages[0].content[0]' is of type 'image', and this server takes text only"},
      {R"({"messages": [{"role": "user", "content": [{"type": "tool_use", "id": "1", "name": "f"}]}]})",
       "'messages[0].content[0]' of type 'tool_use' cannot be in a message of the user"},
      {R"({"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "web_search_20250305", "name": "w"}]})",
       "'tools[0]' is of type 'web_search_20250305', which this server does not have"},
      {R"({"messages": [{"role": "user", "content": "x"}], "temperature": "hot"})", "'temperature' must be a number"},
      {R"({"messages": [{"role": "user", "content": "x"}], "stop_sequences": [""]})",
       "'stop_sequences' must have no empty string"},
      {R"({"messages": )", "the body is not JSON: incomplete JSON at byte 13"},
  };
  for (const auto& [body, message] : cases) {
    const Reply reply = server_->post("/v1/messages", body);
    EXPECT_EQ(reply.status, 400u) << body;
    EXPECT_EQ(reply.parsed().at("type"), "error");
    EXPECT_EQ(reply.parsed().at("error").at("type"), "invalid_request_error");
    EXPECT_EQ(reply.error_message(), message);
  }
  const Reply unknown =
      server_->post("/v1/messages", R"({"model": "claude", "messages": [{"role": "user", "content": "x"}]})");
  EXPECT_EQ(unknown.status, 404u);
  EXPECT_EQ(unknown.parsed().at("error").at("type"), "not_found_error");
}

TEST(MessagesKeys, TheKeyMayComeAsAnthropicsClientsSendIt) {
  const auto server = testing::serve_answers({.keys = {"secret"}});
  const char* body = R"({"max_tokens": 3, "messages": [{"role": "user", "content": "plain"}]})";
  EXPECT_EQ(server->post("/v1/messages", body, "x-api-key: secret\r\n").status, 200u);
  EXPECT_EQ(server->post("/v1/messages", body, "Authorization: Bearer secret\r\n").status, 200u);
  for (const char* header : {"", "x-api-key: wrong\r\n"}) {
    const Reply reply = server->post("/v1/messages", body, header);
    EXPECT_EQ(reply.status, 401u);
    EXPECT_EQ(reply.parsed().at("error").at("type"), "authentication_error");
  }
}

}  // namespace
}  // namespace quire::server
