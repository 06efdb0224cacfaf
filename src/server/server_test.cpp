#include "quire/server/server.h"

#include <future>
#include <set>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/server/server_testing.h"

namespace quire::server {
namespace {

using namespace std::chrono_literals;
using testing::Client;
using testing::events;
using testing::eventually;
using ::testing::HasSubstr;
using testing::Reply;
using testing::Running;
namespace json = boost::json;
using testing::kLong;
using testing::Streamed;
using testing::streamed;
using testing::text_of;

// --- answers

TEST(ServerAnswers, AStreamSaysWhatTheWholeAnswerSays) {
  Running server;
  for (const char* path : {"/v1/completions", "/v1/chat/completions"}) {
    const std::string what = std::string_view(path) == "/v1/completions"
                                 ? R"("prompt": "Once upon a time", "max_tokens": 60)"
                                 : R"("messages": [{"role": "user", "content": "Tell me a story."}], "max_tokens": 60)";
    const Reply whole = server.post(path, fmt::format(R"({{{}, "seed": 5, "n": 3}})", what));
    const Reply stream = server.post(
        path,
        fmt::format(R"({{{}, "seed": 5, "n": 3, "stream": true, "stream_options": {{"include_usage": true}}}})", what));
    ASSERT_EQ(whole.status, 200u) << whole.body;
    ASSERT_EQ(stream.status, 200u) << stream.body;
    EXPECT_EQ(stream.header("content-type"), "text/event-stream");
    const Streamed parts = streamed(stream.body);
    EXPECT_TRUE(parts.done && stream.complete);
    const json::value answer = whole.parsed();
    ASSERT_EQ(answer.at("choices").as_array().size(), 3u);
    for (const json::value& choice : answer.at("choices").as_array()) {
      const std::int64_t index = choice.at("index").as_int64();
      const json::value& text =
          choice.as_object().contains("text") ? choice.at("text") : choice.at("message").at("content");
      EXPECT_EQ(text.as_string(), parts.texts.at(index));
      EXPECT_EQ(choice.at("finish_reason").as_string(), parts.finishes.at(index));
    }
    EXPECT_NE(parts.texts.at(0), parts.texts.at(1));
    ASSERT_TRUE(parts.usage.has_value());
    EXPECT_EQ(parts.usage->at("completion_tokens"), answer.at("usage").at("completion_tokens"));
    // The second time the prompt is in the cache.
    EXPECT_GT(parts.usage->at("prompt_tokens_details").at("cached_tokens").as_int64(), 0);
  }
}

TEST(ServerAnswers, PromptsInEveryFormHaveTheSameAnswer) {
  Running server;
  const json::value tokens =
      server.post("/tokenize", R"({"content": "Once upon a time", "add_special": true})").parsed().at("tokens");
  const std::string ids = json::serialize(tokens);
  const std::string text =
      text_of(server.post("/v1/completions", R"({"prompt": "Once upon a time", "seed": 3, "max_tokens": 20})"));
  EXPECT_EQ(
      text_of(server.post("/v1/completions", fmt::format(R"({{"prompt": {}, "seed": 3, "max_tokens": 20}})", ids))),
      text);
  const Reply several = server.post(
      "/v1/completions", R"({"prompt": ["The cat", "Once upon a time"], "seed": 3, "max_tokens": 20, "n": 2})");
  ASSERT_EQ(several.status, 200u);
  const json::value answer = several.parsed();
  ASSERT_EQ(answer.at("choices").as_array().size(), 4u);
  EXPECT_EQ(answer.at("choices").at(2).at("text").as_string(), text);
  const Reply arrays =
      server.post("/v1/completions", fmt::format(R"({{"prompt": [{}, {}], "seed": 3, "max_tokens": 20}})", ids, ids));
  EXPECT_EQ(arrays.parsed().at("choices").at(1).at("text").as_string(), text);
  const Reply echo =
      server.post("/v1/completions", R"({"prompt": "Once upon a time", "seed": 3, "max_tokens": 20, "echo": true})");
  EXPECT_EQ(text_of(echo), "Once upon a time" + text);
  EXPECT_EQ(server.post("/detokenize", fmt::format(R"({{"tokens": {}}})", ids)).parsed().at("content").as_string(),
            "Once upon a time");
}

TEST(ServerAnswers, StopWhereTheyAreTold) {
  Running server;
  const std::string full =
      text_of(server.post("/v1/completions", R"({"prompt": "Once upon a time", "seed": 3, "max_tokens": 40})"));
  const std::string stop = full.substr(full.size() / 2, 5);
  const Reply cut = server.post(
      "/v1/completions",
      json::serialize(json::object{{"prompt", "Once upon a time"}, {"seed", 3}, {"max_tokens", 40}, {"stop", stop}}));
  EXPECT_EQ(text_of(cut), full.substr(0, full.find(stop)));
  EXPECT_EQ(cut.parsed().at("choices").at(0).at("finish_reason").as_string(), "stop");
  // A bias of -100 forbids a token; a bias of +100 makes it the only one.
  const Reply biased = server.post("/v1/completions",
                                   R"({"prompt": "Once", "max_tokens": 5, "logit_bias": {"300": 100}, "logprobs": 0})");
  std::set<std::string> tokens;
  const json::value parsed = biased.parsed();
  for (const json::value& token : parsed.at("choices").at(0).at("logprobs").at("tokens").as_array()) {
    tokens.emplace(token.as_string());
  }
  EXPECT_EQ(tokens.size(), 1u);
}

TEST(ServerAnswers, LogprobsComeInBothShapes) {
  Running server;
  const json::value plain =
      server
          .post("/v1/completions",
                R"({"prompt": "Once upon a time", "max_tokens": 6, "logprobs": 3, "temperature": 0})")
          .parsed();
  const json::value& logprobs = plain.at("choices").at(0).at("logprobs");
  ASSERT_EQ(logprobs.at("tokens").as_array().size(), 6u);
  EXPECT_EQ(logprobs.at("token_logprobs").as_array().size(), 6u);
  EXPECT_EQ(logprobs.at("top_logprobs").at(0).as_object().size(), 3u);
  std::string joined;
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(logprobs.at("text_offset").at(i).to_number<std::size_t>(), joined.size());
    joined += logprobs.at("tokens").at(i).as_string();
  }
  EXPECT_EQ(joined, plain.at("choices").at(0).at("text").as_string());

  const Reply stream = server.post(
      "/v1/chat/completions",
      R"({"messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 6, "logprobs": true, "top_logprobs": 2, "temperature": 0, "stream": true})");
  std::string text, tokens;
  for (const std::string& event : events(stream.body)) {
    if (event == "[DONE]") continue;
    const json::value choice = json::parse(event).at("choices").at(0);
    if (const auto* content = choice.at("delta").as_object().if_contains("content")) text += content->as_string();
    if (choice.at("logprobs").is_null()) continue;
    for (const json::value& token : choice.at("logprobs").at("content").as_array()) {
      tokens += token.at("token").as_string();
      EXPECT_EQ(token.at("top_logprobs").as_array().size(), 2u);
      EXPECT_EQ(token.at("bytes").as_array().size(), token.at("token").as_string().size());
    }
  }
  EXPECT_EQ(text, tokens);
  EXPECT_FALSE(text.empty());
}

TEST(ServerAnswers, UnderLoadAreThoseGivenAlone) {
  Running server({}, {.max_sequences = 6});
  constexpr int kClients = 16;
  const auto body = [](int i, bool stream) {
    return fmt::format(R"({{"prompt": "Once upon a time there was a {}", "seed": {}, "max_tokens": {}, "stream": {}}})",
                       i % 3 == 0 ? "dog" : "little bird", i, 10 + i, stream);
  };
  std::vector<std::string> alone;
  for (int i = 0; i < kClients; ++i) alone.push_back(text_of(server.post("/v1/completions", body(i, false))));
  std::vector<std::future<std::string>> together;
  for (int i = 0; i < kClients; ++i) {
    together.push_back(std::async(std::launch::async, [&, i] {
      const Reply reply = server.post("/v1/completions", body(i, i % 2 == 0));
      EXPECT_EQ(reply.status, 200u);
      if (i % 2 != 0) return text_of(reply);
      Streamed parts = streamed(reply.body);
      EXPECT_TRUE(parts.done);
      return parts.texts[0];
    }));
  }
  for (int i = 0; i < kClients; ++i) EXPECT_EQ(together[i].get(), alone[i]) << i;
  EXPECT_TRUE(server.comes_to_rest());
}

TEST(ServerAnswers, HybridAndRecurrentModelsAreServedToo) {
  for (const char* file : {"quire-demo-hybrid-q8_0.gguf", "quire-demo-mamba2-q8_0.gguf"}) {
    Running server({}, {}, file);
    const std::string body =
        R"({"prompt": "Once upon a time there was a little bird who lived in a tall tree near the river", "seed": 3, "max_tokens": 30})";
    const std::string first = text_of(server.post("/v1/completions", body));
    EXPECT_EQ(text_of(server.post("/v1/completions", body)), first);
    const json::value pool = server.pool();
    EXPECT_TRUE(pool.as_object().contains("states"));
    EXPECT_EQ(
        static_cast<std::size_t>(pool.at("states").at("cached").as_int64() + pool.at("states").at("held").as_int64()),
        pool.at("states").at("slots").as_array().size());
    EXPECT_THAT(server.get("/metrics").body, HasSubstr("quire_checkpoint_unit_tokens 16\n"));
    EXPECT_TRUE(server.comes_to_rest());
  }
}

// --- refusals

TEST(ServerRefusals, HaveOpenAisShapeAndStatus) {
  Running server;
  const struct {
    const char* method;
    const char* path;
    std::string body;
    unsigned status;
    const char* code;
  } cases[] = {
      {"GET", "/nothing", "", 404, "not_found"},
      {"GET", "/v1/models/other", "", 404, "model_not_found"},
      {"GET", "/v1/completions", "", 405, "method_not_allowed"},
      {"DELETE", "/health", "", 405, "method_not_allowed"},
      {"POST", "/v1/completions", "", 400, nullptr},
      {"POST", "/v1/completions", "not json", 400, nullptr},
      {"POST", "/v1/completions", "{\"prompt\": \"\xff\"}", 400, nullptr},
      {"POST", "/v1/completions", R"({"prompt": "x", "temperature": "hot"})", 400, nullptr},
      {"POST", "/v1/completions", R"({"prompt": "x", "model": "gpt-4"})", 404, "model_not_found"},
      {"POST", "/v1/completions", json::serialize(json::object{{"prompt", std::string(20'000, 'z')}}), 400,
       "context_length_exceeded"},
      {"POST", "/v1/chat/completions", R"({"messages": []})", 400, nullptr},
      {"POST", "/tokenize", R"({"content": 5})", 400, nullptr},
      {"POST", "/detokenize", R"({"tokens": [-1]})", 400, nullptr},
  };
  for (const auto& [method, path, body, status, code] : cases) {
    Client client(server.port());
    client.send(fmt::format("{} {} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{}", method, path,
                            body.size(), body));
    const Reply reply = client.read_reply();
    EXPECT_EQ(reply.status, status) << method << " " << path << " " << reply.body;
    const json::value parsed = reply.parsed();
    const json::value& error = parsed.at("error");
    EXPECT_FALSE(error.at("message").as_string().empty());
    EXPECT_TRUE(error.at("type").is_string());
    EXPECT_TRUE(error.as_object().contains("param"));
    EXPECT_EQ(error.at("code"), code == nullptr ? json::value(nullptr) : json::value(code));
    EXPECT_EQ(reply.header("allow").empty(), status != 405);
  }
  EXPECT_EQ(server.post("/v1/completions", R"({"prompt": "x", "temperature": "hot"})")
                .parsed()
                .at("error")
                .at("param")
                .as_string(),
            "temperature");
  // After each of them the server still works.
  EXPECT_EQ(server.get("/health").status, 200u);
}

TEST(ServerRefusals, AFullQueueSaysTryAgainLater) {
  Running server({}, {.max_sequences = 1, .engine = {.queue_limit = 1}});
  const std::string body = fmt::format("{{{}, \"stream\": true}}", kLong);
  std::vector<Reply> refused;
  bool full = false;
  // If this thread loses its core for as long as an answer takes, the queue was not full all the time. Then once more.
  for (int i = 0; i < 20 && !full; ++i) {
    refused.clear();
    Client running(server.port()), waiting(server.port());
    running.post("/v1/completions", body);
    ASSERT_TRUE(eventually([&] { return server.stat("running") == 1; }));
    waiting.post("/v1/completions", body);
    ASSERT_TRUE(eventually([&] { return server.stat("waiting") == 1 || server.stat("running") == 0; }));
    for (int k = 0; k < 2; ++k) refused.push_back(server.post("/v1/completions", body));
    const json::value stats = server.pool().at("stats");
    full = stats.at("running") == 1 && stats.at("waiting") == 1;
    running.close();
    waiting.close();
    ASSERT_TRUE(server.comes_to_rest());
  }
  ASSERT_TRUE(full) << "two requests were never refused while an answer lasted";
  for (const Reply& reply : refused) {
    EXPECT_EQ(reply.status, 429u);
    EXPECT_EQ(reply.header("retry-after"), "1");
    EXPECT_EQ(reply.parsed().at("error").at("type").as_string(), "rate_limit_error");
  }
}

TEST(ServerRefusals, AnAnswerThatTakesTooLongIsCutOffWithAnError) {
  Running server({.request_timeout = 150ms});
  const Reply whole = server.post("/v1/completions", fmt::format("{{{}}}", kLong));
  EXPECT_EQ(whole.status, 504u);
  EXPECT_EQ(whole.error_message(), "the answer was not complete after 0.15 seconds");
  const Reply stream = server.post("/v1/completions", fmt::format("{{{}, \"stream\": true}}", kLong));
  EXPECT_EQ(stream.status, 200u);
  const Streamed parts = streamed(stream.body);
  EXPECT_EQ(parts.error, "the answer was not complete after 0.15 seconds");
  EXPECT_TRUE(parts.done && stream.complete);
  EXPECT_TRUE(server.comes_to_rest());
}

}  // namespace
}  // namespace quire::server
