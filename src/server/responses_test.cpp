#include "quire/server/responses.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/server/answers_testing.h"

namespace quire::server {
namespace {

using ::testing::HasSubstr;
using testing::kAnswersArguments;
using testing::named_events;
using testing::Reply;
using testing::Running;
namespace json = boost::json;

constexpr const char* kTools =
    R"("tools": [{"type": "function", "name": "get_weather", "parameters": {"type": "object", "properties":
       {"city": {"type": "string"}, "days": {"type": "integer"}}}}])";

class Responses : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { server_ = testing::serve_answers(); }
  static void TearDownTestSuite() { server_.reset(); }
  static Reply ask(const json::value& input, std::string_view more = {}) {
    return server_->post("/v1/responses",
                         fmt::format(R"({{"input": {}{}{}}})", json::serialize(input), more.empty() ? "" : ", ", more));
  }
  static std::string id_of(const Reply& reply) {
    EXPECT_EQ(reply.status, 200u) << reply.body;
    return reply.status == 200 ? std::string(reply.parsed().at("id").as_string()) : "";
  }
  static Reply send_delete(const std::string& path) {
    testing::Client client(server_->port());
    client.send(fmt::format("DELETE {} HTTP/1.1\r\nHost: localhost\r\n\r\n", path));
    return client.read_reply();
  }
  static inline std::unique_ptr<Running> server_;
};

TEST_F(Responses, HaveItemsOfTextReasoningAndCalls) {
  const json::value plain = ask("plain").parsed();
  EXPECT_EQ(plain.at("object"), "response");
  EXPECT_EQ(plain.at("status"), "completed");
  EXPECT_EQ(plain.at("output").at(0).at("type"), "message");
  EXPECT_EQ(plain.at("output").at(0).at("content").at(0).at("text"), "Just words; no more.");
  EXPECT_EQ(plain.at("usage").at("total_tokens").as_int64(),
            plain.at("usage").at("input_tokens").as_int64() + plain.at("usage").at("output_tokens").as_int64());
  const json::value thought = ask("think").parsed();
  EXPECT_EQ(thought.at("output").at(0).at("type"), "reasoning");
  const json::value& usage = thought.at("usage");
  EXPECT_GT(usage.at("output_tokens_details").at("reasoning_tokens").as_int64(), 0);
  EXPECT_LT(usage.at("output_tokens_details").at("reasoning_tokens").as_int64(), usage.at("output_tokens").as_int64());
  EXPECT_EQ(plain.at("usage").at("output_tokens_details").at("reasoning_tokens").as_int64(), 0);
  EXPECT_EQ(thought.at("output").at(1).at("content").at(0).at("text"), "It will be warm!");
  const json::value call = ask("weather?", kTools).parsed();
  ASSERT_EQ(call.at("output").as_array().size(), 2u) << json::serialize(call);
  EXPECT_EQ(call.at("output").at(1).at("type"), "function_call");
  EXPECT_EQ(call.at("output").at(1).at("name"), "get_weather");
  EXPECT_EQ(json::parse(call.at("output").at(1).at("arguments").as_string()), json::parse(kAnswersArguments));
  const json::value cut = ask("plain", R"("max_output_tokens": 3)").parsed();
  EXPECT_EQ(cut.at("status"), "incomplete");
  EXPECT_EQ(cut.at("incomplete_details").at("reason"), "max_output_tokens");
}

TEST_F(Responses, AStreamEndsWithWhatTheWholeAnswerIs) {
  for (const char* input : {"plain", "think", "weather?"}) {
    const json::value whole = ask(input, kTools).parsed();
    const Reply stream = ask(input, std::string(kTools) + R"(, "stream": true)");
    std::string text, arguments, reasoning;
    std::int64_t number = 0;
    json::array items;
    json::object last;
    for (const auto& [name, data] : named_events(stream.body)) {
      EXPECT_EQ(data.at("sequence_number").as_int64(), number++);
      if (name == "response.output_text.delta") text += data.at("delta").as_string();
      if (name == "response.reasoning_text.delta") reasoning += data.at("delta").as_string();
      if (name == "response.function_call_arguments.delta") arguments += data.at("delta").as_string();
      if (name == "response.output_item.done") items.push_back(data.at("item"));
      if (name == "response.completed") last = data.at("response").as_object();
    }
    ASSERT_FALSE(last.empty()) << stream.body;
    EXPECT_EQ(json::value(items), last.at("output"));
    ASSERT_EQ(items.size(), whole.at("output").as_array().size());
    for (std::size_t i = 0; i < items.size(); ++i) {
      const json::value& item = items[i];
      EXPECT_EQ(item.at("type"), whole.at("output").at(i).at("type"));
      if (item.at("type") == "message") {
        EXPECT_EQ(item.at("content").at(0).at("text").as_string(), text);
        EXPECT_EQ(item.at("content"), whole.at("output").at(i).at("content"));
      } else if (item.at("type") == "reasoning") {
        EXPECT_EQ(item.at("content").at(0).at("text").as_string(), reasoning);
      } else {
        EXPECT_EQ(item.at("arguments").as_string(), arguments);
        EXPECT_EQ(item.at("arguments"), whole.at("output").at(i).at("arguments"));
      }
    }
    EXPECT_EQ(server_->get(fmt::format("/v1/responses/{}", std::string_view(last.at("id").as_string()))).parsed(),
              json::value(last))
        << "it is kept as the client got it";
  }
}

TEST_F(Responses, ContinueAnEarlierOne) {
  const Reply first = ask("weather?", kTools);
  const std::string id = id_of(first);
  const json::value result =
      json::parse(fmt::format(R"([{{"type": "function_call_output", "call_id": {}, "output": "sunny"}}])",
                              json::serialize(first.parsed().at("output").at(1).at("call_id"))));
  const Reply second = ask(result, fmt::format(R"("previous_response_id": "{}", {})", id, kTools));
  ASSERT_EQ(second.status, 200u) << second.body;
  EXPECT_EQ(second.parsed().at("output").at(0).at("content").at(0).at("text"), "It is sunny in Rome, 24 degrees.");
  EXPECT_EQ(second.parsed().at("previous_response_id"), json::value(id));
  EXPECT_GT(second.parsed().at("usage").at("input_tokens_details").at("cached_tokens").as_int64(), 0)
      << "the pool has the prefix";
  // The same as one request with all items.
  json::array all = {json::object{{"role", "user"}, {"content", "weather?"}}};
  const json::value output = first.parsed().at("output");
  for (const json::value& item : output.as_array()) all.push_back(item);
  all.push_back(result.at(0));
  const Reply whole = ask(all, kTools);
  EXPECT_EQ(whole.parsed().at("usage").at("input_tokens"), second.parsed().at("usage").at("input_tokens"));
  EXPECT_EQ(whole.parsed().at("output").at(0).at("content"), second.parsed().at("output").at(0).at("content"));
  // A third one, after the first was deleted.
  EXPECT_EQ(send_delete("/v1/responses/" + id).parsed().at("deleted"), json::value(true));
  EXPECT_EQ(server_->get("/v1/responses/" + id).status, 404u);
  EXPECT_EQ(ask("plain", fmt::format(R"("previous_response_id": "{}")", id_of(second))).status, 200u);
  const Reply gone = ask("plain", fmt::format(R"("previous_response_id": "{}")", id));
  EXPECT_EQ(gone.status, 404u);
  EXPECT_EQ(gone.parsed().at("error").at("code"), "previous_response_not_found");
}

TEST_F(Responses, CanBeReadAgainWithTheirItems) {
  const std::string id = id_of(ask("plain", R"("metadata": {"topic": "demo"}, "instructions": "Be kind.")"));
  const json::value kept = server_->get("/v1/responses/" + id).parsed();
  EXPECT_EQ(kept.at("metadata").at("topic"), "demo");
  EXPECT_EQ(kept.at("instructions"), "Be kind.");
  const json::value items = server_->get("/v1/responses/" + id + "/input_items").parsed();
  EXPECT_EQ(items.at("data").at(0).at("content").at(0).at("text"), "plain");
  EXPECT_EQ(items.at("has_more"), json::value(false));
  const std::string unkept = id_of(ask("plain", R"("store": false)"));
  EXPECT_EQ(server_->get("/v1/responses/" + unkept).status, 404u);
  EXPECT_EQ(server_->get("/v1/responses/" + unkept).parsed().at("error").at("code"), "response_not_found");
}

TEST_F(Responses, GiveTheirInputPageByPage) {
  json::array input;
  for (int i = 0; i < 25; ++i) {
    input.push_back(json::object{{"role", "user"}, {"content", fmt::format("plain {}", i)}});
    if (i == 7) input.back().as_object()["id"] = "my/7";
  }
  const std::string path = "/v1/responses/" + id_of(ask(input)) + "/input_items";
  const auto page = [&](const std::string& query) {
    const Reply reply = server_->get(path + query);
    EXPECT_EQ(reply.status, 200u) << reply.body;
    return reply.parsed();
  };
  const json::value newest = page("");
  EXPECT_EQ(newest.at("data").as_array().size(), 20u);
  EXPECT_EQ(newest.at("has_more"), json::value(true));
  EXPECT_EQ(newest.at("data").at(0).at("content"), "plain 24");
  EXPECT_EQ(newest.at("first_id"), newest.at("data").at(0).at("id"));
  // All pages together are all items.
  for (const char* const order : {"asc", "desc"}) {
    std::vector<std::string> all;
    std::string after;
    for (bool more = true; more && all.size() < 100;) {
      const json::value next = page(fmt::format("?limit=4&order={}{}", order, after));
      for (const json::value& item : next.at("data").as_array()) all.emplace_back(item.at("content").as_string());
      more = next.at("has_more").as_bool();
      after = fmt::format("&after={}", std::string_view(next.at("last_id").as_string()));
    }
    ASSERT_EQ(all.size(), 25u) << order;
    EXPECT_EQ(all[0], std::string_view(order) == "asc" ? "plain 0" : "plain 24");
  }
  EXPECT_EQ(page("?order=asc&after=my%2F7&limit=1").at("data").at(0).at("content"), "plain 8");
  for (const char* const wrong : {"?limit=0", "?limit=101", "?limit=x", "?order=up", "?after=nothing"}) {
    EXPECT_EQ(server_->get(path + wrong).status, 400u) << wrong;
  }
}

TEST_F(Responses, ItemsCanBeReferredTo) {
  const Reply first = ask("weather?", kTools);
  const json::value output = first.parsed().at("output");
  const json::value items = server_->get("/v1/responses/" + id_of(first) + "/input_items").parsed().at("data");
  json::array refers = {json::object{{"type", "item_reference"}, {"id", items.at(0).at("id")}}};
  for (const json::value& item : output.as_array()) refers.push_back(json::object{{"id", item.at("id")}});
  const json::object result{
      {"type", "function_call_output"}, {"call_id", output.at(1).at("call_id")}, {"output", "sunny"}};
  refers.push_back(result);
  const Reply second = ask(refers, kTools);
  ASSERT_EQ(second.status, 200u) << second.body;
  EXPECT_EQ(second.parsed().at("output").at(0).at("content").at(0).at("text"), "It is sunny in Rome, 24 degrees.");
  json::array all = {json::object{{"role", "user"}, {"content", "weather?"}}};
  for (const json::value& item : output.as_array()) all.push_back(item);
  all.push_back(result);
  EXPECT_EQ(ask(all, kTools).parsed().at("usage").at("input_tokens"), second.parsed().at("usage").at("input_tokens"));
  // What is kept are the items themselves.
  send_delete("/v1/responses/" + id_of(first));
  EXPECT_EQ(ask(refers, kTools).status, 400u);
  EXPECT_EQ(ask("plain", fmt::format(R"("previous_response_id": "{}")", id_of(second))).status, 200u);
}

TEST_F(Responses, ThatOnlyReasonedCanBeContinued) {
  const Reply cut = ask("think", R"("max_output_tokens": 6)");
  ASSERT_EQ(cut.parsed().at("output").as_array().size(), 1u) << cut.body;
  ASSERT_EQ(cut.parsed().at("output").at(0).at("type"), "reasoning");
  const Reply next = ask("plain", fmt::format(R"("previous_response_id": "{}")", id_of(cut)));
  EXPECT_EQ(next.status, 200u) << next.body;
}

// A reference is short, and what it refers to may be long.
TEST_F(Responses, ReferencesPutInNoMoreThanABodyMayHave) {
  const json::object item{
      {"type", "message"}, {"role", "user"}, {"content", "plain"}, {"note", std::string(3 << 20, 'x')}};
  const Reply first = ask(json::array{item});
  const json::value id =
      server_->get("/v1/responses/" + id_of(first) + "/input_items").parsed().at("data").at(0).at("id");
  const json::object reference{{"id", id}};
  EXPECT_EQ(ask(json::array(2, reference)).status, 200u);
  EXPECT_EQ(ask(json::array(20, reference)).error_message(),
            "'input[2]' is too much: references may put in 8388608 bytes together");
  const Reply small = ask("plain");
  const json::object to_small{{"id", small.parsed().at("output").at(0).at("id")}};
  EXPECT_EQ(ask(json::array(2000, to_small)).error_message(),
            "'input[1024]' is one reference too many: there may be 1024");
}

TEST_F(Responses, RefuseWhatTheServerDoesNotHaveByName) {
  const struct {
    const char* body;
    const char* message;
  } cases[] = {
      {R"({})", "'input' is missing"},
      {R"({"input": 5})", "'input' must be a string or an array of items"},
      {R"({"input": [{"role": "wizard", "content": "x"}]})",
       "'input[0].role' must be one of user, assistant, system, developer"},
      {R"({"input": [{"type": "function_call_output", "output": "x"}]})", "'input[0].call_id' is missing"},
      {R"({"input": [{"type": "item_reference", "id": "x"}]})",
       "'input[0]' refers to the item 'x', and no response that is kept has one of this id"},
      {R"({"input": [{"type": "item_reference"}]})", "'input[0].id' is missing"},
      {R"({"input": [{"role": "user", "content": [{"type": "input_image"}]}]})",
       "'input[0].content[0]' is of type 'input_image', and this server takes text only"},
      {R"({"input": "x", "tools": [{"type": "web_search"}]})",
       "'tools[0]' is of type 'web_search', and this server has only functions"},
      {R"({"input": "x", "background": true})", "'background' is not supported"},
      {R"({"input": "x", "truncation": "auto"})", "'truncation' is not supported, except as \"disabled\""},
      {R"({"input": "x", "temperature": "hot"})", "'temperature' must be a number"},
      {R"({"input": "x", "reasoning": {"effort": 5}})", "'reasoning.effort' must be a string"},
      {R"({"input": "x", "text": {"format": {"type": "json_schema", "name": "n", "schema": 5}}})",
       "'text.format.schema' must be a JSON Schema: an object, or its text"},
      {R"({"input": "x", "text": {"format": {"type": "json_object", "schema": 5}}})",
       "'text.format.schema' must be a JSON Schema: an object, or its text"},
      {R"({"input": "x", "text": {"format": {"type": "json_object"}}, "guided_regex": "a"})",
       "'guided_regex' cannot be used together with 'text.format'"},
      {R"({"input": "x", "guided_choice": []})", "'guided_choice' must be an array of strings, and not an empty one"},
      {R"({"input": "x", "guided_regex": "a", "grammar": "root ::= \"a\""})",
       "'grammar' cannot be used together with 'guided_regex'"},
      {R"({"input": "x", "structured_outputs": {"structural_tag": "x"}})",
       "'structured_outputs.structural_tag' is not supported"},
      {R"({"input": "x", "response_format": {"type": "json_object"}})",
       "'response_format' is not supported, except as {\"type\":\"text\"}: send 'text.format'"},
      {R"({"input": "x", "mirostat": 2})", "'mirostat' is not supported, except as 0"},
      {R"({"input": "x", "max_tokens": 5})", "'max_tokens' is not supported: send 'max_output_tokens'"},
      {R"({"input": "x", "reasoning_effort": "low"})", "'reasoning_effort' is not supported: send 'reasoning.effort'"},
      {R"({"input": "x", "n": 2})", "'n' is not supported, except as 1"},
      {R"({"input": "x", "stop_token_ids": [-1]})", "'stop_token_ids' must be token ids of the model"},
  };
  for (const auto& [body, message] : cases) {
    const Reply reply = server_->post("/v1/responses", body);
    EXPECT_EQ(reply.status, 400u) << body;
    EXPECT_EQ(reply.error_message(), message);
  }
}

TEST_F(Responses, FieldsThatClientsSendAnywayAreTaken) {
  const Reply reply = ask("plain", R"("metadata": {"a": "b"}, "include": ["reasoning.encrypted_content"],
      "store": false, "user": "me", "service_tier": "auto", "text": {"format": {"type": "text"}, "verbosity": "low"},
      "truncation": "disabled", "prompt_cache_key": "k", "safety_identifier": "s", "top_logprobs": 0,
      "reasoning": {"effort": null, "summary": "auto"}, "stream_options": {"include_obfuscation": false},
      "max_tool_calls": null, "background": false, "mirostat": 0, "n": 1, "response_format": {"type": "text"})");
  ASSERT_EQ(reply.status, 200u) << reply.body;
  EXPECT_EQ(reply.parsed().at("output").at(0).at("content").at(0).at("text"), "Just words; no more.");
}

TEST_F(Responses, CallTheToolThatIsChosen) {
  // Arguments with few values: a model that would write something else soon comes to an end.
  const std::string few = R"("tools": [{"type": "function", "name": "get_weather", "parameters": {"type": "object",
      "properties": {"city": {"enum": ["Rome", "Oslo"]}}, "required": ["city"], "additionalProperties": false}},
      {"type": "function", "name": "get_time", "parameters": {"type": "object", "properties": {},
      "additionalProperties": false}}], "parallel_tool_calls": false, "seed": 7, "max_output_tokens": 2000,
      "tool_choice": )";
  const auto calls = [](const Reply& reply) {
    std::vector<std::string> names;
    const json::value answer = reply.parsed();
    for (const json::value& item : answer.at("output").as_array()) {
      EXPECT_NE(item.at("type"), "message") << reply.body;
      if (item.at("type") == "function_call") names.emplace_back(item.at("name").as_string());
    }
    return names;
  };
  for (const char* const input : {"plain", "weather?"}) {
    const Reply named = ask(input, few + R"({"type": "function", "name": "get_time"})");
    ASSERT_EQ(named.status, 200u) << named.body;
    EXPECT_THAT(calls(named), ::testing::ElementsAre("get_time"));
    EXPECT_EQ(named.parsed().at("tool_choice"), json::parse(R"({"type": "function", "name": "get_time"})"));
    const Reply required = ask(input, few + R"("required")");
    ASSERT_EQ(required.status, 200u) << required.body;
    EXPECT_EQ(calls(required).size(), 1u) << required.body;
  }
  const json::value none = ask("weather?", std::string(kTools) + R"(, "tool_choice": "none")").parsed();
  ASSERT_EQ(none.at("output").as_array().size(), 1u) << json::serialize(none);
  EXPECT_EQ(none.at("output").at(0).at("content").at(0).at("text"),
            json::value(testing::kAnswersScripts.at("<|call|>")));
  EXPECT_EQ(ask("plain", few + R"({"type": "function", "name": "other"})").error_message(),
            "'tool_choice' names the function 'other', and 'tools' has none of that name");
  EXPECT_EQ(ask("plain", few + R"({"type": "function"})").error_message(),
            R"('tool_choice' must be "auto", "none", "required", or of type function with a name)");
  EXPECT_EQ(ask("plain", R"("tool_choice": "required")").error_message(), "'tool_choice' needs 'tools'");
}

TEST(ResponsesOfKeys, AreNotSeenByOthers) {
  const auto server = testing::serve_answers({.keys = {"one", "two"}});
  const Reply reply = server->post("/v1/responses", R"({"input": "plain"})", "Authorization: Bearer one\r\n");
  const std::string path = "/v1/responses/" + std::string(reply.parsed().at("id").as_string());
  EXPECT_EQ(server->get(path, "Authorization: Bearer one\r\n").status, 200u);
  EXPECT_EQ(server->get(path, "Authorization: Bearer two\r\n").status, 404u);
  EXPECT_EQ(server->get(path).status, 401u);
  EXPECT_THAT(server->get("/metrics", "Authorization: Bearer one\r\n").body, HasSubstr("\nquire_responses 1\n"));
}

}  // namespace
}  // namespace quire::server
