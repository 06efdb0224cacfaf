// What a client can learn of its prompt, and answers that may not end early.
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/server/server_testing.h"

namespace quire::server {
namespace {

using testing::events;
using ::testing::HasSubstr;
using testing::Reply;
using testing::Running;
using testing::text_of;
namespace json = boost::json;

TEST(ServerScores, AnEchoWithLogprobsScoresThePrompt) {
  Running server;
  // What the model says by itself, token by token.
  const json::value said = server
                               .post("/v1/completions", R"({"prompt": "Once upon a time", "max_tokens": 8,
                                     "temperature": 0, "logprobs": 2})")
                               .parsed()
                               .at("choices")
                               .at(0);
  const std::string text = "Once upon a time" + std::string(said.at("text").as_string());
  const Reply reply =
      server.post("/v1/completions",
                  json::serialize(json::object{{"prompt", text}, {"echo", true}, {"logprobs", 2}, {"max_tokens", 0}}));
  ASSERT_EQ(reply.status, 200u) << reply.body;
  const json::value answer = reply.parsed();
  EXPECT_EQ(answer.at("choices").at(0).at("text").as_string(), text);
  EXPECT_EQ(answer.at("choices").at(0).at("finish_reason").as_string(), "length");
  EXPECT_EQ(answer.at("usage").at("completion_tokens").as_int64(), 0);
  EXPECT_EQ(answer.at("usage").at("prompt_tokens_details").at("cached_tokens").as_int64(), 0)
      << "every position is computed, although the prompt is known";
  const json::value& logprobs = answer.at("choices").at(0).at("logprobs");
  const auto& tokens = logprobs.at("tokens").as_array();
  const auto& scores = logprobs.at("token_logprobs").as_array();
  const auto& offsets = logprobs.at("text_offset").as_array();
  ASSERT_EQ(tokens.size(), static_cast<std::size_t>(answer.at("usage").at("prompt_tokens").as_int64()));
  EXPECT_TRUE(scores[0].is_null());
  EXPECT_TRUE(logprobs.at("top_logprobs").at(0).is_null());
  const auto& spoken = said.at("logprobs").at("token_logprobs").as_array();
  ASSERT_GT(tokens.size(), spoken.size());
  for (std::size_t i = 0; i < spoken.size(); ++i) {
    const std::size_t at = tokens.size() - spoken.size() + i;
    EXPECT_EQ(tokens[at], said.at("logprobs").at("tokens").at(i));
    EXPECT_EQ(scores[at], spoken[i]) << "the same number that the answer had";
    EXPECT_EQ(logprobs.at("top_logprobs").at(at), said.at("logprobs").at("top_logprobs").at(i));
    EXPECT_LE(offsets[at].as_int64(), static_cast<std::int64_t>(text.size()));
  }
  EXPECT_EQ(offsets[0].as_int64(), 0);
  const std::size_t last = static_cast<std::size_t>(offsets[tokens.size() - 1].as_int64());
  EXPECT_EQ(text.substr(last), std::string(tokens.back().as_string()));
}

TEST(ServerScores, AStreamEchoesWithLogprobsWhatTheWholeAnswerDoes) {
  Running server;
  const std::string what = R"("prompt": ["Once upon", "The cat"], "echo": true, "logprobs": 1, "max_tokens": 5, "n": 2,
                              "seed": 3)";
  const json::value whole = server.post("/v1/completions", "{" + what + "}").parsed();
  const Reply stream = server.post("/v1/completions", "{" + what + R"(, "stream": true})");
  std::map<std::int64_t, std::string> texts;
  std::map<std::int64_t, json::array> tokens, scores, offsets;
  for (const std::string& event : events(stream.body)) {
    if (event == "[DONE]") continue;
    const json::value chunk = json::parse(event);
    for (const json::value& choice : chunk.at("choices").as_array()) {
      const std::int64_t index = choice.at("index").as_int64();
      texts[index] += choice.at("text").as_string();
      if (choice.at("logprobs").is_null()) continue;
      for (const json::value& each : choice.at("logprobs").at("tokens").as_array()) tokens[index].push_back(each);
      for (const json::value& each : choice.at("logprobs").at("token_logprobs").as_array()) {
        scores[index].push_back(each);
      }
      for (const json::value& each : choice.at("logprobs").at("text_offset").as_array()) offsets[index].push_back(each);
    }
  }
  ASSERT_EQ(whole.at("choices").as_array().size(), 4u);
  for (const json::value& choice : whole.at("choices").as_array()) {
    const std::int64_t index = choice.at("index").as_int64();
    EXPECT_EQ(texts[index], choice.at("text").as_string());
    EXPECT_EQ(json::value(tokens[index]), choice.at("logprobs").at("tokens"));
    EXPECT_EQ(json::value(scores[index]), choice.at("logprobs").at("token_logprobs"));
    EXPECT_EQ(json::value(offsets[index]), choice.at("logprobs").at("text_offset"));
  }
}

TEST(ServerScores, PromptLogprobsComeInVllmsShape) {
  Running server;
  const json::value plain = server
                                .post("/v1/completions", R"({"prompt": "Once upon a time", "max_tokens": 1,
                                     "prompt_logprobs": 2})")
                                .parsed();
  const auto& scores = plain.at("choices").at(0).at("prompt_logprobs").as_array();
  const json::value ids =
      server.post("/tokenize", R"({"content": "Once upon a time", "add_special": true})").parsed().at("tokens");
  ASSERT_EQ(scores.size(), ids.as_array().size());
  EXPECT_TRUE(scores[0].is_null());
  for (std::size_t i = 1; i < scores.size(); ++i) {
    const json::object& entry = scores[i].as_object();
    const std::string id = std::to_string(ids.at(i).as_int64());
    ASSERT_TRUE(entry.contains(id)) << json::serialize(entry);
    const std::int64_t rank = entry.at(id).at("rank").as_int64();
    EXPECT_EQ(entry.size(), rank <= 2 ? 2u : 3u);
    for (const auto& [key, each] : entry) EXPECT_LE(each.at("logprob").to_number<double>(), 0);
  }
  const json::value chat = server
                               .post("/v1/chat/completions",
                                     R"({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1,
                                      "prompt_logprobs": 0})")
                               .parsed();
  EXPECT_EQ(chat.at("prompt_logprobs").as_array().size(),
            static_cast<std::size_t>(chat.at("usage").at("prompt_tokens").as_int64()));
}

TEST(ServerScores, APromptWithoutTokensIsRefused) {
  Running server;
  for (const char* const body :
       {R"({"prompt": [[]]})", R"({"prompt": [[]], "prompt_logprobs": 0})",
        R"({"prompt": [[5], []], "prompt_logprobs": 0})", R"({"prompt": [[]], "echo": true, "logprobs": 0})"}) {
    const auto reply = server.post("/v1/completions", body);
    EXPECT_EQ(reply.status, 400u) << body;
    EXPECT_EQ(reply.error_message(), "the prompt has no tokens") << body;
  }
}

TEST(ServerScores, AnAnswerHasAtLeastItsLeastTokens) {
  Running server;
  const std::string what = R"("messages": [{"role": "user", "content": "What is 2 + 3?"}], "temperature": 0)";
  const json::value brief = server.post("/v1/chat/completions", "{" + what + "}").parsed();
  ASSERT_LT(brief.at("usage").at("completion_tokens").as_int64(), 12);
  ASSERT_EQ(brief.at("choices").at(0).at("finish_reason").as_string(), "stop");
  const json::value held =
      server.post("/v1/chat/completions", "{" + what + R"(, "min_tokens": 12, "max_tokens": 100})").parsed();
  EXPECT_GE(held.at("usage").at("completion_tokens").as_int64(), 12);
}

TEST(ServerScores, AnyModelIsAnsweredIfTheServerSaysSo) {
  Running strict, easy({.any_model = true});
  const char* body = R"({"model": "gpt-4o-mini", "prompt": "Once", "max_tokens": 2})";
  EXPECT_EQ(strict.post("/v1/completions", body).status, 404u);
  const Reply reply = easy.post("/v1/completions", body);
  ASSERT_EQ(reply.status, 200u) << reply.body;
  EXPECT_EQ(reply.parsed().at("model").as_string(), "quire-demo-llama-q8_0") << "it says who answered";
}

}  // namespace
}  // namespace quire::server
