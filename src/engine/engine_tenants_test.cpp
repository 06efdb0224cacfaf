// Several tenants on one engine: shares by weight, limits, and newcomers. Time is simulated.
#include <chrono>
#include <map>
#include <vector>

#include <gtest/gtest.h>

#include "quire/engine/engine.h"
#include "quire/engine/engine_testing.h"

namespace quire::engine::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// An engine whose steps take 20 ms, and tenants that always ask: each keeps some requests open.
struct House {
  explicit House(std::uint32_t max_sequences = 8, std::uint64_t budget = 1 << 20) {
    Options options{.budget = budget, .max_sequences = max_sequences};
    options.engine.now = [this] { return now; };
    options.engine.check_integrity = false;
    fixture = std::make_unique<Fixture>(options);
    fixture->model->on_step = [this](const auto&) { now += milliseconds(20); };
  }
  void ask(Namespace tenant) {
    ++asked;
    Request request = greedy(some_tokens(10 + asked % 30, asked), 20 + static_cast<std::uint32_t>(asked * 7 % 60));
    request.name_space = tenant;
    open[tenant].push_back(fixture->submit(request));
  }
  // Runs for so long. Every tenant of the map has as many requests open as it says.
  void run(const std::map<Namespace, std::size_t>& asking, Clock::duration duration) {
    const Clock::time_point end = now + duration;
    while (now < end) {
      for (const auto& [tenant, count] : asking) {
        std::erase_if(open[tenant], [](const auto& one) { return one->ended; });
        while (open[tenant].size() < count) ask(tenant);
      }
      fixture->engine->step();
    }
  }
  std::uint64_t tokens(Namespace tenant) const {
    for (const TenantUsage& usage : fixture->engine->tenants()) {
      if (usage.id == tenant) return usage.prompt_tokens + usage.generated_tokens;
    }
    return 0;
  }
  TenantUsage usage(Namespace tenant) const {
    for (const TenantUsage& usage : fixture->engine->tenants()) {
      if (usage.id == tenant) return usage;
    }
    return {};
  }
  void set(std::vector<TenantOptions> tenants) { ASSERT_TRUE(fixture->engine->set_tenants(tenants).has_value()); }

  Clock::time_point now{};
  std::unique_ptr<Fixture> fixture;
  std::map<Namespace, std::vector<std::shared_ptr<Collector>>> open;
  std::uint64_t asked = 0;
};

TEST(EngineTenants, TokensAreSharedOutByWeight) {
  House house;
  house.set({{.id = 1, .weight = 3}, {.id = 2, .weight = 1}});
  house.run({{1, 16}, {2, 16}}, seconds(5));
  const std::uint64_t one = house.tokens(1), two = house.tokens(2);
  house.run({{1, 16}, {2, 16}}, seconds(60));
  const double ratio = static_cast<double>(house.tokens(1) - one) / static_cast<double>(house.tokens(2) - two);
  EXPECT_GT(ratio, 3 * 0.95);
  EXPECT_LT(ratio, 3 * 1.05);
}

TEST(EngineTenants, ATenantThatAsksForMuchMoreGetsNoMore) {
  House house;
  house.run({{1, 100}, {2, 8}}, seconds(60));
  const double ratio = static_cast<double>(house.tokens(1)) / static_cast<double>(house.tokens(2));
  EXPECT_GT(ratio, 0.9);
  EXPECT_LT(ratio, 1.1);
}

TEST(EngineTenants, ALateTenantGetsItsShareSoonAndNoCreditForTheTimeBefore) {
  House house;
  house.set({{.id = 1, .weight = 3}, {.id = 2, .weight = 1}});
  house.run({{1, 16}, {2, 16}}, seconds(30));
  house.run({{1, 16}, {2, 16}, {3, 16}}, seconds(2));
  EXPECT_GE(house.usage(3).running, 1u);
  EXPECT_GT(house.tokens(3), 0u);
  const std::uint64_t before[] = {house.tokens(1), house.tokens(2), house.tokens(3)};
  house.run({{1, 16}, {2, 16}, {3, 16}}, seconds(30));
  const auto gained = [&](Namespace tenant) { return static_cast<double>(house.tokens(tenant) - before[tenant - 1]); };
  const double all = gained(1) + gained(2) + gained(3);
  EXPECT_NEAR(gained(1) / all, 0.6, 0.06);
  EXPECT_NEAR(gained(2) / all, 0.2, 0.04);
  EXPECT_NEAR(gained(3) / all, 0.2, 0.04);
}

TEST(EngineTenants, WhoAsksAloneGetsEverything) {
  House house;
  house.set({{.id = 1, .weight = 3}, {.id = 2, .weight = 1}});
  house.run({{2, 16}}, seconds(5));
  EXPECT_GE(house.usage(2).running, 7u);  // one may just have ended
}

TEST(EngineTenants, SharesHoldWhenMemoryIsTheLimit) {
  House house(16, 24 << 10);
  house.set({{.id = 1, .weight = 3}, {.id = 2, .weight = 1}});
  house.run({{1, 16}, {2, 16}}, seconds(10));
  const std::uint64_t one = house.tokens(1), two = house.tokens(2);
  house.run({{1, 16}, {2, 16}}, seconds(60));
  const double ratio = static_cast<double>(house.tokens(1) - one) / static_cast<double>(house.tokens(2) - two);
  EXPECT_NEAR(ratio, 3, 0.3);
  EXPECT_EQ(house.fixture->model->problem, "");
}

TEST(EngineTenants, ATenantRunsNoMoreThanItMay) {
  House house;
  house.set({{.id = 1, .max_sequences = 2}});
  Request many = greedy(some_tokens(20), 30);
  many.n = 6;
  many.name_space = 1;
  const auto choices = house.fixture->submit(many);
  for (int i = 0; i < 5; ++i) house.ask(1);
  for (int i = 0; i < 5; ++i) house.ask(2);
  while (house.fixture->engine->step()) EXPECT_LE(house.usage(1).running, 2u);
  EXPECT_TRUE(choices->ended);
  for (const auto& one : house.open[1]) EXPECT_TRUE(one->ended);
}

TEST(EngineTenants, TokensAMinuteAreRefilled) {
  House house;
  house.set({{.id = 1, .tokens_per_minute = 120}});
  const auto ask = [&](Namespace tenant) {
    Request request = greedy(some_tokens(100, 1000 + house.asked++), 100);
    request.name_space = tenant;
    return house.fixture->submit(request);
  };
  const auto first = ask(1);
  house.fixture->run();
  EXPECT_TRUE(first->ended) << "a request that has begun goes on";
  const auto second = ask(1);
  EXPECT_EQ(second->refused, "120 tokens a minute are allowed, and they are used up");
  EXPECT_EQ(house.fixture->refusal.why, Refusal::Why::RateLimited);
  const seconds wait = house.fixture->refusal.retry_after;
  EXPECT_GT(wait.count(), 20);
  EXPECT_LE(wait.count(), 60);
  EXPECT_EQ(ask(2)->refused, "") << "others are not concerned";
  house.now += wait;
  EXPECT_EQ(ask(1)->refused, "");
  house.fixture->run();
}

TEST(EngineTenants, WeightsMustBePositive) {
  House house;
  const TenantOptions bad[] = {{.id = 1, .weight = 0}};
  EXPECT_EQ(house.fixture->engine->set_tenants(bad).error(), "a weight of 0 is not more than 0 and at most 1000000");
}

}  // namespace
}  // namespace quire::engine::testing
