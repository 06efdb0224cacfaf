// The engine's scheduling: the order of requests, and how requests end early.
#include <limits>

#include <gtest/gtest.h>

#include "quire/engine/engine.h"
#include "quire/engine/engine_testing.h"

namespace quire::engine::testing {
namespace {

INSTANTIATE_TEST_SUITE_P(Models, EngineOnEachKind, ::testing::ValuesIn(kAllKinds), kind_name);

INSTANTIATE_TEST_SUITE_P(Models, EngineOnGrowingKinds, ::testing::ValuesIn(kGrowingKinds), kind_name);

TEST(Engine, DecodingContinuesDuringThePrefillOfALongPrompt) {
  Fixture fixture({.max_tokens = 512, .engine = {.step_tokens = 16, .check_integrity = true}});
  const auto writer = fixture.submit(greedy(some_tokens(4), 60));
  fixture.engine->step();
  const auto reader = fixture.submit(greedy(some_tokens(300, 2), 1));
  std::size_t before = writer->choices[0].tokens.size();
  while (!reader->ended && !writer->ended) {
    fixture.engine->step();
    EXPECT_EQ(writer->choices[0].tokens.size(), before + 1) << "a token in every step";
    before = writer->choices[0].tokens.size();
  }
  EXPECT_TRUE(reader->ended);
  fixture.run();
}

TEST_P(EngineOnGrowingKinds, DecodingContinuesDuringAPrefillThatLeavesNoRoomToGrow) {
  for (std::uint64_t budget = 10 << 10; budget <= 24 << 10; budget += 512) {
    SCOPED_TRACE(budget);
    Fixture fixture({.kind = GetParam(), .budget = budget, .engine = {.step_tokens = 8, .check_integrity = true}});
    const Request short_prompt = greedy(some_tokens(8), 120);
    const Request long_prompt = greedy(some_tokens(200, 2), 1);
    const auto decoding = fixture.submit(short_prompt);
    fixture.engine->step();
    const auto prefilling = fixture.submit(long_prompt);
    if (!prefilling->refused.empty()) continue;
    for (std::size_t tokens = 2; !decoding->ended; ++tokens) {
      ASSERT_TRUE(fixture.engine->step());
      ASSERT_EQ(decoding->choices[0].tokens.size(), tokens) << "a token in every step";
    }
    fixture.run();
    EXPECT_EQ(fixture.model->problem, "");
    EXPECT_EQ(decoding->choices[0].answer(), fixture.right(short_prompt));
    EXPECT_EQ(prefilling->choices[0].answer(), fixture.right(long_prompt));
  }
}

TEST(Engine, ARequestNeverWaitsForThePagesOfOneBehindItInRank) {
  Fixture fixture({.engine = {.step_tokens = 16, .check_integrity = true}});
  const auto ask = [&](std::uint64_t seed, std::int32_t priority) {
    Request request = greedy(some_tokens(160, seed), 1);
    request.priority = priority;
    return fixture.submit(request);
  };
  const auto low = ask(1, 0);
  fixture.engine->step();
  std::vector<std::shared_ptr<Collector>> middle;
  for (std::uint64_t i = 0; i < 5; ++i) middle.push_back(ask(10 + i, 1));
  fixture.engine->step();
  const auto high = ask(1, 2);  // the prompt that the low one is computing
  while (!high->ended) ASSERT_TRUE(fixture.engine->step());
  for (const auto& one : middle) EXPECT_FALSE(one->ended);
  EXPECT_FALSE(low->ended);
  fixture.run();
}

TEST(Engine, FirstComeFirstServedUnlessThePriorityIsHigher) {
  Clock::time_point time{};
  Options options{.max_sequences = 1};
  options.engine.now = [&] { return time += std::chrono::milliseconds(1); };
  Fixture fixture(options);
  std::vector<int> order;
  std::vector<std::shared_ptr<Collector>> heard;
  const auto submit = [&](int number, std::int32_t priority) {
    Request request = greedy(some_tokens(10, static_cast<std::uint64_t>(number)), 1);
    request.priority = priority;
    heard.push_back(fixture.submit(request));
    heard.back()->on_token = [&order, number](const Event&) { order.push_back(number); };
  };
  submit(0, 0);
  submit(1, 0);
  submit(2, 1);
  submit(3, -1);
  submit(4, 1);
  fixture.run();
  EXPECT_EQ(order, (std::vector{2, 4, 0, 1, 3}));
}

TEST(Engine, NoRequestWaitsForeverHoweverManyOfHigherPriorityCome) {
  Clock::time_point time{};
  Options options{.max_sequences = 1};
  options.engine.now = [&] { return time += std::chrono::milliseconds(100); };
  options.engine.priority_worth = std::chrono::seconds(1);
  Fixture fixture(options);
  Request low = greedy(some_tokens(10), 1);
  low.priority = -5;
  const auto patient = fixture.submit(low);
  int others = 0;
  while (!patient->ended && others < 1000) {
    Request high = greedy(some_tokens(10, 2 + static_cast<std::uint64_t>(others++)), 1);
    high.priority = 5;
    fixture.submit(high);
    fixture.engine->step();
  }
  EXPECT_TRUE(patient->ended);
  EXPECT_LT(others, 200);
  fixture.engine->cancel_all();
}

TEST(Engine, AFullQueueRefusesRequests) {
  Fixture fixture({.max_sequences = 1, .engine = {.queue_limit = 2, .check_integrity = true}});
  fixture.submit(greedy(some_tokens(10), 5));
  fixture.engine->step();  // the first request runs now and no longer waits
  fixture.submit(greedy(some_tokens(10), 5));
  fixture.submit(greedy(some_tokens(10), 5));
  const auto refused = fixture.submit(greedy(some_tokens(10), 5));
  EXPECT_EQ(refused->refused, "2 requests are waiting already");
  EXPECT_EQ(fixture.refusal.why, Refusal::Why::QueueFull);
  fixture.run();
  EXPECT_EQ(fixture.engine->stats().finished, 3u);
  EXPECT_EQ(fixture.engine->stats().refused, 1u);
}

TEST(Engine, TheQueueLimitCanBeVeryLarge) {
  Fixture fixture({.engine = {.queue_limit = 4'000'000'000, .check_integrity = true}});
  for (std::uint64_t i = 0; i < 3000; ++i) fixture.submit(greedy(some_tokens(10, i), 1));
  EXPECT_EQ(fixture.engine->stats().waiting, 3000u);
  fixture.engine->cancel(fixture.last);
  EXPECT_EQ(fixture.engine->stats().waiting, 2999u);
  fixture.run();
  EXPECT_EQ(fixture.engine->stats().finished, 2999u);
  EXPECT_EQ(fixture.engine->stats().waiting, 0u);
}

TEST_P(EngineOnEachKind, CancellingFreesEverythingAtOnce) {
  Fixture fixture({.kind = GetParam(), .engine = {.step_tokens = 16, .check_integrity = true}});
  Request request = seeded(some_tokens(60), 100, 1);
  request.n = 3;
  const auto waiting = fixture.submit(request);
  const RequestId first = fixture.last;
  for (int steps = 0; steps < 8; ++steps) {
    fixture.engine->step();
    if (steps == 1 || steps == 6) {  // during prefill, and during decode
      const auto other = fixture.submit(request);
      fixture.engine->step();
      EXPECT_TRUE(fixture.engine->cancel(fixture.last));
      EXPECT_FALSE(fixture.engine->cancel(fixture.last));
      EXPECT_TRUE(other->ended);
      EXPECT_EQ(other->choices[0].finish, Finish::Cancelled);
    }
  }
  EXPECT_TRUE(fixture.engine->cancel(first));
  EXPECT_TRUE(waiting->ended);
  EXPECT_TRUE(fixture.engine->idle());
  EXPECT_EQ(fixture.pool->stats().sequences, 0u);
  for (const ObjectCounts& pages : fixture.pool->stats().pages) EXPECT_EQ(pages.held, 0u);
  EXPECT_EQ(fixture.pool->stats().states.held, 0u);
}

TEST(Engine, ADeadlineEndsARequestWhereverItIs) {
  Clock::time_point time{};
  Options options{.max_sequences = 1};
  options.engine.now = [&] { return time; };
  Fixture fixture(options);
  Request slow = greedy(some_tokens(10), 200);
  slow.deadline = time + std::chrono::seconds(1);
  Request queued = slow;
  queued.deadline = time + std::chrono::seconds(2);
  const auto running = fixture.submit(slow);
  const auto waiting = fixture.submit(queued);
  for (int i = 0; i < 5; ++i) fixture.engine->step();
  EXPECT_FALSE(running->ended);
  time += std::chrono::seconds(3);
  fixture.engine->step();
  EXPECT_EQ(running->choices[0].finish, Finish::Deadline);
  EXPECT_EQ(running->choices[0].tokens.size(), 5u);
  EXPECT_EQ(waiting->choices[0].finish, Finish::Deadline);
  EXPECT_TRUE(fixture.engine->idle());
}

TEST(Engine, WaitingEndsWhenThePrefillBegins) {
  Clock::time_point time{};
  Options options{.max_tokens = 512};
  options.engine.step_tokens = 16;
  options.engine.now = [&] { return time; };
  Fixture fixture(options);
  fixture.model->on_step = [&](const auto&) { time += std::chrono::seconds(1); };
  const auto heard = fixture.submit(greedy(some_tokens(64), 3));
  time += std::chrono::seconds(5);
  fixture.run();
  EXPECT_EQ(heard->usage.queued_seconds, 5);
  EXPECT_EQ(heard->usage.first_token_seconds, 5 + 4);
  EXPECT_EQ(heard->usage.total_seconds, 5 + 4 + 2);
}

}  // namespace
}  // namespace quire::engine::testing
