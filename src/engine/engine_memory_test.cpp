// The engine when requests need more memory than there is.
#include <algorithm>
#include <string>
#include <tuple>

#include <gtest/gtest.h>

#include "quire/engine/engine.h"
#include "quire/engine/engine_testing.h"
#include "quire/state/counting_device_testing.h"

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
                         ::testing::Combine(::testing::ValuesIn(kAllKinds),
                                            ::testing::Values(SuspendBy::Copy, SuspendBy::Recompute)),
                         both_names);
INSTANTIATE_TEST_SUITE_P(Models, EngineSuspendsGrowing,
                         ::testing::Combine(::testing::ValuesIn(kGrowingKinds),
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

// Two requests share a prefix of 1,000 tokens. One of them makes way for a third that is urgent.
TEST(EngineSuspends, CopiesOnlyPagesThatNobodyElseHolds) {
  for (const Kind kind : kGrowingKinds) {
    Fixture fixture(
        {.kind = kind,
         .max_sequences = 2,
         .max_tokens = 2048,
         .engine = {
             .target_itl = std::chrono::microseconds(0), .suspend_by = SuspendBy::Copy, .check_integrity = true}});
    std::vector<Token> prompt = some_tokens(1000);
    std::vector<Request> requests;
    std::vector<std::shared_ptr<Collector>> heard;
    for (Token i = 0; i < 2; ++i) {
      prompt.resize(1000);
      prompt.insert(prompt.end(), {i, 7, 7});
      requests.push_back(greedy(prompt, 40));
      heard.push_back(fixture.submit(requests.back()));
    }
    while (heard[1]->choices.empty() || heard[1]->choices[0].tokens.size() < 3) ASSERT_TRUE(fixture.engine->step());
    requests.push_back(greedy(some_tokens(20, 2), 3));
    requests.back().priority = 1;
    heard.push_back(fixture.submit(requests.back()));
    while (fixture.engine->stats().suspended == 0) ASSERT_TRUE(fixture.engine->step());
    // Its own: the last page of each layer group (8 tokens, 32 bytes of each in a layer), and the state.
    const std::uint64_t layers = kind == Kind::Hybrid || kind == Kind::ShortConv ? 1 : 2;
    const std::uint64_t state = fixture.pool->layout().recurrent.bytes();
    EXPECT_EQ(fixture.engine->stats().bytes_saved, layers * 8 * 32 + state) << name(kind);
    fixture.run();
    EXPECT_EQ(fixture.model->problem, "");
    for (std::size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(heard[i]->choices[0].answer(), fixture.right(requests[i])) << i;
    }
    EXPECT_EQ(fixture.engine->stats().suspensions_by_copy, 1u);
    EXPECT_EQ(fixture.engine->stats().host_bytes, 0u);
  }
}

// The request that shares its prefix ends while it is suspended, and the prefix is evicted.
TEST(EngineSuspends, ASequenceWhoseSharedPagesAreEvictedIsRecomputed) {
  for (const Kind kind : kGrowingKinds) {
    Fixture fixture(
        {.kind = kind,
         .max_sequences = 2,
         .engine = {
             .target_itl = std::chrono::microseconds(0), .suspend_by = SuspendBy::Copy, .check_integrity = true}});
    const Request stays = greedy(some_tokens(100), 40), leaves = stays;
    const auto first = fixture.submit(stays);
    const RequestId first_id = fixture.last;
    const auto second = fixture.submit(leaves);
    while (second->choices.empty() || second->choices[0].tokens.size() < 3) ASSERT_TRUE(fixture.engine->step());
    Request urgent = greedy(some_tokens(20, 2), 3);
    urgent.priority = 1;
    const auto third = fixture.submit(urgent);
    while (fixture.engine->stats().suspended == 0) ASSERT_TRUE(fixture.engine->step());
    fixture.engine->cancel(first_id);
    fixture.pool->drop_cache();
    fixture.run();
    EXPECT_EQ(fixture.model->problem, "");
    EXPECT_EQ(second->choices[0].answer(), fixture.right(leaves)) << name(kind);
    EXPECT_EQ(third->choices[0].answer(), fixture.right(urgent)) << name(kind);
    const EngineStats stats = fixture.engine->stats();
    EXPECT_EQ(stats.suspensions_by_copy, 1u);
    EXPECT_EQ(stats.copies_lost, 1u) << name(kind);
    EXPECT_EQ(stats.resumed, 1u);
    EXPECT_EQ(stats.host_bytes, 0u);
  }
}

TEST(EngineSuspends, TheHostArenaIsAllocatedOnceWithTheEngine) {
  CountingDevice device;
  {
    Fixture fixture(
        {.budget = 24 << 10, .device = &device, .engine = {.host_bytes = 100'000, .suspend_by = SuspendBy::Copy}});
    fixture.model->before_kernels = [&] { device.settle(); };
    const std::uint64_t capacity = fixture.engine->stats().host_capacity_bytes;
    EXPECT_GT(capacity, 90'000u);
    EXPECT_LE(capacity, 100'000u);
    EXPECT_EQ(device.counts().live_host_bytes, capacity);
    for (std::uint64_t i = 0; i < 12; ++i) fixture.submit(seeded(some_tokens(20, i), 60, i));
    std::uint64_t most = 0;
    while (fixture.engine->step()) most = std::max(most, fixture.engine->stats().host_bytes);
    EXPECT_GT(most, 0u);
    EXPECT_LE(most, capacity);
    EXPECT_GT(fixture.engine->stats().suspensions_by_copy, 0u);
    EXPECT_EQ(device.counts().host_allocations, 1u);

    device.fail_after(0);
    const auto refused = Engine::create(*fixture.model, *fixture.pool, {});
    ASSERT_FALSE(refused.has_value());
    EXPECT_NE(refused.error().message.find("1073741824 bytes of host memory for what leaves the device"),
              std::string::npos)
        << refused.error().message;
  }
  EXPECT_EQ(device.counts().live_host_bytes, 0u);
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
