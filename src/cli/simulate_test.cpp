// `quire simulate` on a made-up trace of 40 requests.
#include <string>
#include <vector>

#include <boost/json.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/cli/cli_testing.h"

namespace quire::cli {
namespace {

using testing::call;
using testing::expect_refusal;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kTrace = QUIRE_SOURCE_DIR "/testdata/simulate/conversations.jsonl";

TEST(SimulateCommand, PrintsARowForEachPoolAndAPlot) {
  const auto out = call({"simulate", kTrace, "--shape", "llama-1.1b", "--memory", "64M,256M,1G"});
  ASSERT_EQ(out.exit_code, kSuccess) << out.err;
  EXPECT_EQ(out.err, "");
  EXPECT_THAT(out.out, HasSubstr("40 requests in "));
  EXPECT_THAT(out.out, HasSubstr("% of the prompt tokens repeat an earlier prompt"));
  EXPECT_THAT(out.out, HasSubstr("a token takes 22,528 bytes in the pool\n"));
  for (const char* size : {"\n  64.0 MiB lru ", "\n 256.0 MiB lru ", "\n   1.0 GiB lru "}) {
    EXPECT_THAT(out.out, HasSubstr(size));
  }
  EXPECT_THAT(out.out, HasSubstr("● lru\n"));
  EXPECT_THAT(out.out, HasSubstr("the most that can be found\n"));
  EXPECT_EQ(call({"simulate", kTrace, "--shape", "llama-1.1b", "--memory", "64M,256M,1G"}).out, out.out);
}

TEST(SimulateCommand, PrintsJson) {
  const auto out = call({"simulate", kTrace, "--shape", "granite-h-350m", "--memory", "1G,2G", "--policy", "lru",
                         "--json", "--limit", "30", "--rate", "0.5", "--target-itl", "50"});
  ASSERT_EQ(out.exit_code, kSuccess) << out.err;
  std::istringstream lines(out.out);
  std::string line;
  std::uint64_t memory = std::uint64_t{1} << 30;
  for (; std::getline(lines, line); memory *= 2) {
    const auto row = boost::json::parse(line).as_object();
    EXPECT_EQ(row.at("memory").to_number<std::uint64_t>(), memory);
    EXPECT_EQ(row.at("policy").as_string(), "lru");
    EXPECT_EQ(row.at("requests").to_number<int>(), 30);
    EXPECT_EQ(row.at("refused").to_number<int>(), 0);
    EXPECT_LE(row.at("hit_share").as_double(), row.at("most_hit_share").as_double());
    EXPECT_GT(row.at("first_token_seconds").at("p50").as_double(), 0);
    EXPECT_GE(row.at("between_tokens_seconds").at("p99").as_double(),
              row.at("between_tokens_seconds").at("p50").as_double());
    EXPECT_GT(row.at("output_tokens_per_second").as_double(), 0);
  }
  EXPECT_EQ(memory, std::uint64_t{4} << 30);
}

TEST(SimulateCommand, TakesTheLayoutOfAFile) {
  const auto out = call({"simulate", kTrace, "-m", testing::demo_model("llama"), "--memory", "64M"});
  ASSERT_EQ(out.exit_code, kSuccess) << out.err;
  EXPECT_THAT(out.out, HasSubstr("a token takes 4,096 bytes in the pool\n"));
  EXPECT_THAT(out.out, Not(HasSubstr("●")));  // one point is no curve
}

TEST(SimulateCommand, SlowerStepsTakeLonger) {
  const auto seconds = [](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"simulate", kTrace, "--memory", "4G", "--policy", "lru", "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const auto out = call(arguments);
    EXPECT_EQ(out.exit_code, kSuccess) << out.err;
    return boost::json::parse(out.out).at("busy_seconds").as_double();
  };
  EXPECT_GT(seconds({"--prefill-rate", "1000"}), 2 * seconds({}));
  EXPECT_GT(seconds({"--decode-rate", "10"}), 1.5 * seconds({}));
}

TEST(SimulateCommand, RefusesWhatItCannotSimulate) {
  expect_refusal(call({"simulate"}), kUsage);
  expect_refusal(call({"simulate", kTrace, "--memory", "lots"}), kUsage);
  expect_refusal(call({"simulate", kTrace, "--policy", "random"}), kUsage);
  expect_refusal(call({"simulate", kTrace, "--shape", "gpt-7"}), kUsage);
  expect_refusal(call({"simulate", kTrace, "--rate", "0"}), kUsage);
  expect_refusal(call({"simulate", kTrace, "--costs", kTrace, "--decode-rate", "5"}), kUsage);
  expect_refusal(call({"simulate", kTrace, "-m", testing::demo_model("llama"), "--shape", "llama-8b"}), kUsage);
  expect_refusal(call({"simulate", "/nowhere.jsonl"}));
  expect_refusal(call({"simulate", kTrace, "--costs", "/nowhere.json"}));
  expect_refusal(call({"simulate", kTrace, "--memory", "1K"}));
  const auto wrong = call({"simulate", QUIRE_SOURCE_DIR "/README.md"});
  expect_refusal(wrong);
  EXPECT_THAT(wrong.err, HasSubstr("README.md:1: "));
}

TEST(SimulateCommand, HelpNamesTheOptions) {
  const auto help = call({"simulate", "--help"});
  EXPECT_EQ(help.exit_code, kSuccess);
  for (const char* option : {"TRACE", "--memory", "--policy", "--costs", "--rate", "--target-itl", "--json"}) {
    EXPECT_THAT(help.out, HasSubstr(option));
  }
}

}  // namespace
}  // namespace quire::cli
