#include "quire/engine/service.h"

#include <future>
#include <random>

#include <gtest/gtest.h>

#include "quire/engine/weightless_testing.h"
#include "quire/tiers/running_tier_testing.h"

namespace quire::engine::testing {
namespace {

using namespace std::chrono_literals;

// A listener that another thread can wait on.
class Waiter final : public Listener {
 public:
  void on_event(const Event& event) override {
    collector.on_event(event);
    if (event.kind == Event::Kind::Token) ++tokens;
    if (event.last) done.set_value();
  }
  void wait() { ASSERT_EQ(done.get_future().wait_for(30s), std::future_status::ready); }

  Collector collector;
  std::atomic<std::uint32_t> tokens = 0;
  std::promise<void> done;
};

Request asked(std::uint64_t seed, std::uint32_t tokens) {
  Request request{.max_tokens = tokens};
  for (std::uint32_t t = 0; t < 20; ++t) request.prompt.push_back(static_cast<Token>(scramble(seed * 100 + t) % 32));
  request.sampling = {.temperature = 1, .seed = seed};
  return request;
}

struct Served {
  explicit Served(Fixture::Options options = {}) : fixture(options) {
    service = Service::start(std::move(fixture.engine));
  }
  Fixture fixture;
  std::unique_ptr<Service> service;
};

TEST(Service, ManyThreadsAskAtOnceAndEachGetsItsAnswer) {
  Served served({.engine = {.queue_limit = 1000}});
  std::vector<std::thread> clients;
  std::atomic<int> right = 0;
  for (std::uint64_t client = 0; client < 8; ++client) {
    clients.emplace_back([&, client] {
      for (std::uint64_t i = 0; i < 30; ++i) {
        const Request request = asked(client * 7 + i, 10);
        auto waiter = std::make_shared<Waiter>();
        served.service->submit(request, waiter);
        waiter->wait();
        right += waiter->collector.choices[0].answer() == right_answer(request, 0, 32, 256);
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(right, 240);
}

TEST(Service, ARefusalArrivesAsAnEvent) {
  Served served;
  auto waiter = std::make_shared<Waiter>();
  served.service->submit(Request{}, waiter);
  waiter->wait();
  EXPECT_EQ(waiter->collector.refused, "the prompt has no tokens");
}

TEST(Service, CancellingFromAnotherThreadEndsTheAnswer) {
  Served served({.max_tokens = 4096, .engine = {}});
  auto waiter = std::make_shared<Waiter>();
  const RequestId id = served.service->submit(asked(1, 4000), waiter);
  while (waiter->tokens < 3) std::this_thread::yield();
  served.service->cancel(id);
  waiter->wait();
  EXPECT_LT(waiter->tokens, 4000u);
  std::promise<std::uint32_t> held;
  served.service->inspect([&](Engine& engine) { held.set_value(engine.pool().stats().pages[0].held); });
  EXPECT_EQ(held.get_future().get(), 0u);
}

TEST(Service, StoppingLetsWhatRunsFinishUntilTheDeadline) {
  Served served;
  std::vector<std::shared_ptr<Waiter>> waiters;
  for (std::uint64_t i = 0; i < 5; ++i) {
    waiters.push_back(std::make_shared<Waiter>());
    served.service->submit(asked(i, 50), waiters.back());
  }
  EXPECT_TRUE(served.service->stop(Clock::now() + 20s));
  for (std::uint64_t i = 0; i < 5; ++i) {
    EXPECT_EQ(waiters[i]->collector.choices[0].answer(), right_answer(asked(i, 50), 0, 32, 256));
  }
  auto late = std::make_shared<Waiter>();
  served.service->submit(asked(1, 1), late);
  late->wait();
  EXPECT_EQ(late->collector.refused, "the engine has shut down");
  EXPECT_FALSE(served.service->inspect([](Engine&) {}));
}

TEST(Service, StoppingCancelsWhatIsNotDoneAtTheDeadline) {
  Served served({.budget = 64 << 20, .max_tokens = 100'000, .engine = {}});
  auto waiter = std::make_shared<Waiter>();
  served.service->submit(asked(1, 99'000), waiter);
  while (waiter->tokens < 3) std::this_thread::yield();
  EXPECT_FALSE(served.service->stop(Clock::now()));
  waiter->wait();
  EXPECT_EQ(waiter->collector.choices[0].finish, Finish::Cancelled);
}

// The prompt's two blocks are complete with the last step there is. Nobody asks for anything afterwards, and the server
// may be killed.
TEST(Service, WhatTheLastStepHasCachedLeavesForTheTiersAtOnce) {
  tiers::testing::SharedStore store;
  tiers::Tiers tiers({.staging_bytes = 1 << 20});
  tiers.add(std::make_unique<tiers::testing::RunningTier>(TierKind::Disk, store, tiers));
  Served served({.tiers = &tiers});
  auto waiter = std::make_shared<Waiter>();
  served.service->submit(asked(1, 1), waiter);
  waiter->wait();
  const auto objects = [&store] {
    const std::lock_guard lock(store.mutex);
    return store.objects.size();
  };
  for (const auto end = Clock::now() + 20s; Clock::now() < end && objects() < 2;) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(objects(), 2u);
}

TEST(Service, AnIdlePoolIsChecked) {
  Served served;
  auto waiter = std::make_shared<Waiter>();
  served.service->submit(asked(1, 5), waiter);
  waiter->wait();
  for (const auto end = Clock::now() + 60s; Clock::now() < end && !served.service->integrity().checked;) {
    std::this_thread::sleep_for(10ms);
  }
  EXPECT_TRUE(served.service->integrity().checked);
  EXPECT_TRUE(served.service->integrity().sound) << served.service->integrity().problem;
}

}  // namespace
}  // namespace quire::engine::testing
