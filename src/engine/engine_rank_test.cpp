// Who goes before whom when memory is short.
#include <vector>

#include <gtest/gtest.h>

#include "quire/engine/engine.h"
#include "quire/engine/engine_testing.h"

namespace quire::engine::testing {
namespace {

INSTANTIATE_TEST_SUITE_P(Models, EngineOnGrowingKinds, ::testing::ValuesIn(kGrowingKinds), kind_name);

// Sequences behind the first one are suspended and recomputed again and again. The first one never waits for them.
TEST_P(EngineOnGrowingKinds, AStreamNeverStandsStillForOneBehindItThatIsRecomputed) {
  std::uint64_t suspensions = 0;
  for (std::uint64_t budget = 8 << 10; budget <= 24 << 10; budget += 512) {
    SCOPED_TRACE(budget);
    Fixture fixture({.kind = GetParam(),
                     .budget = budget,
                     .engine = {.step_tokens = 8, .suspend_by = SuspendBy::Recompute, .check_integrity = true}});
    const auto first = fixture.submit(greedy(some_tokens(8), 200));
    if (!first->refused.empty()) continue;
    fixture.engine->step();
    for (std::uint64_t i = 0; i < 4; ++i) fixture.submit(seeded(some_tokens(60, 2 + i), 60, i));
    for (std::size_t tokens = 2; !first->ended; ++tokens) {
      ASSERT_TRUE(fixture.engine->step());
      ASSERT_EQ(first->choices[0].tokens.size(), tokens) << "a token in every step";
    }
    fixture.run();
    EXPECT_EQ(fixture.model->problem, "");
    suspensions += fixture.engine->stats().suspensions_by_recompute;
  }
  EXPECT_GT(suspensions, 10u);
}

TEST(EngineRank, NobodyIsSuspendedForARequestThatStillDoesNotFit) {
  // Four sequences of 8 pages each fill the pool. Two of them have a higher priority than the newcomer, and it needs
  // more than what the other two would free.
  Fixture fixture({.budget = 4 * 8 * 2 * 8 * 32, .max_tokens = 256});
  std::vector<std::shared_ptr<Collector>> heard;
  for (std::uint64_t i = 0; i < 4; ++i) {
    Request request = greedy(some_tokens(40, i), 60);
    request.priority = i < 2 ? 2 : 0;
    heard.push_back(fixture.submit(request));
  }
  for (int i = 0; i < 10; ++i) fixture.engine->step();
  Request large = greedy(some_tokens(200, 9), 1);
  large.priority = 1;
  const auto newcomer = fixture.submit(large);
  ASSERT_EQ(newcomer->refused, "");
  for (int i = 0; i < 5; ++i) fixture.engine->step();
  const EngineStats stats = fixture.engine->stats();
  if (stats.running == 5) GTEST_FAIL() << "the pool is too large for this test";
  EXPECT_EQ(stats.suspensions_by_copy + stats.suspensions_by_recompute, 0u);
  fixture.run();
  EXPECT_TRUE(newcomer->ended);
}

TEST(EngineRank, WhoWaitsForMemoryIsPassedByWhoFitsButNotForEver) {
  Fixture fixture({.budget = 16 << 10, .max_tokens = 256});
  const auto running = fixture.submit(greedy(some_tokens(16), 200));
  for (int i = 0; i < 60; ++i) fixture.engine->step();
  const auto large = fixture.submit(greedy(some_tokens(200, 2), 1));
  ASSERT_EQ(running->refused, "");
  ASSERT_EQ(large->refused, "");
  int passed = 0;
  for (std::uint64_t i = 0; i < 100 && !large->ended; ++i) {
    const auto small = fixture.submit(greedy(some_tokens(8, 10 + i), 1));
    for (int steps = 0; steps < 4; ++steps) fixture.engine->step();
    passed += small->ended && !large->ended;
  }
  EXPECT_GT(passed, 3);
  EXPECT_LE(passed, 16);
  fixture.run();
  EXPECT_TRUE(large->ended);
  EXPECT_TRUE(running->ended);
}

}  // namespace
}  // namespace quire::engine::testing
