#include "quire/bench/report.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "quire/bench/synth/synth.h"

namespace quire::bench {
namespace {

const std::string kPage =
    std::string("# Before\n\n").append(kReportBegin).append("\n\nold\n\n").append(kReportEnd).append("\n\nAfter.\n");

TEST(BenchReport, EveryTargetIsOfAShapeATypeAndAWorkloadThatThereAre) {
  for (const Target& target : all_targets()) {
    EXPECT_NE(synth::find_shape(target.shape), nullptr) << target.shape;
    EXPECT_NE(std::ranges::find(synth::type_names(), target.type), synth::type_names().end()) << target.type;
    EXPECT_NE(std::ranges::find(workload_names(), target.workload), workload_names().end()) << target.workload;
    EXPECT_EQ(target.of == Target::Of::unshared, target.target > 1) << "a share is at most 1";
  }
}

TEST(BenchReport, ATargetSpeaksOfItsRowAlone) {
  const Target target{.shape = "x", .type = "Q8_0", .workload = "decode", .batch = 32};
  EXPECT_TRUE(speaks_of(target, {.workload = "decode", .batch = 32}));
  EXPECT_FALSE(speaks_of(target, {.workload = "decode", .batch = 8}));
  EXPECT_FALSE(speaks_of(target, {.workload = "prefill", .batch = 32}));
  EXPECT_FALSE(speaks_of(target, {.workload = "decode", .phase = "shared", .batch = 32}));
  const Target shared{.workload = "shared-decode", .phase = "shared", .batch = 32, .of = Target::Of::unshared};
  EXPECT_TRUE(speaks_of(shared, {.workload = "shared-decode", .phase = "shared", .batch = 20})) << "as many as fit";
}

Setting setting() {
  return {.processor = "Abacus 3000",
          .variant = "avx512",
          .date = "2025-01-02",
          .cores = 2,
          .threads = 2,
          .memory = std::uint64_t{24} << 30,
          .repeat = 3,
          .limits = {.read = 20e9, .int8 = 1000e9, .f32 = 200e9, .bf16 = 400e9}};
}

TEST(BenchReport, SaysWhatWasReachedOfWhatAndWhetherThatIsEnough) {
  const Target read{"llama-1.1b", "Q8_0", "decode", "", 1, Target::Of::read, 0.85};
  const Target compute{"llama-1.1b", "F16", "prefill", "", 1, Target::Of::compute, 0.70};
  const Target none{"granite-h-350m", "Q8_0", "decode", "", 8};
  const Target shared{"qwen3-0.6b", "Q8_0", "shared-decode", "shared", 32, Target::Of::unshared, 4};
  const Finding findings[] = {
      {.target = read,
       .row = BenchRow{.workload = "decode", .tokens_per_second = 17.5, .work = Work{.tokens = 1, .bytes = 1e9}}},
      // Memory is the lower limit, but the target is about multiplying.
      {.target = compute,
       .row = BenchRow{.workload = "prefill",
                       .context = 512,
                       .tokens_per_second = 60,
                       .work = Work{.tokens = 100, .bytes = 40e9, .f32_ops = 200e9}}},
      {.target = none,
       .row = BenchRow{.workload = "decode",
                       .batch = 8,
                       .tokens_per_second = 5,
                       .work = Work{.tokens = 8, .bytes = 1e9, .int8_ops = 800e9}}},
      {.target = shared,
       .row = BenchRow{.workload = "shared-decode",
                       .phase = "shared",
                       .batch = 24,
                       .context = 4096,
                       .tokens_per_second = 90,
                       .speedup = 4.5}},
      {.target = read, .why = "the disk | is full"},
      {.target = none},
  };
  EXPECT_EQ(
      report(findings, setting()),
      R"(2025-01-02: Abacus 3000, 2 cores, 24.0 GiB of memory; 2 threads, avx512 kernels; the best of 3. The best limits measured in the same run: 20.0 GB/s read, 1000 G int8, 400 G bf16 and 200 G f32 operations a second.

| model          | type | phase                                        | tokens/s |         limit | ratio | target |                                  |
|----------------|------|----------------------------------------------|---------:|--------------:|------:|-------:|----------------------------------|
| llama-1.1b     | Q8_0 | decode, batch 1                              |     17.5 |     20.0 read |  0.88 |   0.85 | met                              |
| llama-1.1b     | F16  | prefill 512                                  |     60.0 |     100.0 f32 |  0.60 |   0.70 | missed                           |
| granite-h-350m | Q8_0 | decode, batch 8                              |      5.0 |     10.0 int8 |  0.50 |        |                                  |
| qwen3-0.6b     | Q8_0 | decode, 24 sequences that share 4,096 tokens |     90.0 | 20.0 unshared |  4.50 |   4.00 | met                              |
| llama-1.1b     | Q8_0 | decode, batch 1                              |          |               |       |   0.85 | not measured: the disk / is full |
| granite-h-350m | Q8_0 | decode, batch 8                              |          |               |       |        | not measured                     |
)");
}

TEST(BenchReport, TimesOfServeAreComparedWithTheIdealAndTheTarget) {
  using Of = Target::Of;
  BenchRow row{.workload = "serve", .phase = "warm", .batch = 8};
  row.serve = ServeTimes{
      .target = 0.1,
      .measured = {.total = 10, .first_token = {.p95 = 3}, .between_tokens = {.p99 = 0.08}},
      .ideal = {.total = 8.5, .first_token = {.p95 = 1.2}},
  };
  const auto target = [](Of of, double wanted) { return Target{"llama-1.1b", "Q8_0", "serve", "warm", 8, of, wanted}; };
  const Finding findings[] = {{.target = target(Of::total, 0.8), .row = row},
                              {.target = target(Of::first_token, 0.5), .row = row},
                              {.target = target(Of::between_tokens, 1), .row = row}};
  const std::string text = report(findings, setting());
  for (const char* line :
       {"| serve, warm: all requests        |  10.00 s |  8.50 s ideal |  0.85 |   0.80 | met    |\n",
        "| serve, warm: first token, 95%    |   3.00 s |  1.20 s ideal |  0.40 |   0.50 | missed |\n",
        "| serve, warm: between tokens, 99% |    80 ms | 100 ms target |  1.25 |   1.00 | met    |\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << text;
  }
}

TEST(BenchReport, TheMachineIsNamed) {
  const Setting here = this_machine();
  EXPECT_FALSE(here.processor.empty());
  EXPECT_FALSE(here.variant.empty());
  EXPECT_EQ(here.date.size(), std::string_view("2025-01-02").size());
  EXPECT_GE(here.cores, 1u);
  EXPECT_GT(here.memory, 0u);
}

TEST(BenchReport, ReplacesWhatIsBetweenTheTwoLinesAndNothingElse) {
  const auto page = with_report(kPage, "new\n");
  ASSERT_TRUE(page.has_value()) << page.error().message;
  EXPECT_EQ(
      *page,
      std::string("# Before\n\n").append(kReportBegin).append("\n\nnew\n\n").append(kReportEnd).append("\n\nAfter.\n"));
  EXPECT_EQ(with_report(*page, "new\n"), *page) << "the same report twice leaves the same page";
  EXPECT_EQ(*with_report(*with_report(*page, "other\n"), "old\n"), kPage);
}

TEST(BenchReport, APageWithoutBothLinesOnceAndInOrderIsRefused) {
  const std::string begin(kReportBegin), end(kReportEnd);
  EXPECT_EQ(with_report("no room\n", "x").error().message, "there is no line '" + begin + "'");
  EXPECT_EQ(with_report(begin + "\n", "x").error().message, "there is no line '" + end + "'");
  EXPECT_EQ(with_report(end + "\n" + begin, "x").error().message, "'" + end + "' comes before '" + begin + "'");
  EXPECT_EQ(with_report(begin + "\n" + begin + end, "x").error().message, "there are two lines '" + begin + "'");
}

}  // namespace
}  // namespace quire::bench
