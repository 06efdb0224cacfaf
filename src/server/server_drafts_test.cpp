// What clients and /metrics are told of guessed tokens.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/engine/drafter.h"
#include "quire/server/answers_testing.h"

namespace quire::server {
namespace {

using ::testing::HasSubstr;
using testing::Reply;
namespace json = boost::json;

// Guesses what followed the same text before: four tokens, and a wrong one behind them.
class RecallingDrafter final : public engine::Drafter {
 public:
  void propose(std::span<engine::Drafts* const> wanted) override {
    for (engine::Drafts* const drafts : wanted) {
      const std::span<const Token> text = drafts->text;
      const bool known = text.size() < seen_.size() && std::equal(text.begin(), text.end(), seen_.begin());
      if (!known) seen_.assign(text.begin(), text.end());
      const auto right = static_cast<std::uint32_t>(std::min<std::size_t>(4, seen_.size() - text.size()));
      drafts->count = std::min(right, drafts->most);
      std::copy_n(seen_.begin() + static_cast<std::ptrdiff_t>(text.size()), drafts->count, drafts->tokens.begin());
      // The byte 0, which no script has.
      if (drafts->count < drafts->most) drafts->tokens[drafts->count++] = 0;
    }
  }
  double expected(std::uint32_t) const override { return 0.5; }

 private:
  std::vector<Token> seen_;
};

TEST(ServerDrafts, EveryUsageAndTheMetricsSayHowManyGuessesWereRight) {
  const auto server =
      testing::serve_answers({}, {.engine = {.drafter = std::make_shared<RecallingDrafter>(), .draft_always = true}});
  const char* const chat = R"({"max_tokens": 100, "messages": [{"role": "user", "content": "plain"}]})";
  const auto usage = [&](const char* path, const std::string& body) {
    const Reply reply = server->post(path, body);
    EXPECT_EQ(reply.status, 200u) << reply.body;
    return reply.parsed().at("usage");
  };
  std::int64_t accepted = 0, rejected = 0;
  const auto count = [&](const json::value& details) {
    accepted += details.at("accepted_prediction_tokens").as_int64();
    rejected += details.at("rejected_prediction_tokens").as_int64();
    return details.at("accepted_prediction_tokens").as_int64() - details.at("rejected_prediction_tokens").as_int64();
  };
  // At first nothing is known, and all guesses are wrong.
  EXPECT_LT(count(usage("/v1/chat/completions", chat).at("completion_tokens_details")), 0);
  EXPECT_EQ(accepted, 0);
  // Then four of five are right.
  EXPECT_GT(count(usage("/v1/chat/completions", chat).at("completion_tokens_details")), 0);
  EXPECT_GT(count(usage("/v1/messages", chat).at("quire")), 0);
  EXPECT_GT(count(usage("/v1/responses", R"({"input": "plain"})").at("output_tokens_details")), 0);
  // An answer that ends with a guess.
  for (const char* const stop : {"us", "st", "wo", "rd", "ds", "no", "mo", "re"}) {
    const std::string stopped = fmt::format(
        R"({{"max_tokens": 100, "stop": "{}", "messages": [{{"role": "user", "content": "plain"}}]}})", stop);
    count(usage("/v1/chat/completions", stopped).at("completion_tokens_details"));
  }
  const std::string metrics = server->get("/metrics").body;
  EXPECT_THAT(metrics, HasSubstr(fmt::format("\nquire_drafted_tokens_total {}\n", accepted + rejected)));
  EXPECT_THAT(metrics, HasSubstr(fmt::format("\nquire_accepted_tokens_total {}\n", accepted)));
}

}  // namespace
}  // namespace quire::server
