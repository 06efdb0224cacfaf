#include "quire/cli/bench.h"

#include <map>

#include <boost/json.hpp>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/bench/bench_testing.h"
#include "quire/cli/cli_testing.h"
#include "quire/gguf/gguf_testing.h"
#include "quire/simulate/costs.h"

namespace quire::cli {
namespace {

namespace json = boost::json;
using ::testing::HasSubstr;

// The test checks that the machine is measured, not how fast it is.
const bench::LimitOptions kQuick = {.seconds = 1e-3, .buffer_bytes = 1 << 20};

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
  BenchOptions options{
      .model = {.model = testing::demo_model(GetParam()), .context = 512}, .json = true, .limits = kQuick};
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
    const bool limited = row.at("workload") == "prefill" || row.at("workload") == "decode";
    for (const char* field : {"limit", "ratio", "bound", "ratio_read", "ratio_compute"}) {
      EXPECT_EQ(row.contains(field), limited) << field << " " << json::serialize(row);
    }
    if (!limited) continue;
    EXPECT_GT(row.at("limit").to_number<double>(), 0);
    EXPECT_NEAR(row.at("ratio").to_number<double>(),
                row.at("tokens_per_second").to_number<double>() / row.at("limit").to_number<double>(), 1e-9);
    EXPECT_EQ(row.at("ratio").to_number<double>(),
              std::max(row.at("ratio_read").to_number<double>(), row.at("ratio_compute").to_number<double>()));
    EXPECT_TRUE(row.at("bound") == "read" || row.at("bound") == "int8") << "the demo models are quantised";
  }
  EXPECT_EQ(seen, (std::map<std::string, int>{
                      {"prefill", 1}, {"decode", 2}, {"shared-prefix", 2}, {"chat", 1}, {"mixed", 1}}));
}

TEST(Bench, SeveralNumbersOfThreadsAreComparedWithTheFirst) {
  BenchOptions options{.model = {.model = testing::demo_model("llama"), .context = 256},
                       .workloads = {"prefill", "decode"},
                       .threads = {1, 2, 3},
                       .json = true,
                       .limits = kQuick};
  options.workload = {.repeat = 1, .context = 32, .batches = {1, 4}, .tokens = 4};
  const std::vector<json::object> rows = rows_of(options);
  ASSERT_EQ(rows.size(), 9u);  // a prefill and two batches with each
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const json::object &row = rows[i], &first = rows[i % 3];
    EXPECT_EQ(row.at("threads").to_number<int>(), static_cast<int>(i / 3) + 1);
    EXPECT_EQ(row.at("workload"), first.at("workload"));
    EXPECT_EQ(row.at("batch"), first.at("batch"));
    EXPECT_DOUBLE_EQ(row.at("scaling").to_number<double>(), row.at("tokens_per_second").to_number<double>() /
                                                                first.at("tokens_per_second").to_number<double>());
    EXPECT_GT(row.at("limit").to_number<double>(), 0);
  }

  options.json = false;
  StringOutput out, err;
  const auto end = bench(options, {.out = out, .err = err});
  ASSERT_TRUE(end.has_value()) << end.error().message;
  EXPECT_THAT(out.text(), HasSubstr("threads speed-up workload"));
  EXPECT_THAT(out.text(), HasSubstr("      1    1.00x prefill"));
  EXPECT_THAT(*end, HasSubstr("limits, 1 thread:"));
  EXPECT_THAT(*end, HasSubstr("limits, 3 threads:"));
}

// Times depend on the machine, hit rates do not: nearly all tokens of the later requests are reused.
TEST_P(BenchOnDemo, OfAPrefixThatWasReadNearlyAllIsFound) {
  BenchOptions options{.model = {.model = testing::demo_model(GetParam())},
                       .workloads = {"shared-prefix"},
                       .json = true,
                       .limits = kQuick};
  options.workload = {.repeat = 1, .context = 400};
  const auto rows = rows_of(options);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].at("hit_rate").to_number<double>(), 0);
  EXPECT_GT(rows[1].at("hit_rate").to_number<double>(), 0.9);
}

TEST_P(BenchOnDemo, SpeculationIsComparedWithNone) {
  BenchOptions options{.model = {.model = testing::demo_model(GetParam()), .context = 512},
                       .workloads = {"speculation"},
                       .json = true,
                       .limits = kQuick};
  options.workload = {.repeat = 1, .context = 64, .batches = {1, 3}, .tokens = 16};
  std::vector<std::string> phases;
  for (const json::object& row : rows_of(options)) {
    const std::string phase(row.at("phase").as_string());
    phases.push_back(fmt::format("{} {}", phase, row.at("batch").as_int64()));
    EXPECT_GT(row.at("tokens_per_second").to_number<double>(), 0) << phase;
    EXPECT_EQ(row.contains("speedup"), phase.ends_with("on")) << json::serialize(row);
  }
  EXPECT_THAT(phases,
              ::testing::ElementsAre("summarise, off 1", "summarise, on 1", "summarise, off 3", "summarise, on 3",
                                     "write, off 1", "write, on 1", "write, off 3", "write, on 3"));
}

TEST_P(BenchOnDemo, ServeIsComparedWithTheIdealAndTellsTheCosts) {
  BenchOptions options{.model = {.model = testing::demo_model(GetParam()), .context = 512},
                       .workloads = {"serve"},
                       .json = true,
                       .limits = kQuick};
  options.workload = {.repeat = 1, .context = 64, .tokens = 4};
  const std::vector<json::object> rows = rows_of(options);
  ASSERT_EQ(rows.size(), 3u);
  constexpr const char* kPhases[] = {"cold", "warm", "mix"};
  const gguf::testing::TemporaryFolder folder;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const json::object& row = rows[i];
    EXPECT_EQ(row.at("phase").as_string(), kPhases[i]);
    EXPECT_GT(row.at("target_itl_seconds").as_double(), 0);
    for (const char* whose : {"measured", "ideal"}) {
      const json::object& times = row.at(whose).as_object();
      EXPECT_GT(times.at("total_seconds").as_double(), 0) << whose;
      EXPECT_GT(times.at("first_token_seconds").at("p95").as_double(), 0) << whose;
      EXPECT_GT(times.at("between_tokens_seconds").at("p99").as_double(), 0) << whose;
    }
    testing::write_file(folder / "costs.json", json::serialize(row) + "\n");
    const auto costs = simulate::read_costs(folder / "costs.json");
    ASSERT_TRUE(costs) << costs.error().message;
    EXPECT_GT(costs->base + costs->prefill_row, 0);
  }
  // The shared prefix of 64 of 96 tokens: when it is cold, 15 of 16 requests find it.
  EXPECT_GE(rows[0].at("hit_rate").to_number<double>(), 0.5);
  EXPECT_GE(rows[1].at("hit_rate").to_number<double>(), 0.6);
  EXPECT_LT(rows[2].at("hit_rate").to_number<double>(), 0.1);
}

TEST(Bench, ServeNeedsRoomForItsPrompts) {
  BenchOptions options{.model = {.model = testing::demo_model("llama"), .context = 64}, .workloads = {"serve"}};
  options.workload = {.repeat = 1, .context = 64, .tokens = 4};
  options.limits = kQuick;
  StringOutput out, err;
  const auto result = bench(options, {.out = out, .err = err});
  ASSERT_FALSE(result);
  EXPECT_THAT(result.error().message, HasSubstr("serve: needs a context of 132 tokens"));
}

TEST(Bench, TheTableHasAHeadAndALinePerRow) {
  StringOutput out, err;
  const Console console{.out = out, .err = err};
  BenchOptions options{.model = {.context = 256}, .workloads = {"decode"}, .limits = kQuick};
  options.workload = {.repeat = 1, .context = 16, .batches = {2}, .tokens = 3};
  const auto rest = bench(options, console);
  ASSERT_TRUE(rest.has_value());
  EXPECT_TRUE(out.text().starts_with("workload")) << out.text();
  EXPECT_EQ(std::ranges::count(out.text(), '\n'), 2);
  EXPECT_THAT(*rest, HasSubstr("The machine's limits, "));
}

TEST(Bench, APromptLongerThanTheContextIsAnError) {
  StringOutput out, err;
  const Console console{.out = out, .err = err};
  BenchOptions options{.model = {.context = 64}, .workloads = {"prefill"}, .limits = kQuick};
  options.workload = {.repeat = 1, .context = 100};
  const auto failed = bench(options, console);
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().message, "the prompt has 100 tokens, and the context only 64");
}

// --- synthetic models

TEST(BenchOnShapes, EveryShapeIsMeasuredInEveryType) {
  BenchOptions options{.shapes = {bench::testing::tiny_llama(), bench::testing::tiny_mamba()},
                       .types = {"Q8_0", "F16"}};
  options.json = true;
  options.limits = kQuick;
  options.workload = {.repeat = 1, .context = 80, .batches = {1, 3}, .shared = 4, .tokens = 3};
  std::map<std::string, int> seen;
  for (const json::object& row : rows_of(options)) {
    const std::string name(row.at("workload").as_string());
    ++seen[std::string(row.at("shape").as_string()) + " " + std::string(row.at("type").as_string()) + " " + name];
    EXPECT_TRUE(row.contains("limit")) << json::serialize(row);
    EXPECT_GT(row.at("limit").to_number<double>(), 0);
    if (row.at("type") == "F16") {
      EXPECT_NE(row.at("bound"), "int8") << json::serialize(row);
    }
    const bool attention = row.contains("phase") && row.at("phase") == "attention";
    EXPECT_EQ(row.contains("ratio_compute"), !attention) << "of the attention part only what it reads counts";
    if (!attention) {
      EXPECT_GT(row.at("ratio").to_number<double>(), 0);
    }
    EXPECT_EQ(row.contains("speedup"), row.contains("phase") && row.at("phase") == "shared");
  }
  EXPECT_EQ(seen, (std::map<std::string, int>{{"tiny-llama Q8_0 prefill", 1},
                                              {"tiny-llama Q8_0 decode", 2},
                                              {"tiny-llama Q8_0 long-decode", 2},
                                              {"tiny-llama Q8_0 shared-decode", 2},
                                              {"tiny-llama F16 prefill", 1},
                                              {"tiny-llama F16 decode", 2},
                                              {"tiny-llama F16 long-decode", 2},
                                              {"tiny-llama F16 shared-decode", 2},
                                              {"tiny-mamba Q8_0 prefill", 1},
                                              {"tiny-mamba Q8_0 decode", 2},
                                              {"tiny-mamba F16 prefill", 1},
                                              {"tiny-mamba F16 decode", 2}}))
      << "without attention there is no attention to measure";
}

TEST(BenchOnShapes, WhatDoesNotFitIsLeftOutAndSaidSo) {
  StringOutput out, err;
  BenchOptions options{.shapes = {bench::testing::tiny_llama()}, .workloads = {"long-decode", "shared-decode"}};
  options.limits = kQuick;
  options.workload = {.repeat = 1, .tokens = 3};
  ASSERT_TRUE(bench(options, {.out = out, .err = err}).has_value());
  EXPECT_EQ(out.text(), "");
  EXPECT_EQ(err.text(),
            "quire: tiny-llama Q8_0: long-decode: left out, a sequence of 8196 tokens is longer than the context of "
            "512\n"
            "quire: tiny-llama Q8_0: shared-decode: left out, a sequence of 4100 tokens is longer than the context of "
            "512\n");
}

TEST(BenchOnShapes, WithLittleMemoryFewerSequencesShare) {
  StringOutput out, err;
  BenchOptions options{.shapes = {bench::testing::tiny_llama()}, .workloads = {"shared-decode"}, .json = true};
  options.limits = kQuick;
  // In this model a token takes 256 bytes, a page holds 16 tokens, and a sequence of 244 tokens has 16 pages.
  options.model.memory = 5 * 16 * 16 * 256;
  options.workload = {.repeat = 1, .context = 240, .shared = 32, .tokens = 3};
  ASSERT_TRUE(bench(options, {.out = out, .err = err}).has_value());
  EXPECT_THAT(out.text(), HasSubstr("\"batch\":5,"));
  EXPECT_EQ(err.text(),
            "quire: tiny-llama Q8_0: shared-decode: there is memory for 5 sequences of 244 tokens only, not 32\n");
}

TEST(BenchOnShapes, AShortSequenceHasNoAttentionPart) {
  StringOutput out, err;
  BenchOptions options{.shapes = {bench::testing::tiny_llama()}, .workloads = {"long-decode"}, .json = true};
  options.limits = kQuick;
  options.workload = {.repeat = 1, .context = 30, .tokens = 3};
  ASSERT_TRUE(bench(options, {.out = out, .err = err}).has_value());
  EXPECT_EQ(std::ranges::count(out.text(), '\n'), 1);
  EXPECT_EQ(err.text(), "quire: tiny-llama Q8_0: long-decode: no attention part, 30 tokens are not a long sequence\n");
}

// --- targets

const std::string kPage = std::string(bench::kReportBegin).append("\n").append(bench::kReportEnd).append("\n");

TEST(BenchTargets, TheirRowsAreMeasuredAndTheTableIsWrittenToThePage) {
  const gguf::testing::TemporaryFolder folder;
  const std::string page = folder / "page.md";
  testing::write_file(page, kPage);
  using Of = bench::Target::Of;
  BenchOptions options{
      .shapes = {bench::testing::tiny_llama(), bench::testing::tiny_mamba()}, .report = page, .limits = kQuick};
  options.targets = {{"tiny-llama", "F16", "prefill", "", 1, Of::compute, 1e-9},
                     {"tiny-llama", "Q8_0", "decode", "", 2, Of::read, 1e9},
                     {"tiny-llama", "Q8_0", "shared-decode", "shared", 3, Of::unshared, 1e9},
                     {"tiny-mamba", "Q8_0", "long-decode", "attention", 1, Of::read, 0.5},
                     {"tiny-llama", "Q9_9", "decode", "", 1, Of::read, 0.5}};
  options.workload = {.repeat = 1, .context = 40, .tokens = 3};
  StringOutput out, err;
  const auto rest = bench(options, {.out = out, .err = err});
  ASSERT_TRUE(rest.has_value()) << rest.error().message;
  const std::string text = testing::read_file(page);
  EXPECT_THAT(text, HasSubstr(rest->substr(1))) << "the screen shows what the page has";
  EXPECT_THAT(text, ::testing::ContainsRegex("\\| F16  \\| prefill 40 .*\\| met"));
  EXPECT_THAT(text, ::testing::ContainsRegex("\\| Q8_0 \\| decode, batch 2 .*\\| missed"));
  EXPECT_THAT(text, ::testing::ContainsRegex("decode, 3 sequences that share 40 tokens .* unshared .*\\| missed"));
  EXPECT_THAT(text, ::testing::ContainsRegex("\\| Q9_9 \\| decode, batch 1 .*\\| not measured: "));
  EXPECT_THAT(text, HasSubstr("not measured: long-decode: left out, the model has no attention"));
  EXPECT_THAT(err.text(), HasSubstr("quire: tiny-llama Q9_9: ")) << "what cannot be had does not keep the others away";
  EXPECT_EQ(std::ranges::count(out.text(), '\n'), 1 + 2 + 1 + 3) << out.text();
}

TEST(BenchTargets, APageWithoutRoomIsRefusedBeforeAnythingIsMeasured) {
  const gguf::testing::TemporaryFolder folder;
  const std::string page = folder / "page.md";
  testing::write_file(page, "text\n");
  const auto outcome = testing::call({"bench", "--report", page});
  testing::expect_refusal(outcome);
  EXPECT_THAT(outcome.err, HasSubstr("page.md: there is no line '<!-- bench: begin"));
}

// --- the command line

TEST(BenchCommand, RefusesWhatCannotBeMeant) {
  const std::pair<std::vector<std::string>, std::string> wrong[] = {
      {{"--shape", "llama-9b"}, "--shape: \"llama-9b\" is not one of llama-1.1b, "},
      {{"--shape", "llama-1.1b", "--type", "Q9_9"}, "--type: \"Q9_9\" is not one of "},
      {{"--shape", "llama-1.1b", "-m", "x.gguf"}, "excludes"},
      {{"--type", "Q8_0"}, "with --type, a --shape is required"},
      {{"-w", "sprint"}, "--workload: \"sprint\" is not one of prefill, decode, "},
      {{"--targets", "--shape", "llama-8b"}, "--targets: there is no target for this shape and type"},
      {{"--targets", "--type", "Q2_K"}, "--targets: there is no target for this shape and type"},
      {{"--targets", "-m", "x.gguf"}, "excludes"},
      {{"--targets", "-w", "decode"}, "excludes"},
      {{"--targets", "--shape", "llama-1.1b", "--threads", "1,2"}, "--targets: are those of one number of threads"},
      {{"--threads", "1,0"}, "--threads"},
      {{"--threads", "two"}, "--threads"},
      {{"--report", "x.md", "-w", "decode"}, "excludes"},
  };
  for (const auto& [arguments, message] : wrong) {
    std::vector<std::string> all = {"bench"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const auto outcome = testing::call(all);
    testing::expect_refusal(outcome, kUsage);
    EXPECT_THAT(outcome.err, HasSubstr(message));
  }
}

TEST(BenchCommand, AnUnknownDeviceIsRefusedBeforeAnythingIsMeasured) {
  const auto outcome = testing::call({"bench", "--device", "tpu"});
  testing::expect_refusal(outcome);
  EXPECT_THAT(outcome.err, HasSubstr("there is no device 'tpu' (auto, cpu, cuda and cuda:N are known)"));
}

TEST(BenchCommand, TypesMayBeWrittenSmall) {
  // The error is about the missing page, so shape and type were understood.
  const auto outcome =
      testing::call({"bench", "--shape", "llama-1.1b", "--type", "q8_0,bf16", "--report", "/nowhere.md"});
  testing::expect_refusal(outcome);
  EXPECT_THAT(outcome.err, HasSubstr("/nowhere.md: cannot be opened"));
}

}  // namespace
}  // namespace quire::cli
