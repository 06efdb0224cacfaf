#include "quire/server/embeddings.h"

#include <cmath>
#include <cstring>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/server/server_testing.h"

namespace quire::server {
namespace {

using testing::Client;
using testing::Reply;
using testing::Running;
namespace json = boost::json;

std::vector<double> vector_of(const Reply& reply, std::size_t index = 0) {
  EXPECT_EQ(reply.status, 200u) << reply.body;
  if (reply.status != 200) return {};
  const json::value parsed = reply.parsed();
  std::vector<double> out;
  for (const json::value& x : parsed.at("data").at(index).at("embedding").as_array()) {
    out.push_back(x.to_number<double>());
  }
  return out;
}

double length(const std::vector<double>& vector) {
  double sum = 0;
  for (const double x : vector) sum += x * x;
  return std::sqrt(sum);
}

TEST(Embeddings, HaveTheLengthOneAndTheModelsWidth) {
  const Running server;
  const Reply reply = server.post("/v1/embeddings", R"({"input": "Once upon a time", "model": "default"})");
  const std::vector<double> vector = vector_of(reply);
  const json::value answer = reply.parsed();
  EXPECT_EQ(answer.at("object").as_string(), "list");
  EXPECT_EQ(answer.at("model").as_string(), "quire-demo-llama-q8_0");
  EXPECT_EQ(answer.at("usage").at("prompt_tokens"), answer.at("usage").at("total_tokens"));
  EXPECT_GT(answer.at("usage").at("prompt_tokens").as_int64(), 0);
  const json::value model = server.get("/v1/models").parsed().at("data").at(0);
  EXPECT_EQ(vector.size(), static_cast<std::size_t>(model.at("meta").at("n_embd").as_int64()));
  EXPECT_NEAR(length(vector), 1, 1e-5);
}

TEST(Embeddings, AreTheSameInEveryFormAloneAndInABatch) {
  for (const auto pooling : {engine::Pooling::Last, engine::Pooling::Mean, engine::Pooling::First}) {
    const Running server({.pooling = pooling});
    const json::value ids =
        server.post("/tokenize", R"({"content": "Once upon a time", "add_special": true})").parsed().at("tokens");
    const Reply alone = server.post("/v1/embeddings", R"({"input": "Once upon a time"})");
    const std::vector<double> vector = vector_of(alone);
    std::string batch = "\"The cat sat.\"";
    for (int i = 0; i < 70; ++i) batch += fmt::format(", \"Story {} begins\"", i);
    const Reply many = server.post("/v1/embeddings", fmt::format(R"({{"input": [{}, "Once upon a time"]}})", batch));
    EXPECT_EQ(vector_of(many, 71), vector) << "to the last digit";
    const Reply numbers = server.post("/v1/embeddings", fmt::format(R"({{"input": {}}})", json::serialize(ids)));
    EXPECT_EQ(vector_of(numbers), vector);
    const Reply lists =
        server.post("/v1/embeddings", fmt::format(R"({{"input": [[5, 6], {}]}})", json::serialize(ids)));
    EXPECT_EQ(vector_of(lists, 1), vector);
    EXPECT_NE(vector_of(lists, 0), vector);
    // Only the vector of the last position can reuse a prefix.
    const std::string story =
        "Once upon a time there was a cat, and the cat sat on a mat. Then a dog came, and the dog saw it.";
    const std::string body = json::serialize(json::object{{"input", story}});
    const std::vector<double> first = vector_of(server.post("/v1/embeddings", body));
    const Reply again = server.post("/v1/embeddings", body);
    EXPECT_EQ(vector_of(again), first);
    const std::int64_t cached = again.parsed().at("usage").at("prompt_tokens_details").at("cached_tokens").as_int64();
    EXPECT_EQ(cached > 0, pooling == engine::Pooling::Last);
    EXPECT_TRUE(server.comes_to_rest());
  }
}

TEST(Embeddings, OfBase64AreTheSameFloats) {
  const Running server;
  const Reply plain = server.post("/v1/embeddings", R"({"input": "hello"})");
  const Reply coded = server.post("/v1/embeddings", R"({"input": "hello", "encoding_format": "base64"})");
  std::vector<float> floats;
  for (const double x : vector_of(plain)) floats.push_back(static_cast<float>(x));
  EXPECT_EQ(coded.parsed().at("data").at(0).at("embedding").as_string(), base64_of(floats));
}

TEST(Embeddings, Base64IsThatOfRfc4648) {
  float number = 0;
  std::memcpy(&number, "foob", 4);
  EXPECT_EQ(base64_of(std::span(&number, 1)), "Zm9vYg==");
  const float two[] = {number, number};
  EXPECT_EQ(base64_of(two), "Zm9vYmZvb2I=");
}

TEST(Embeddings, OfFewerDimensionsAreTheFirstOnesWithLengthOne) {
  const Running server;
  const std::vector<double> whole = vector_of(server.post("/v1/embeddings", R"({"input": "hello"})"));
  const std::vector<double> part = vector_of(server.post("/v1/embeddings", R"({"input": "hello", "dimensions": 16})"));
  ASSERT_EQ(part.size(), 16u);
  EXPECT_NEAR(length(part), 1, 1e-5);
  for (std::size_t i = 1; i < 16; ++i)
    EXPECT_NEAR(part[i] / part[0], whole[i] / whole[0], 1e-4 * std::abs(part[i] / part[0]));
  const std::vector<double> raw = vector_of(server.post("/v1/embeddings", R"({"input": "hello", "normalize": false})"));
  EXPECT_GT(std::abs(length(raw) - 1), 0.01);
}

TEST(Embeddings, RefuseWhatMakesNoSenseByName) {
  const Running server;
  const struct {
    const char* body;
    const char* message;
  } cases[] = {
      {R"({})", "'input' is missing"},
      {R"({"input": 5})",
       "'input' must be a string, an array of strings, an array of token ids or an array of such arrays"},
      {R"({"input": []})",
       "'input' must be a string, an array of strings, an array of token ids or an array of such arrays"},
      {R"({"input": ["a", 5]})",
       "'input' must be a string, an array of strings, an array of token ids or an array of such arrays"},
      {R"({"input": [[5], []]})", "'input[1]' has no tokens"},
      {R"({"input": [1, 99999]})", "'input[1]' must be a token id from 0 to 1535"},
      {R"({"input": "a", "dimensions": 0})", "'dimensions' must be from 1 to 256"},
      {R"({"input": "a", "encoding_format": "int8"})", "'encoding_format' must be \"float\" or \"base64\""},
      {R"({"input": "a", "model": "text-embedding-3-small"})",
       "the model 'text-embedding-3-small' does not exist; this server has 'quire-demo-llama-q8_0'"},
  };
  for (const auto& [body, message] : cases) {
    const Reply reply = server.post("/v1/embeddings", body);
    EXPECT_GE(reply.status, 400u) << body;
    EXPECT_EQ(reply.error_message(), message);
  }
  std::string many = "\"a\"";
  for (int i = 0; i < 2048; ++i) many += ",\"a\"";
  EXPECT_EQ(server.post("/v1/embeddings", fmt::format(R"({{"input": [{}]}})", many)).error_message(),
            "'input' has 2049 texts, and 2048 is the most");
  EXPECT_EQ(server.post("/v1/embeddings", fmt::format(R"({{"input": "{}"}})", std::string(20000, 'x'))).status, 400u);
}

// More texts than the queue has room for.
TEST(Embeddings, ABatchDoesNotFillTheQueue) {
  const Running server({}, {.max_sequences = 4, .engine = {.queue_limit = 40}});
  std::string many = "\"a\"";
  for (int i = 0; i < 199; ++i) many += fmt::format(",\"text {}\"", i);
  const Reply reply = server.post("/v1/embeddings", fmt::format(R"({{"input": [{}]}})", many));
  ASSERT_EQ(reply.status, 200u) << reply.body;
  EXPECT_EQ(reply.parsed().at("data").as_array().size(), 200u);
}

TEST(Embeddings, OfAClientThatLeavesAreCancelled) {
  const Running server;
  std::string many = "\"a\"";
  for (int i = 0; i < 500; ++i) many += fmt::format(",\"a longer text with the number {}\"", i);
  {
    Client client(server.port());
    client.post("/v1/embeddings", fmt::format(R"({{"input": [{}]}})", many));
    EXPECT_TRUE(testing::eventually([&] { return server.stat("running") + server.stat("finished") > 0; }));
  }
  EXPECT_TRUE(server.comes_to_rest());
}

}  // namespace
}  // namespace quire::server
