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
using ::testing::HasSubstr;
using testing::Reply;
using testing::Running;
namespace json = boost::json;

// An answer that takes its time: some 1,900 tokens.
constexpr const char* kLong = R"("prompt": "Once upon a time", "max_tokens": 1900, "ignore_eos": true, "seed": 1)";

std::string text_of(const Reply& reply) {
  EXPECT_EQ(reply.status, 200u) << reply.body;
  if (reply.status != 200) return {};
  return std::string(reply.parsed().at("choices").at(0).at("text").as_string());
}

// The texts of a stream's choices, put together; expects it to be well-formed.
struct Streamed {
  std::map<std::int64_t, std::string> texts;
  std::map<std::int64_t, std::string> finishes;
  std::optional<json::value> usage;
  std::string error;
  bool done = false;
};
Streamed streamed(std::string_view body) {
  Streamed out;
  for (const std::string& event : events(body)) {
    EXPECT_FALSE(out.done) << "something behind [DONE]";
    if (event == "[DONE]") {
      out.done = true;
      continue;
    }
    const json::value value = json::parse(event);
    if (const auto* error = value.as_object().if_contains("error")) {
      out.error = error->at("message").as_string();
      continue;
    }
    if (const auto* usage = value.as_object().if_contains("usage"); usage != nullptr && !usage->is_null()) {
      out.usage = *usage;
    }
    for (const json::value& choice : value.at("choices").as_array()) {
      const std::int64_t index = choice.at("index").as_int64();
      if (const auto* text = choice.as_object().if_contains("text")) {
        out.texts[index] += text->as_string();
      } else if (const auto* content = choice.at("delta").as_object().if_contains("content")) {
        out.texts[index] += content->as_string();
      }
      if (!choice.at("finish_reason").is_null()) {
        EXPECT_FALSE(out.finishes.contains(index));
        out.finishes[index] = choice.at("finish_reason").as_string();
      }
    }
  }
  return out;
}

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
    // The second time the prompt was known.
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
  // A bias of -100 forbids a token; of +100 makes it the only one.
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
    client.send(
        fmt::format("{} {} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{}", method, path, body.size(), body));
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
  // Each of them left the connection, or at least the server, in order.
  EXPECT_EQ(server.get("/health").status, 200u);
}

TEST(ServerRefusals, AFullQueueSaysComeBackLater) {
  Running server({}, {.max_sequences = 1, .engine = {.queue_limit = 1}});
  std::vector<std::unique_ptr<Client>> clients;
  std::size_t refused = 0;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(std::make_unique<Client>(server.port()));
    clients.back()->post("/v1/completions", fmt::format("{{{}, \"stream\": true}}", kLong));
    std::this_thread::sleep_for(50ms);
  }
  for (int i = 2; i < 4; ++i) {
    const Reply reply = clients[static_cast<std::size_t>(i)]->read_reply();
    if (reply.status != 429) continue;
    ++refused;
    EXPECT_EQ(reply.header("retry-after"), "1");
    EXPECT_EQ(reply.parsed().at("error").at("type").as_string(), "rate_limit_error");
  }
  EXPECT_EQ(refused, 2u);
  clients.clear();
  EXPECT_TRUE(server.comes_to_rest());
}

TEST(ServerRefusals, AnAnswerThatTakesTooLongIsCutOffWithAWord) {
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

// --- clients that go, or do not read

TEST(ServerClients, WhoGoesAwayFreesEverythingAtOnce) {
  Running server;
  for (const bool stream : {false, true}) {
    std::vector<std::unique_ptr<Client>> clients;
    for (int i = 0; i < 8; ++i) {
      clients.push_back(std::make_unique<Client>(server.port()));
      clients.back()->post("/v1/completions", fmt::format("{{{}, \"stream\": {}, \"n\": 2}}", kLong, stream));
    }
    for (int i = 0; i < 200 && server.pool().at("stats").at("running").as_int64() < 16; ++i)
      std::this_thread::sleep_for(10ms);
    EXPECT_EQ(server.pool().at("stats").at("running").as_int64(), 16);
    clients.clear();
    EXPECT_TRUE(server.comes_to_rest());
  }
  EXPECT_EQ(server.pool().at("stats").at("cancelled").as_int64(), 16);
  EXPECT_THAT(server.get("/metrics").body, HasSubstr("quire_completions_total{outcome=\"gone\"} 16"));
}

TEST(ServerClients, WhoDoesNotReadIsCutOffAndNobodyElseSuffers) {
  Running server({.stream_buffer = 32 << 10});
  Client lazy(server.port(), 4096);
  lazy.post("/v1/completions", fmt::format("{{{}, \"stream\": true, \"logprobs\": 20, \"n\": 4}}", kLong));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(server.post("/v1/completions", R"({"prompt": "Hello", "max_tokens": 10})").status, 200u);
  }
  EXPECT_TRUE(server.comes_to_rest());
  EXPECT_THAT(server.get("/metrics").body, HasSubstr("quire_completions_total{outcome=\"too_slow\"} 1"));
  // If it reads after all, it is told.
  const Reply reply = lazy.read_reply();
  const Streamed parts = streamed(reply.body);
  EXPECT_THAT(parts.error, HasSubstr("the client reads too slowly: more than 32768 bytes wait for it"));
  EXPECT_TRUE(parts.done && reply.complete);
}

// --- keys, pages of others

TEST(ServerKeys, ReuseOnlyTheirOwnPrefixesAndCannotTellWhatOthersAsked) {
  Running server({.keys = {"alice", "bob"}});
  const std::string body =
      R"({"prompt": "Once upon a time there was a little bird who lived in a tall tree near the river", "max_tokens": 4})";
  EXPECT_EQ(server.post("/v1/completions", body).status, 401u);
  EXPECT_EQ(server.post("/v1/completions", body, "Authorization: Bearer mallory\r\n").status, 401u);
  EXPECT_EQ(server.get("/pool").status, 401u);
  EXPECT_EQ(server.get("/nothing").status, 401u);
  EXPECT_EQ(server.get("/health").status, 200u);
  EXPECT_EQ(server.get("/").status, 200u);
  const auto details = [&](const char* key) {
    const Reply reply = server.post("/v1/completions", body, fmt::format("Authorization: Bearer {}\r\n", key));
    EXPECT_EQ(reply.status, 200u);
    return reply.parsed().at("usage").at("prompt_tokens_details");
  };
  EXPECT_EQ(details("alice").at("cached_tokens").as_int64(), 0);
  EXPECT_GT(details("alice").at("cached_tokens").as_int64(), 0);
  const json::value other = details("bob");
  EXPECT_EQ(other.at("cached_tokens").as_int64(), 0);
  EXPECT_EQ(other.at("matched_tokens").as_int64(), 0);
  EXPECT_EQ(other.at("miss_reason").as_string(), "never seen");
  EXPECT_GT(details("bob").at("cached_tokens").as_int64(), 0);
  EXPECT_THAT(server.get("/metrics", "Authorization: Bearer bob\r\n").body,
              HasSubstr("quire_prefix_lookup_ends_total{reason=\"other_namespace\"} 0"));
}

TEST(ServerOrigins, OnlyPagesThatAreAllowedMayCall) {
  const std::string body = R"({"prompt": "Hello", "max_tokens": 1})";
  {
    Running server;
    EXPECT_EQ(server.post("/v1/completions", body, "Origin: https://evil.example\r\n").status, 403u);
    EXPECT_EQ(server.post("/v1/completions", body, "Origin: http://localhost\r\n").status, 200u);  // its own
    EXPECT_EQ(server.get("/health", "Origin: https://evil.example\r\n").header("access-control-allow-origin"), "");
  }
  Running server({.origins = {"https://good.example"}});
  const Reply reply = server.post("/v1/completions", body, "Origin: https://good.example\r\n");
  EXPECT_EQ(reply.status, 200u);
  EXPECT_EQ(reply.header("access-control-allow-origin"), "https://good.example");
  EXPECT_EQ(server.post("/v1/completions", body, "Origin: https://evil.example\r\n").status, 403u);
  Client client(server.port());
  client.send(
      "OPTIONS /v1/completions HTTP/1.1\r\nHost: x\r\nOrigin: https://good.example\r\nAccess-Control-Request-Method: "
      "POST\r\n\r\n");
  const Reply preflight = client.read_reply();
  EXPECT_EQ(preflight.status, 204u);
  EXPECT_THAT(preflight.header("access-control-allow-methods"), HasSubstr("POST"));
}

TEST(ServerPage, IsSentOnceAndAgainOnlyWhenItChanged) {
  Running server;
  for (const char* path : {"/", "/app.js", "/style.css"}) {
    const Reply first = server.get(path);
    EXPECT_EQ(first.status, 200u);
    EXPECT_FALSE(first.body.empty());
    EXPECT_THAT(first.header("content-security-policy"), HasSubstr("default-src 'self'"));
    const Reply second = server.get(path, fmt::format("If-None-Match: {}\r\n", first.header("etag")));
    EXPECT_EQ(second.status, 304u);
  }
}

// --- looking at the pool

TEST(ServerPool, ShowsSequencesUnderTheIdsTheirClientsGot) {
  Running server;
  Client client(server.port());
  client.post("/v1/completions", fmt::format("{{{}, \"stream\": true, \"n\": 2}}", kLong));
  for (int i = 0; i < 200 && server.pool().at("stats").at("running").as_int64() < 2; ++i)
    std::this_thread::sleep_for(10ms);
  const json::value pool = server.pool();
  ASSERT_EQ(pool.at("sequences").as_array().size(), 2u);
  const json::value& sequence = pool.at("sequences").at(1);
  while (client.bytes().find("\r\n\r\n") == std::string::npos) ASSERT_TRUE(client.receive());
  EXPECT_THAT(client.bytes(), HasSubstr(fmt::format("x-request-id: {}\r\n", sequence.at("request").as_int64())));
  EXPECT_EQ(sequence.at("choice").as_int64(), 1);
  EXPECT_EQ(sequence.at("state").as_string(), "writing");
  const auto& group = pool.at("groups").at(0);
  std::set<std::int64_t> listed;
  for (const json::value& page : group.at("pages").as_array()) listed.insert(page.at(0).as_int64());
  EXPECT_EQ(group.at("held").as_int64() + group.at("cached").as_int64(), static_cast<std::int64_t>(listed.size()));
  for (const json::value& page : sequence.at("tables").at(0).as_array()) EXPECT_TRUE(listed.contains(page.as_int64()));
}

TEST(ServerPool, EventsTellTheWholeAndThenEveryChange) {
  Running server;
  Client watcher(server.port());
  watcher.get("/pool/events");
  while (watcher.bytes().find("event: pool\n") == std::string::npos) ASSERT_TRUE(watcher.receive());
  EXPECT_EQ(
      server.post("/v1/completions", R"({"prompt": "Once upon a time", "max_tokens": 100, "ignore_eos": true})").status,
      200u);
  const auto deadline = std::chrono::steady_clock::now() + 5s;
  while (watcher.bytes().find("sequence_released") == std::string::npos &&
         std::chrono::steady_clock::now() < deadline) {
    watcher.receive(100ms);
  }
  EXPECT_THAT(watcher.bytes(), HasSubstr("event: change\n"));
  EXPECT_THAT(watcher.bytes(), HasSubstr("[\"sequence_created\","));
  EXPECT_THAT(watcher.bytes(), HasSubstr("[\"page_taken\","));
  EXPECT_THAT(watcher.bytes(), HasSubstr("[\"sequence_released\","));
  // When nothing happens, nothing is told; but that the pool was checked is something.
  for (int i = 0; i < 20; ++i) watcher.receive(50ms);
  watcher.bytes().clear();
  EXPECT_FALSE(watcher.receive(300ms));
  server.server().stop();
  while (watcher.receive(2000ms)) {
  }
  EXPECT_THAT(watcher.bytes(),
              HasSubstr("event: error\ndata: {\"error\":{\"message\":\"the server is shutting down\""));
}

TEST(ServerMetrics, CountWhatHappened) {
  Running server;
  EXPECT_EQ(
      server.post("/v1/completions", R"({"prompt": "Once upon a time", "max_tokens": 10, "ignore_eos": true})").status,
      200u);
  const std::string text = server.get("/metrics").body;
  for (const char* line :
       {"quire_pages{group=\"0\",state=\"held\"} 0", "quire_completions_total{outcome=\"finished\"} 1",
        "quire_first_token_seconds_count 1", "quire_next_token_seconds_count 9", "quire_queue 0",
        "quire_prefix_lookup_ends_total{reason=\"never_seen\"} 1", "quire_pool_sound 1"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

// --- the end

TEST(ServerStop, LetsAnswersFinishWithinTheGraceTime) {
  Running server({.grace = 100s});
  Client stream(server.port()), whole(server.port()), idle(server.port());
  stream.post("/v1/completions",
              R"({"prompt": "Once upon a time", "max_tokens": 150, "ignore_eos": true, "stream": true})");
  whole.post("/v1/completions", R"({"prompt": "Once upon a time", "max_tokens": 150, "ignore_eos": true})");
  for (int i = 0; i < 200 && server.pool().at("stats").at("running").as_int64() < 2; ++i)
    std::this_thread::sleep_for(5ms);
  server.server().stop();
  const Reply parts = stream.read_reply();
  EXPECT_TRUE(streamed(parts.body).done);
  EXPECT_EQ(streamed(parts.body).error, "");
  EXPECT_EQ(whole.read_reply().status, 200u);
  EXPECT_TRUE(idle.ends_within(2s));
  stream.close();
  whole.close();
  idle.close();
  server.stop_and_wait();
}

TEST(ServerStop, CutsOffWhatTheGraceTimeDoesNotSufficeForAndSaysSo) {
  Running server({.grace = 100ms});
  Client stream(server.port()), whole(server.port());
  stream.post("/v1/completions", fmt::format("{{{}, \"stream\": true, \"n\": 8}}", kLong));
  whole.post("/v1/completions", fmt::format("{{{}, \"n\": 8}}", kLong));
  for (int i = 0; i < 200 && server.pool().at("stats").at("running").as_int64() < 16; ++i)
    std::this_thread::sleep_for(5ms);
  const auto begin = std::chrono::steady_clock::now();
  server.server().stop();
  const Reply parts = stream.read_reply();
  const Streamed read = streamed(parts.body);
  EXPECT_EQ(read.error, "the server is shutting down, and the answer was not complete");
  EXPECT_TRUE(read.done && parts.complete);
  const Reply cut = whole.read_reply();
  EXPECT_EQ(cut.status, 503u);
  EXPECT_EQ(cut.parsed().at("error").at("code").as_string(), "stopping");
  server.stop_and_wait();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 4s);
}

TEST(ServerStop, ASecondTimeDoesNotWait) {
  Running server({.grace = 60s});
  Client client(server.port());
  client.post("/v1/completions", fmt::format("{{{}, \"stream\": true, \"n\": 8}}", kLong));
  for (int i = 0; i < 200 && server.pool().at("stats").at("running").as_int64() < 8; ++i)
    std::this_thread::sleep_for(5ms);
  server.server().stop();
  server.server().stop();
  const Reply reply = client.read_reply();
  EXPECT_TRUE(streamed(reply.body).done);
  client.close();
  server.stop_and_wait();
}

}  // namespace
}  // namespace quire::server
