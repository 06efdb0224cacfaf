// The engine when requests need more memory than there is.
#include <string>
#include <tuple>

#include <gtest/gtest.h>

#include "quire/engine/engine.h"
#include "quire/engine/engine_testing.h"

namespace quire::engine::testing {
namespace {

class EngineSuspends : public ::testing::TestWithParam<std::tuple<Kind, SuspendBy>> {};
// The same, without the kind whose sequences do not grow (recurrent only).
class EngineSuspendsGrowing : public EngineSuspends {};
std::string both_names(const ::testing::TestParamInfo<std::tuple<Kind, SuspendBy>>& both) {
  return std::string(name(std::get<0>(both.param))) +
         (std::get<1>(both.param) == SuspendBy::Copy ? "ByCopy" : "ByRecompute");
}
INSTANTIATE_TEST_SUITE_P(Models, EngineSuspends,
                         ::testing::Combine(::testing::Values(Kind::Attention, Kind::Windowed, Kind::Recurrent,
                                                              Kind::Hybrid),
                                            ::testing::Values(SuspendBy::Copy, SuspendBy::Recompute)),
                         both_names);
INSTANTIATE_TEST_SUITE_P(Models, EngineSuspendsGrowing,
                         ::testing::Combine(::testing::Values(Kind::Attention, Kind::Windowed, Kind::Hybrid),
                                            ::testing::Values(SuspendBy::Copy, SuspendBy::Recompute)),
                         both_names);

TEST_P(EngineSuspends, ASuspendedSequenceResumesWhereItWasAndTheAnswerIsTheSame) {
  const auto [kind, by] = GetParam();
  const bool pages = kind != Kind::Recurrent;
  Fixture fixture({.kind = kind,
                   .budget = pages ? 24u << 10 : 1u << 10,
                   .engine = {.target_itl = std::chrono::microseconds(0), .suspend_by = by, .check_integrity = true}});
  std::vector<Request> requests;
  std::vector<std::shared_ptr<Collector>> heard;
  for (std::uint64_t i = 0; i < 12; ++i) {
    requests.push_back(seeded(some_tokens(20, i), 60, i));
    requests.back().priority = i == 11 ? 1 : 0;  // arrives last, but has the highest rank
    heard.push_back(fixture.submit(requests.back()));
    fixture.engine->step();
    fixture.engine->step();
  }
  fixture.run();
  EXPECT_EQ(fixture.model->problem, "");
  for (std::size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(heard[i]->problem, "");
    EXPECT_EQ(heard[i]->choices[0].answer(), fixture.right(requests[i])) << i;
  }
  const EngineStats stats = fixture.engine->stats();
  EXPECT_GT(by == SuspendBy::Copy ? stats.suspensions_by_copy : stats.suspensions_by_recompute, 0u);
  EXPECT_EQ(by == SuspendBy::Copy ? stats.suspensions_by_recompute : stats.suspensions_by_copy, 0u);
  EXPECT_EQ(stats.resumed, stats.suspensions_by_copy + stats.suspensions_by_recompute);
  EXPECT_EQ(stats.host_bytes, 0u);
}

TEST_P(EngineSuspendsGrowing, AResumedSequenceDecodesATokenBeforeItIsSuspendedAgain) {
  const auto [kind, by] = GetParam();
  Fixture fixture({.kind = kind,
                   .budget = 16 << 10,
                   .engine = {.target_itl = std::chrono::microseconds(0), .suspend_by = by, .check_integrity = true}});
  std::vector<std::shared_ptr<Collector>> heard;
  for (std::uint64_t i = 0; i < 8; ++i) heard.push_back(fixture.submit(seeded(some_tokens(20, i), 60, i)));
  while (fixture.engine->step()) {
  }
  std::uint32_t suspensions = 0, tokens = 0;
  for (const auto& one : heard) {
    suspensions += one->usage.suspensions;
    tokens += static_cast<std::uint32_t>(one->choices[0].tokens.size());
    EXPECT_LT(one->usage.suspensions, one->choices[0].tokens.size());
  }
  EXPECT_GT(suspensions, 0u);
  EXPECT_LT(suspensions, tokens / 4);
}

// Several long prompts, and room for a little more than one: later ones are admitted, suspended half way, and resumed.
TEST_P(EngineSuspends, ASequenceThatIsSuspendedDuringPrefillIsResumed) {
  const auto [kind, by] = GetParam();
  for (std::uint64_t budget = 6 << 10; budget <= 16 << 10; budget += 256) {
    Fixture fixture({.kind = kind,
                     .budget = budget,
                     .engine = {.step_tokens = 16,
                                .target_itl = std::chrono::microseconds(0),
                                .suspend_by = by,
                                .check_integrity = true}});
    std::vector<Request> requests;
    std::vector<std::shared_ptr<Collector>> heard;
    for (std::uint64_t i = 0; i < 4; ++i) {
      requests.push_back(seeded(some_tokens(150, i), 20, i));
      heard.push_back(fixture.submit(requests.back()));
    }
    if (!heard.back()->refused.empty()) continue;
    fixture.run();
    EXPECT_EQ(fixture.model->problem, "");
    ASSERT_TRUE(fixture.engine->idle()) << budget;
    for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(heard[i]->choices[0].answer(), fixture.right(requests[i]));
  }
}

TEST(Engine, CopiesStayWithinTheHostMemoryTheyMayHave) {
  Fixture fixture(
      {.budget = 24 << 10, .engine = {.host_bytes = 0, .suspend_by = SuspendBy::Copy, .check_integrity = true}});
  for (std::uint64_t i = 0; i < 12; ++i) fixture.submit(seeded(some_tokens(20, i), 60, i));
  fixture.run();
  EXPECT_EQ(fixture.engine->stats().suspensions_by_copy, 0u);
  EXPECT_GT(fixture.engine->stats().suspensions_by_recompute, 0u);
  EXPECT_EQ(fixture.engine->stats().finished, 12u);
}

TEST(Engine, ARequestOfHigherPriorityTakesThePlaceOfALowerOne) {
  Fixture fixture({.max_sequences = 1});
  const auto low = fixture.submit(greedy(some_tokens(20), 100));
  for (int i = 0; i < 10; ++i) fixture.engine->step();
  Request urgent = greedy(some_tokens(20, 2), 3);
  urgent.priority = 1;
  const auto high = fixture.submit(urgent);
  for (int i = 0; i < 5; ++i) fixture.engine->step();
  EXPECT_TRUE(high->ended);
  EXPECT_FALSE(low->ended);
  fixture.run();
  EXPECT_EQ(low->choices[0].answer(), fixture.right(greedy(some_tokens(20), 100)));
  EXPECT_EQ(low->usage.suspensions, 1u);
}

}  // namespace
}  // namespace quire::engine::testing
