#include "quire/bench/ideal.h"

#include <gtest/gtest.h>

namespace quire::bench {
namespace {

// A step takes 10 s, and 1 s more for each row.
constexpr engine::StepCosts kCosts{.base = 10, .decode_row = 1, .prefill_row = 1};

TEST(Ideal, OneRequestTakesItsPromptAndItsTokens) {
  const LoadTimes times = ideal_of({.requests = {{.prompt = 20, .output = 3}}, .at_once = 1}, kCosts, 5);
  EXPECT_DOUBLE_EQ(times.first_token.p50, 30);
  EXPECT_DOUBLE_EQ(times.between_tokens.p50, 11);
  EXPECT_DOUBLE_EQ(times.total, 30 + 2 * 11);
}

TEST(Ideal, CachedTokensAreNotComputed) {
  const LoadTimes times = ideal_of({.requests = {{.prompt = 20, .output = 1, .cached = 16}}, .at_once = 1}, kCosts, 5);
  EXPECT_DOUBLE_EQ(times.total, 14);
}

TEST(Ideal, ASharedPrefixIsComputedOnce) {
  const OfflineRequest request{.prompt = 20, .output = 1, .shared = 16};
  // All of the first prompt, then four tokens of each of the others.
  const LoadTimes times = ideal_of({.requests = {request, request, request}, .at_once = 3}, kCosts, 100);
  EXPECT_DOUBLE_EQ(times.total, 30 + 18);
}

TEST(Ideal, TheNextComesWhenOneEnds) {
  const OfflineRequest request{.prompt = 10, .output = 1};
  EXPECT_DOUBLE_EQ(ideal_of({.requests = {request, request, request}, .at_once = 1}, kCosts, 5).total, 3 * 20);
  EXPECT_DOUBLE_EQ(ideal_of({.requests = {request, request, request}, .at_once = 3}, kCosts, 5).total, 10 + 3 * 10);
}

TEST(Ideal, PromptsShareAStepWithDecodeUpToTheTarget) {
  // The second comes while the first decodes. At most 9 of its rows fit into a step of 20 s.
  const OfflineLoad load{
      .requests = {{.arrival = 0, .prompt = 10, .output = 6}, {.arrival = 5, .prompt = 18, .output = 1}}};
  const LoadTimes times = ideal_of(load, kCosts, 20);
  EXPECT_DOUBLE_EQ(times.between_tokens.p99, 20);
  EXPECT_DOUBLE_EQ(times.first_token.p99, 20 + 2 * 20 - 5);
  EXPECT_DOUBLE_EQ(times.total, 20 + 2 * 20 + 3 * 11);
}

TEST(Ideal, TimeWithoutRequestsPasses) {
  const LoadTimes times =
      ideal_of({.requests = {{.arrival = 3, .prompt = 10, .output = 1}, {.arrival = 100, .prompt = 10, .output = 1}}},
               kCosts, 20);
  EXPECT_DOUBLE_EQ(times.total, 97 + 20);
  EXPECT_DOUBLE_EQ(times.first_token.p99, 20);
}

TEST(Ideal, AShortPromptGoesBeforeALongOne) {
  // One decodes. A long prompt comes, then a short one, which fits into a step beside the decode.
  const OfflineLoad load{.requests = {{.arrival = 0, .prompt = 10, .output = 50},
                                      {.arrival = 1, .prompt = 90, .output = 1},
                                      {.arrival = 2, .prompt = 9, .output = 1}}};
  // The short one is done after the step in which it could begin, at 40 s. The long one needs ten steps of its own.
  EXPECT_DOUBLE_EQ(ideal_of(load, kCosts, 20).first_token.p50, 40 - 2);
  // In the order of arrival the short one would be the last, at 240 s. That is a second better than the long one after
  // it, so this figure is that schedule's.
  EXPECT_DOUBLE_EQ(ideal_of(load, kCosts, 20).first_token.p95, 240 - 2);
}

}  // namespace
}  // namespace quire::bench
