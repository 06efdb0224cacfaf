#include "quire/simulate/simulation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/base/numbers.h"
#include "quire/simulate/simulate_testing.h"

namespace quire::simulate {
namespace {

using testing::conversations_trace;
using testing::kCosts;
using testing::small_options;

// One request for each pair of lengths, a second apart, with nothing in common.
Trace made_trace(std::vector<std::pair<std::uint32_t, std::uint32_t>> lengths, double apart = 1) {
  Trace trace;
  for (const auto& [input, output] : lengths) {
    trace.requests.push_back({.seconds = apart * static_cast<double>(trace.requests.size()),
                              .input = input,
                              .output = output,
                              .first_id = trace.ids.size()});
    for (std::uint32_t i = 0; i < divide_up(input, kTokensOfId); ++i) trace.ids.push_back(trace.ids.size());
  }
  return trace;
}

SimulationResult run(const Trace& trace, const SimulationOptions& options) {
  auto result = simulate(trace, options);
  EXPECT_TRUE(result) << result.error().message;
  return result ? *result : SimulationResult{};
}

void expect_equal(const SimulationResult& a, const SimulationResult& b) {
  EXPECT_EQ(a.hit_tokens, b.hit_tokens);
  EXPECT_EQ(a.suspensions, b.suspensions);
  EXPECT_EQ(a.steps, b.steps);
  EXPECT_EQ(a.seconds, b.seconds);
  EXPECT_EQ(a.busy_seconds, b.busy_seconds);
  EXPECT_EQ(a.first_token.p99, b.first_token.p99);
  EXPECT_EQ(a.between_tokens.p50, b.between_tokens.p50);
}

TEST(Simulation, StepsTakeWhatTheCostsSay) {
  // A prompt of 100 tokens in one step, then three steps that each compute a token of the answer.
  const SimulationResult result = run(made_trace({{100, 4}}), small_options());
  engine::StepShape prompt;
  prompt.add_prefill(0, 100);
  const double first = kCosts.seconds(prompt);
  EXPECT_NEAR(result.first_token.p50, first, 1e-6);
  EXPECT_NEAR(result.between_tokens.p50, kCosts.base + kCosts.decode_row + 101 * kCosts.decode_context, 1e-6);
  EXPECT_NEAR(result.seconds, first + 3 * result.between_tokens.p50, 1e-6);
  EXPECT_NEAR(result.busy_seconds, result.seconds, 1e-9);
  EXPECT_EQ(result.steps, 4u);
  EXPECT_EQ(result.output_tokens, 4u);
}

TEST(Simulation, TheRateStretchesTheTimeBetweenRequests) {
  const Trace trace = made_trace({{100, 4}, {100, 4}}, 10);
  SimulationOptions options = small_options();
  const double busy = run(trace, options).busy_seconds;
  EXPECT_NEAR(run(trace, options).seconds, 10 + busy / 2, 1e-6);
  options.rate = 4;
  EXPECT_NEAR(run(trace, options).seconds, 2.5 + busy / 2, 1e-6);
  options.rate = 0;
  EXPECT_FALSE(simulate(trace, options));
}

TEST(Simulation, ALargePoolFindsAllThatPromptsHaveInCommon) {
  const Trace trace = conversations_trace();
  SimulationOptions options = small_options();
  options.rate = 0.01;  // a prompt comes when the one before has been answered
  const SimulationResult result = run(trace, options);
  EXPECT_EQ(result.hit_tokens, testing::repeated_tokens(trace));
  EXPECT_EQ(result.prompt_tokens, facts_of(trace).prompt_tokens);
  EXPECT_EQ(result.output_tokens, facts_of(trace).output_tokens);
  EXPECT_EQ(result.suspensions, 0u);
}

TEST(Simulation, NoPoolFindsMoreThanTheMost) {
  const Trace trace = conversations_trace();
  for (const Eviction policy : all_policies()) {
    for (const std::uint64_t memory : {4 << 20, 16 << 20, 64 << 20}) {
      SimulationOptions options = small_options();
      options.memory = memory;
      options.policy = policy;
      EXPECT_LE(run(trace, options).hit_tokens, facts_of(trace).repeated_tokens) << name(policy) << " " << memory;
    }
  }
}

TEST(Simulation, ASmallPoolSuspendsAndStillFinishesAll) {
  // Sequences that grow to 1,000 tokens each. The pool has room for three.
  const Trace trace = made_trace({{200, 800}, {200, 800}, {200, 800}, {200, 800}, {200, 800}, {200, 800}}, 0.01);
  SimulationOptions options = small_options();
  options.memory = 3 << 20;
  const SimulationResult result = run(trace, options);
  EXPECT_EQ(result.finished, 6u);
  EXPECT_EQ(result.refused, 0u);
  EXPECT_EQ(result.output_tokens, 6u * 800u);
  EXPECT_GT(result.suspensions, 0u);
}

TEST(Simulation, AHybridModelReusesItsCheckpoints) {
  const Trace trace = conversations_trace();
  SimulationOptions options = small_options();
  options.layout = testing::hybrid_layout();
  options.rate = 0.01;
  const SimulationResult result = run(trace, options);
  EXPECT_EQ(result.finished, trace.requests.size());
  EXPECT_GT(result.hit_tokens, facts_of(trace).repeated_tokens / 2);
  EXPECT_LE(result.hit_tokens, facts_of(trace).repeated_tokens);
}

TEST(Simulation, TheSameInputGivesTheSameResult) {
  const Trace trace = conversations_trace();
  SimulationOptions options = small_options();
  options.memory = 8 << 20;
  const SimulationResult result = run(trace, options);
  EXPECT_LT(result.hit_tokens, facts_of(trace).repeated_tokens);
  expect_equal(result, run(trace, options));
}

TEST(Simulation, PromptsKeepTheTimeBetweenTokensWithinTheTarget) {
  // One answer is being written while long prompts come.
  const Trace trace = made_trace({{16, 400}, {4000, 1}, {4000, 1}, {4000, 1}}, 0.5);
  SimulationOptions options = small_options();
  options.target_itl = std::chrono::milliseconds(12);
  EXPECT_LE(run(trace, options).between_tokens.p99, 0.0121);
  options.target_itl = std::chrono::milliseconds(0);
  EXPECT_GT(run(trace, options).between_tokens.p99, 0.025);  // 512 rows a step
}

TEST(Simulation, ARequestThatNeverFitsIsRefusedAndTheOthersRun) {
  SimulationOptions options = small_options();
  options.memory = 3 << 20;
  const SimulationResult result = run(made_trace({{100, 10}, {20'000, 10}, {100, 10}}), options);
  EXPECT_EQ(result.refused, 1u);
  EXPECT_EQ(result.refused_tokens, 20'000u);
  EXPECT_EQ(result.prompt_tokens, 200u);
  EXPECT_EQ(result.finished, 2u);
  options.memory = 100;
  EXPECT_FALSE(simulate(made_trace({{100, 10}}), options));
}

TEST(Simulation, APoolLargerThanTheMachineIsSimulated) {
  SimulationOptions options = small_options();
  options.layout = [] {
    const std::vector<LayerDesc> layers(32, LayerDesc::attention(8, 128));
    return *StateLayout::from_layers(layers, 16);
  }();
  options.memory = std::uint64_t{256} << 30;
  options.check_integrity = false;
  const SimulationResult result = run(conversations_trace(), options);
  EXPECT_EQ(result.finished, conversations_trace().requests.size());
}

}  // namespace
}  // namespace quire::simulate
