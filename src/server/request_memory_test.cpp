// What one request can cost: bodies of the size limit, made of whatever a field lets grow, are answered or refused
// without taking more than a bounded multiple of their bytes.
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "quire/base/counted_heap_testing.h"
#include "quire/server/server_testing.h"

namespace quire::server {
namespace {

using quire::testing::live_bytes;
using quire::testing::peak_bytes;
using testing::Reply;
using testing::Running;

constexpr std::size_t kBody = (std::size_t{8} << 20) - 4096;  // --max-body, less the rest of the request

// The piece as often as it fits, with commas between.
std::string many(std::string_view piece, std::size_t bytes = kBody) {
  std::string out;
  out.reserve(bytes);
  while (out.size() + piece.size() + 1 < bytes) {
    if (!out.empty()) out += ',';
    out += piece;
  }
  return out;
}
std::string times(std::string_view piece, std::size_t count) {
  std::string out;
  for (std::size_t i = 0; i < count; ++i) out += (i == 0 ? "" : ",") + std::string(piece);
  return out;
}

// The same few ids over and over: leading zeros make different keys of them.
std::string biases() {
  std::string out = R"("logit_bias": {"1": 1)";
  for (int i = 0; out.size() < kBody - 4096; ++i)
    out += fmt::format(R"(,"{}{}": 1)", std::string(1 + i / 1000, '0'), i % 1000);
  return out + "}";
}

struct Cost {
  Reply reply;
  std::size_t bytes = 0;  // at most at once, on top of what the server holds anyway
};

class RequestMemory : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { server_ = std::make_unique<Running>(); }
  static void TearDownTestSuite() { server_.reset(); }

  static Cost cost(std::string_view path, const std::string& body) {
    testing::Client client(server_->port());
    const std::size_t before = live_bytes;
    peak_bytes = before;
    client.post(path, body);
    Cost cost{.reply = client.read_reply()};
    cost.bytes = peak_bytes - before;
    std::printf("%-22s %8zu bytes of body, %11zu bytes of heap, status %u\n", std::string(path).c_str(), body.size(),
                cost.bytes, cost.reply.status);
    EXPECT_TRUE(server_->comes_to_rest());
    return cost;
  }

  static std::unique_ptr<Running> server_;
};
std::unique_ptr<Running> RequestMemory::server_;

// A million stop ids and 200 prompts took 805 MB: each prompt had a copy of the ids.
TEST_F(RequestMemory, StopIdsAreNotCopiedForEveryPrompt) {
  const std::string body =
      fmt::format(R"({{"prompt": [{}], "max_tokens": 40, "ignore_eos": true, "stop_token_ids": [{}]}})",
                  times("\"x\"", 200), times("7", 1'000'000));
  const Cost refused = cost("/v1/completions", body);
  EXPECT_EQ(refused.reply.status, 400u);
  EXPECT_EQ(refused.reply.error_message(), "'stop_token_ids' must be an array of at most 256 token ids");
  EXPECT_LT(refused.bytes, std::size_t{100} << 20);
  // As many as are allowed.
  const Cost taken =
      cost("/v1/completions",
           fmt::format(R"({{"prompt": [{}], "max_tokens": 40, "ignore_eos": true, "stop_token_ids": [{}]}})",
                       times("\"x\"", 200), times("7", 256)));
  EXPECT_EQ(taken.reply.status, 200u);
  EXPECT_LT(taken.bytes, std::size_t{8} << 20);
}

// Everything that a client can make long, at the size limit of a body. Parsed JSON takes up to 25 times its bytes, a
// word of 8 MB 36 times its bytes in the tokenizer. Before there were limits, some of these took 1 and 2 GB.
TEST_F(RequestMemory, IsBoundedForEveryField) {
  const auto chat = [](std::string_view fields) {
    return fmt::format(R"({{"max_tokens": 1, "messages": [{{"role": "user", "content": "x"}}], {}}})", fields);
  };
  const auto completion = [](std::string_view fields) {
    return fmt::format(R"({{"max_tokens": 1, "prompt": [{}], {}}})", times("\"x\"", 200), fields);
  };
  const std::string text(kBody, 'x');
  const struct {
    const char* what;
    const char* path;
    std::string body;
  } cases[] = {
      {"an ignored field", "/v1/completions", completion(fmt::format(R"("unknown": [{}])", many("[1]", kBody - 2048)))},
      {"prompt", "/v1/completions", fmt::format(R"({{"prompt": "{}"}})", text)},
      {"prompt of ids", "/v1/completions", fmt::format(R"({{"prompt": [{}]}})", many("1"))},
      {"empty prompts", "/v1/completions", fmt::format(R"({{"prompt": [{}]}})", many("\"\""))},
      {"prompts and n", "/v1/completions", fmt::format(R"({{"prompt": [{}], "n": 128}})", times("\"x\"", 1024))},
      {"echo and n", "/v1/completions",
       fmt::format(R"({{"prompt": "{}", "n": 128, "echo": true, "max_tokens": 1}})", text)},
      {"echo of ids", "/v1/completions",
       fmt::format(R"({{"prompt": [{}], "n": 128, "echo": true, "max_tokens": 1}})", many("900"))},
      {"stop", "/v1/completions",
       completion(fmt::format(R"("stop": [{}])", times(fmt::format("\"{}\"", std::string(500'000, 'y')), 16)))},
      {"logit_bias", "/v1/completions", completion(biases())},
      {"model", "/v1/completions", completion(fmt::format(R"("model": "{}")", std::string(kBody - 2048, '\x7f')))},
      {"messages", "/v1/chat/completions",
       fmt::format(R"({{"messages": [{}]}})", many(R"({"role":"user","content":""})"))},
      {"content", "/v1/chat/completions",
       fmt::format(R"({{"messages": [{{"role": "user", "content": "{}"}}]}})", text)},
      {"parts of content", "/v1/chat/completions",
       fmt::format(R"({{"messages": [{{"role": "user", "content": [{}]}}]}})", many(R"({"text":""})"))},
      {"type of a part", "/v1/chat/completions",
       fmt::format(R"({{"messages": [{{"role": "user", "content": [{{"type": "{}"}}]}}]}})", text)},
      {"fields of a message", "/v1/chat/completions",
       fmt::format(R"({{"messages": [{{"role": "user", "content": "x", "name": [{}]}}]}})", many("[1]"))},
      {"arguments", "/v1/chat/completions",
       fmt::format(
           R"({{"messages": [{{"role": "assistant", "tool_calls": [{{"function": {{"arguments": "{{\"a\":[{}]}}"}}}}]}}]}})",
           many("[1]"))},
      {"tools", "/v1/chat/completions", chat(fmt::format(R"("tools": [{}])", many(R"({"a":1})")))},
      {"template variables", "/v1/chat/completions",
       chat(fmt::format(R"("chat_template_kwargs": {{"a": [{}]}})", many("[1]")))},
      {"tokenize", "/tokenize", fmt::format(R"({{"content": "{}"}})", text)},
      {"tokenize, with pieces", "/tokenize", fmt::format(R"({{"content": "{}", "with_pieces": true}})", text)},
      {"detokenize", "/detokenize", fmt::format(R"({{"tokens": [{}]}})", many("900"))},
  };
  for (const auto& [what, path, body] : cases) {
    const Cost taken = cost(path, body);
    EXPECT_NE(taken.reply.status, 0u) << what;
    EXPECT_LT(taken.bytes, std::size_t{320} << 20) << what;
    // An error does not send the client's own bytes back.
    if (taken.reply.status != 200) {
      EXPECT_LT(taken.reply.body.size(), 1024u) << what;
    }
  }
}

}  // namespace
}  // namespace quire::server
