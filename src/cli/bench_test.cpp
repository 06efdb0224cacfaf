#include "quire/cli/bench.h"

#include <map>

#include <boost/json.hpp>
#include <gtest/gtest.h>

#include "quire/cli/cli_testing.h"

namespace quire::cli {
namespace {

namespace json = boost::json;

// The rows that `quire bench --json` prints.
std::vector<json::object> rows_of(const BenchOptions& options) {
  StringOutput out, err;
  const Console console{.out = out, .err = err};
  const auto ok = bench(options, console);
  EXPECT_TRUE(ok.has_value()) << ok.error().message;
  std::vector<json::object> rows;
  std::string_view text = out.text();
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    rows.push_back(json::parse({text.data(), end}).as_object());
    text.remove_prefix(end + 1);
  }
  return rows;
}

class BenchOnDemo : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Models, BenchOnDemo, ::testing::Values("llama", "mamba2", "hybrid"),
                         [](const auto& kind) { return std::string(kind.param); });

TEST_P(BenchOnDemo, EveryWorkloadGivesRowsWithAllFields) {
  BenchOptions options{.model = {.model = testing::demo_model(GetParam()), .context = 512}, .json = true};
  options.workload = {.repeat = 1, .context = 48, .batches = {1, 3}, .tokens = 4};
  std::map<std::string, int> seen;
  for (const json::object& row : rows_of(options)) {
    ++seen[std::string(row.at("workload").as_string())];
    for (const char* field : {"batch", "context", "tokens_per_second", "ttft_ms", "hit_rate", "overhead"}) {
      EXPECT_TRUE(row.contains(field)) << field;
      EXPECT_TRUE(row.at(field).is_number()) << field;
    }
    EXPECT_GT(row.at("tokens_per_second").to_number<double>(), 0) << json::serialize(row);
    EXPECT_LT(row.at("overhead").to_number<double>(), 1);
  }
  EXPECT_EQ(seen, (std::map<std::string, int>{
                      {"prefill", 1}, {"decode", 2}, {"shared-prefix", 2}, {"chat", 1}, {"mixed", 1}}));
}

// The times are the machine's; what they stand on is not: of the later requests nearly everything is found.
TEST_P(BenchOnDemo, OfAPrefixThatWasReadNearlyAllIsFound) {
  BenchOptions options{
      .model = {.model = testing::demo_model(GetParam())}, .workloads = {"shared-prefix"}, .json = true};
  options.workload = {.repeat = 1, .context = 400};
  const auto rows = rows_of(options);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].at("hit_rate").to_number<double>(), 0);
  EXPECT_GT(rows[1].at("hit_rate").to_number<double>(), 0.9);
}

TEST(Bench, TheTableHasAHeadAndALinePerRow) {
  StringOutput out, err;
  const Console console{.out = out, .err = err};
  BenchOptions options{.model = {.context = 256}, .workloads = {"decode"}};
  options.workload = {.repeat = 1, .context = 16, .batches = {2}, .tokens = 3};
  ASSERT_TRUE(bench(options, console).has_value());
  EXPECT_TRUE(out.text().starts_with("workload")) << out.text();
  EXPECT_EQ(std::ranges::count(out.text(), '\n'), 2);
}

TEST(Bench, APromptLongerThanTheContextIsAnError) {
  StringOutput out, err;
  const Console console{.out = out, .err = err};
  BenchOptions options{.model = {.context = 64}, .workloads = {"prefill"}};
  options.workload = {.repeat = 1, .context = 100};
  const auto failed = bench(options, console);
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().message, "the prompt has 100 tokens, and the context of 64 leaves no room for an answer");
}

}  // namespace
}  // namespace quire::cli
