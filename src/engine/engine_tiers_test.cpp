// The engine with prefixes that lie in a tier.
#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "quire/engine/cost_model.h"
#include "quire/engine/engine.h"
#include "quire/engine/engine_testing.h"
#include "quire/engine/service.h"
#include "quire/state/counting_device_testing.h"
#include "quire/tiers/memory_tier_testing.h"

namespace quire::engine::testing {
namespace {

using tiers::testing::MemoryTier;
using tiers::testing::Store;

INSTANTIATE_TEST_SUITE_P(Models, EngineOnEachKind, ::testing::ValuesIn(kAllKinds), kind_name);

// An engine with a tier, whose jobs end between steps.
struct Server {
  Server(Store& store, const Options& options, std::uint64_t staging_bytes = 1 << 20)
      : tiers(tiers::TiersOptions{.staging_bytes = staging_bytes}), fixture(with_tier(store, options)) {}
  Options with_tier(Store& store, Options options) {
    auto memory = std::make_unique<MemoryTier>(TierKind::Disk, store, tiers);
    tier = memory.get();
    tiers.add(std::move(memory));
    options.tiers = &tiers;
    return options;
  }
  void run() {
    for (int i = 0; i < 1'000'000 && (!fixture.engine->idle() || tiers.busy()); ++i) {
      fixture.engine->step();
      tier->run();
    }
    EXPECT_TRUE(fixture.engine->idle());
    EXPECT_EQ(tiers.stats().staging_used_bytes, 0u);
  }

  tiers::Tiers tiers;
  MemoryTier* tier = nullptr;
  Fixture fixture;
};

// A server for which fetching and computing take about as long, by a clock of the test's own: the front of a prompt is
// computed while the rest is fetched.
struct SplittingServer {
  SplittingServer(Store& store, Options options) : server(store, timed(options)) {
    server.fixture.submit(greedy(some_tokens(60, 5), 5));  // so that it is known what computing costs
    server.run();
  }
  Options timed(Options options) {
    options.engine.step_tokens = 16;
    options.engine.target_itl = std::chrono::microseconds(0);  // answers do not make the chunks of prompts shorter
    options.engine.now = [this] { return time += std::chrono::microseconds(150); };
    return options;
  }
  void step() {
    server.fixture.engine->step();
    server.tier->run();
  }
  // Until the front is being computed and the rest has arrived. Returns the request that began so.
  std::shared_ptr<Collector> begin(const Request& request) {
    auto heard = server.fixture.submit(request);
    for (int i = 0; i < 10 && engine().stats().tier_splits == 0; ++i) step();
    EXPECT_EQ(engine().stats().tier_splits, 1u);
    EXPECT_GT(server.tiers.stats().staging_used_bytes, 0u);
    return heard;
  }
  Engine& engine() { return *server.fixture.engine; }

  Clock::time_point time = Clock::now();
  Server server;
};

// What an engine leaves in the tier that has computed the request.
void compute_once(Store& store, Kind kind, const Request& request) {
  Server first(store, {.kind = kind});
  first.fixture.submit(request);
  first.run();
}

std::uint32_t from_disk(const Collector& heard) { return heard.usage.from[static_cast<std::size_t>(TierKind::Disk)]; }

TEST_P(EngineOnEachKind, APromptThatAnotherEngineHasComputedIsFetched) {
  Store store;
  const Request request = seeded(some_tokens(100), 5, 3);
  {
    Server first(store, {.kind = GetParam()});
    first.fixture.submit(request);
    first.run();
  }
  Server second(store, {.kind = GetParam()});
  const auto heard = second.fixture.submit(request);
  second.run();
  EXPECT_EQ(heard->choices[0].answer(), second.fixture.right(request));
  EXPECT_GE(heard->usage.hit.tokens, 96u);
  EXPECT_GE(from_disk(*heard), 96u);
  EXPECT_LE(second.fixture.model->tokens_computed, 4u + 4u);
  EXPECT_EQ(second.fixture.engine->stats().tier_waits, 1u);
}

TEST_P(EngineOnEachKind, ATierThatNeverAnswersDelaysARequestAndNothingElse) {
  Store store;
  Server server(store, {.kind = GetParam()});
  const Request request = greedy(some_tokens(100), 5);
  const auto heard = server.fixture.submit(request);
  const auto start = Clock::now();
  while (!server.fixture.engine->idle()) server.fixture.engine->step();  // the tier's jobs never end
  EXPECT_EQ(heard->choices[0].answer(), server.fixture.right(request));
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(20));
  server.run();
}

TEST_P(EngineOnEachKind, ATierThatLosesObjectsWhileTheyAreFetchedIsMadeUpForByComputing) {
  Store store;
  const Request request = greedy(some_tokens(120), 5);
  {
    Server first(store, {.kind = GetParam()});
    first.fixture.submit(request);
    first.run();
  }
  for (std::uint32_t working = 0; working < 40; working += 3) {
    Server server(store, {.kind = GetParam()});
    server.tier->fails = [&server, count = 0u, working]() mutable {
      const bool reads = server.tiers.stats().fetches > 0;
      return reads && ++count > working;
    };
    const auto heard = server.fixture.submit(request);
    server.run();
    EXPECT_EQ(heard->choices[0].answer(), server.fixture.right(request)) << working;
  }
}

// Fetching and computing take about as long, by a clock of the test's own.
TEST_P(EngineOnEachKind, TheFrontIsComputedWhileTheRestIsFetched) {
  Store store;
  const Request request = seeded(some_tokens(200), 5, 3);
  {
    Server first(store, {.kind = GetParam()});
    first.fixture.submit(request);
    first.run();
  }
  Clock::time_point time = Clock::now();
  Options options{.kind = GetParam(), .engine = {.step_tokens = 16, .check_integrity = true}};
  options.engine.now = [&time] { return time += std::chrono::microseconds(150); };
  Server second(store, options);
  const Request other = greedy(some_tokens(60, 5), 5);
  second.fixture.submit(other);  // so that it is known what computing costs
  second.run();
  const std::uint64_t before = second.fixture.model->tokens_computed;
  const auto heard = second.fixture.submit(request);
  second.run();
  EXPECT_EQ(heard->choices[0].answer(), second.fixture.right(request));
  EXPECT_EQ(second.fixture.engine->stats().tier_splits, 1u);
  EXPECT_GT(from_disk(*heard), 0u);
  EXPECT_LT(second.fixture.model->tokens_computed - before, 190u) << "not all of it was computed";
  EXPECT_EQ(second.fixture.engine->stats().suspensions_by_recompute, 0u);
  EXPECT_EQ(heard->usage.suspensions, 0u);
  EXPECT_GE(heard->usage.hit.tokens, from_disk(*heard));
}

// A choice that was to compute the front of its prompt, and then finds no room in the pool.
TEST_P(EngineOnEachKind, WhatWasFetchedForAChoiceThatDoesNotRunGivesItsMemoryBack) {
  Store store;
  const Request request = seeded(some_tokens(200), 5, 3);
  {
    Server first(store, {.kind = GetParam()});
    first.fixture.submit(request);
    first.run();
  }
  Clock::time_point time = Clock::now();
  Options options{.kind = GetParam(), .engine = {.step_tokens = 16, .check_integrity = true}};
  options.max_sequences = 1;
  options.engine.now = [&time] { return time += std::chrono::microseconds(150); };
  Server second(store, options);
  second.fixture.submit(greedy(some_tokens(60, 5), 5));  // so that it is known what computing costs
  second.run();
  const Request other = greedy(some_tokens(20, 6), 150);
  const auto others = second.fixture.submit(other);
  second.fixture.engine->step();
  const auto heard = second.fixture.submit(request);
  const auto step = [&] {
    second.fixture.engine->step();
    second.tier->run();
  };
  for (int i = 0; i < 40 && second.fixture.engine->stats().tier_splits == 0; ++i) step();
  ASSERT_EQ(second.fixture.engine->stats().tier_splits, 1u);
  for (int i = 0; i < 5; ++i) step();
  ASSERT_EQ(second.fixture.engine->stats().waiting, 1u) << "the other one has the only place";
  EXPECT_GT(second.tiers.stats().staging_used_bytes, 0u);
  std::this_thread::sleep_for(std::chrono::milliseconds(350));
  for (int i = 0; i < 20; ++i) step();
  ASSERT_EQ(second.fixture.engine->stats().waiting, 1u);
  EXPECT_EQ(second.tiers.stats().staging_used_bytes, 0u);
  second.run();
  EXPECT_EQ(heard->choices[0].answer(), second.fixture.right(request));
  EXPECT_EQ(others->choices[0].answer(), second.fixture.right(other));
  EXPECT_EQ(second.fixture.engine->stats().tier_splits, 2u) << "it was looked for again when there was room";
}

// Both places of the server are taken: one by an answer, one by the choice whose prompt is fetched and computed.
TEST_P(EngineOnEachKind, WhatIsFetchedBehindAFrontComesIntoThePoolOfAFullServer) {
  Store store;
  const Request request = seeded(some_tokens(200), 5, 3), other = greedy(some_tokens(20, 6), 150);
  compute_once(store, GetParam(), request);
  SplittingServer full(store, {.kind = GetParam(), .max_sequences = 2});
  const auto others = full.server.fixture.submit(other);
  full.step();
  const std::uint64_t before = full.server.fixture.model->tokens_computed;
  const auto heard = full.begin(request);
  EXPECT_EQ(full.engine().stats().running, 2u);
  for (int i = 0; i < 100 && (heard->choices.empty() || heard->choices[0].tokens.empty()); ++i) full.step();
  EXPECT_FALSE(others->ended);
  EXPECT_LT(full.server.fixture.model->tokens_computed - before, 190u) << "not all of it was computed";
  EXPECT_EQ(full.server.tiers.stats().promotions_refused, 0u);
  full.server.run();
  EXPECT_GT(from_disk(*heard), 0u);
  EXPECT_EQ(heard->choices[0].answer(), full.server.fixture.right(request));
  EXPECT_EQ(others->choices[0].answer(), full.server.fixture.right(other));
  EXPECT_EQ(full.server.fixture.pool->stats().sequences_high_water, 3u) << "the third is what was fetched";
}

TEST_P(EngineOnEachKind, WhatIsFetchedForAChoiceThatWaitsForAPlaceComesIntoThePool) {
  Store store;
  const Request request = seeded(some_tokens(100), 5, 3);
  compute_once(store, GetParam(), request);
  Server full(store, {.kind = GetParam(), .max_sequences = 1});
  const auto others = full.fixture.submit(greedy(some_tokens(20, 6), 100));
  full.fixture.engine->step();
  const auto heard = full.fixture.submit(request);
  for (int i = 0; i < 10; ++i) {
    full.fixture.engine->step();
    full.tier->run();
  }
  EXPECT_FALSE(others->ended);
  EXPECT_EQ(full.fixture.engine->stats().waiting, 1u) << "there is no place for it";
  EXPECT_GE(full.fixture.pool->lookup(request.prompt).tokens, 96u);
  full.run();
  EXPECT_EQ(full.tiers.stats().fetches, 1u);
  EXPECT_EQ(heard->choices[0].answer(), full.fixture.right(request));
}

// It waits for a place, and meanwhile what was fetched for it is evicted for others.
TEST_P(EngineOnEachKind, WhatWasFetchedAndIsEvictedBeforeItIsUsedIsFetchedAgain) {
  Store store;
  const Request request = seeded(some_tokens(100), 5, 3);
  compute_once(store, GetParam(), request);
  Clock::time_point time = Clock::now();
  Options options{.kind = GetParam(), .max_sequences = 1};
  options.engine.now = [&time] { return time += std::chrono::milliseconds(2); };  // computing is slower than fetching
  Server full(store, options);
  const auto others = full.fixture.submit(greedy(some_tokens(20, 6), 100));
  full.fixture.engine->step();
  const auto heard = full.fixture.submit(request);
  for (int i = 0; i < 10; ++i) {
    full.fixture.engine->step();
    full.tier->run();
  }
  ASSERT_GE(full.fixture.pool->lookup(request.prompt).tokens, 96u);
  full.fixture.pool->drop_cache();
  ASSERT_EQ(full.fixture.pool->lookup(request.prompt).tokens, 0u);
  EXPECT_FALSE(others->ended);
  full.run();
  EXPECT_EQ(full.tiers.stats().fetches, 2u);
  EXPECT_GE(heard->usage.hit.tokens, 96u);
  EXPECT_EQ(heard->choices[0].answer(), full.fixture.right(request));
}

// Others take the place while its prefix is on its way, and evict it each time. It does not wait for ever.
TEST_P(EngineOnEachKind, AChoiceWhosePrefixIsEvictedAgainAndAgainStillRuns) {
  Store store;
  const Request request = seeded(some_tokens(100), 5, 3);
  compute_once(store, GetParam(), request);
  Clock::time_point time = Clock::now();
  Options options{.kind = GetParam(), .max_sequences = 1};
  options.engine.now = [&time] { return time += std::chrono::milliseconds(2); };
  Server full(store, options);
  std::vector<std::shared_ptr<Collector>> others = {full.fixture.submit(greedy(some_tokens(20, 6), 20))};
  full.fixture.engine->step();
  const auto heard = full.fixture.submit(request);
  for (std::uint32_t i = 0; i < 8; ++i) others.push_back(full.fixture.submit(greedy(some_tokens(20, 10 + i), 5)));
  for (int i = 0; i < 10'000 && !heard->ended; ++i) {
    full.fixture.engine->step();
    full.tier->run();
    full.fixture.pool->drop_cache();
  }
  ASSERT_TRUE(heard->ended);
  EXPECT_LE(std::ranges::count_if(others, [](const auto& other) { return other->ended; }), 3);
  full.run();
  EXPECT_EQ(heard->choices[0].answer(), full.fixture.right(request));
}

// A store that was fast when it was asked and then gives an object now and then.
TEST_P(EngineOnEachKind, AStoreThatBecomesSlowIsNotWaitedForLongerThanComputingTakes) {
  if (GetParam() == Kind::Recurrent) GTEST_SKIP() << "one state is all that it needs";
  Store store;
  const Request request = seeded(some_tokens(200), 5, 3);
  compute_once(store, GetParam(), request);
  Clock::time_point time = Clock::now();
  Options options{.kind = GetParam(), .engine = {.step_tokens = 16, .check_integrity = true}};
  options.engine.now = [&time] { return time += std::chrono::milliseconds(2); };
  Server dripping(store, options);
  dripping.fixture.submit(greedy(some_tokens(60, 5), 5));  // so that it is known what computing costs
  dripping.run();
  const auto heard = dripping.fixture.submit(request);
  for (int i = 0; i < 3; ++i) {  // it is found
    dripping.fixture.engine->step();
    if (i == 0) dripping.tier->run();
  }
  ASSERT_EQ(dripping.fixture.engine->stats().tier_waits, 1u);
  std::size_t objects = 0;
  for (; objects < 100 && (heard->choices.empty() || heard->choices[0].tokens.empty()); ++objects) {
    dripping.tier->run(1);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    for (int i = 0; i < 20; ++i) dripping.fixture.engine->step();
  }
  EXPECT_LE(objects, 12u);
  dripping.run();
  EXPECT_EQ(heard->choices[0].answer(), dripping.fixture.right(request));
}

// Others go first, so nobody computes the front of its prompt.
TEST_P(EngineOnEachKind, WhatWasFetchedForAFrontThatOthersKeepWaitingIsGivenBack) {
  Store store;
  const Request request = seeded(some_tokens(200), 5, 3);
  compute_once(store, GetParam(), request);
  SplittingServer busy(store, {.kind = GetParam()});
  const auto heard = busy.begin(request);
  Request urgent = greedy(some_tokens(200, 8), 5);
  urgent.priority = 1;
  const auto others = busy.server.fixture.submit(urgent);
  for (int i = 0; i < 3; ++i) busy.step();
  ASSERT_EQ(busy.engine().stats().running, 2u);
  EXPECT_TRUE(busy.engine().sequences()[1].waits_for_tier);
  std::this_thread::sleep_for(std::chrono::milliseconds(350));
  for (int i = 0; i < 3; ++i) busy.step();
  ASSERT_EQ(busy.engine().stats().running, 2u);
  EXPECT_FALSE(busy.engine().sequences()[1].waits_for_tier);
  busy.server.run();
  EXPECT_EQ(heard->choices[0].answer(), busy.server.fixture.right(request));
  EXPECT_EQ(others->choices[0].answer(), busy.server.fixture.right(urgent));
}

TEST_P(EngineOnEachKind, WhatWasFetchedIsKeptForAsLongAsItTakesToComputeTheFront) {
  Store store;
  const Request request = seeded(some_tokens(200), 5, 3);
  compute_once(store, GetParam(), request);
  SplittingServer slow(store, {.kind = GetParam()});
  const std::uint64_t before = slow.server.fixture.model->tokens_computed;
  const auto heard = slow.begin(request);
  for (int i = 0; i < 2; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(350));
    EXPECT_EQ(slow.server.tiers.stats().promoted, 0u) << "the front is still being computed";
    slow.step();
  }
  slow.server.run();
  EXPECT_EQ(heard->choices[0].answer(), slow.server.fixture.right(request));
  EXPECT_GT(from_disk(*heard), 0u);
  EXPECT_LT(slow.server.fixture.model->tokens_computed - before, 190u) << "not all of it was computed";
}

// Somebody else takes all the pages that are left, so the front waits in its place. Only windows can lack pages so:
// other prompts have all of theirs from the start.
TEST(EngineTiers, WhatWasFetchedForAFrontThatHasNoMemoryIsGivenBack) {
  Store store;
  const Request request = seeded(some_tokens(200), 5, 3), other = greedy(some_tokens(20, 6), 150);
  compute_once(store, Kind::Windowed, request);
  SplittingServer tight(store, {.kind = Kind::Windowed});
  const auto others = tight.server.fixture.submit(other);
  const auto length = [&] { return tight.engine().sequences()[0].computed; };
  while (others->choices.empty() || length() % 8 != 1) tight.step();  // it has a page for some steps
  const auto heard = tight.begin(request);
  SequencePool& pool = *tight.server.fixture.pool;
  std::vector<std::vector<PageId>> taken(pool.layout().groups.size());
  for (std::uint32_t g = 0; g < taken.size(); ++g) {
    while (const auto page = pool.alloc_kv(g)) taken[g].push_back(*page);
  }
  const auto fetches = [&] { return tight.engine().sequences()[1].waits_for_tier; };
  for (int i = 0; i < 2; ++i) tight.step();
  ASSERT_EQ(tight.engine().stats().running, 2u);
  EXPECT_TRUE(fetches());
  std::this_thread::sleep_for(std::chrono::milliseconds(350));
  tight.step();
  ASSERT_EQ(tight.engine().stats().running, 2u);
  EXPECT_FALSE(fetches());
  for (std::uint32_t g = 0; g < taken.size(); ++g) {
    for (const PageId page : taken[g]) EXPECT_TRUE(pool.free_kv(page, g).has_value());
  }
  tight.server.run();
  EXPECT_EQ(heard->choices[0].answer(), tight.server.fixture.right(request));
  EXPECT_EQ(others->choices[0].answer(), tight.server.fixture.right(other));
}

TEST_P(EngineOnEachKind, AChoiceThatIsSuspendedByCopyFetchesNothingMeanwhile) {
  Store store;
  const Request request = seeded(some_tokens(200), 5, 3);
  {
    Server first(store, {.kind = GetParam()});
    first.fixture.submit(request);
    first.run();
  }
  Clock::time_point time = Clock::now();
  Options options{.kind = GetParam(),
                  .engine = {.step_tokens = 16, .suspend_by = SuspendBy::Copy, .check_integrity = true}};
  options.max_sequences = 1;
  options.engine.now = [&time] { return time += std::chrono::microseconds(150); };
  Server second(store, options);
  second.fixture.submit(greedy(some_tokens(60, 5), 5));
  second.run();
  const auto heard = second.fixture.submit(request);
  second.fixture.engine->step();
  second.tier->run();  // it is found
  second.fixture.engine->step();
  ASSERT_EQ(second.fixture.engine->stats().tier_splits, 1u);
  EXPECT_GT(second.tiers.stats().staging_used_bytes, 0u);
  Request urgent = greedy(some_tokens(3, 6), 50);  // too short to be looked for
  urgent.priority = 10;
  second.fixture.submit(urgent);
  second.fixture.engine->step();
  ASSERT_EQ(second.fixture.engine->stats().suspended, 1u);
  for (int i = 0; i < 5; ++i) {
    second.tier->run();
    second.fixture.engine->step();
  }
  ASSERT_EQ(second.fixture.engine->stats().suspended, 1u);
  EXPECT_EQ(second.tiers.stats().staging_used_bytes, 0u);
  second.run();
  EXPECT_EQ(heard->choices[0].answer(), second.fixture.right(request));
}

TEST_P(EngineOnEachKind, WhatIsTooMuchForTheStagingMemoryIsNotFetchedBehindWhatIsComputed) {
  Store store;
  const Request request = seeded(some_tokens(200), 5, 3);
  {
    Server first(store, {.kind = GetParam()});
    first.fixture.submit(request);
    first.run();
  }
  Clock::time_point time = Clock::now();
  Options options{.kind = GetParam(), .engine = {.step_tokens = 16, .check_integrity = true}};
  options.engine.now = [&time] { return time += std::chrono::microseconds(150); };
  for (const bool small : {false, true}) {
    Server second(store, options, small ? 1 : 1 << 20);
    second.fixture.submit(greedy(some_tokens(60, 5), 5));
    second.run();
    const auto heard = second.fixture.submit(request);
    second.run();
    EXPECT_EQ(heard->choices[0].answer(), second.fixture.right(request));
    // A state alone always fits.
    const bool splits = !small || GetParam() == Kind::Recurrent;
    EXPECT_EQ(second.fixture.engine->stats().tier_splits, splits ? 1u : 0u) << small;
  }
}

// Computing is cheap here and the tier is slow. A server that does not know that would wait for the tier.
TEST_P(EngineOnEachKind, AServerKnowsFromTheLastOneWhatComputingCosts) {
  Store store;
  const Request request = seeded(some_tokens(200), 5, 3);
  const Options options{.kind = GetParam(), .engine = {.step_tokens = 16, .machine = "one", .check_integrity = true}};
  std::string note;
  {
    Clock::time_point time = Clock::now();
    const Weightless* model = nullptr;
    Options timed = options;
    timed.engine.now = [&] {  // a token takes a microsecond
      time += std::chrono::nanoseconds(100);
      return time + std::chrono::microseconds(model == nullptr ? 0 : model->tokens_computed);
    };
    Server first(store, timed);
    model = first.fixture.model.get();
    first.fixture.submit(request);
    first.fixture.submit(greedy(some_tokens(60, 5), 100));
    first.run();
    note = first.tier->note;
    EXPECT_TRUE(first.fixture.engine->cost_model().knows_anything());
  }
  ASSERT_FALSE(note.empty());
  struct Case {
    std::string note, machine;
    bool knows;
  };
  std::string other_model = note;
  other_model[25] = other_model[25] == '0' ? '1' : '0';
  for (const Case& each : {Case{note, "one", true}, Case{note, "another", false}, Case{note, "", false},
                           Case{other_model, "one", false}, Case{"", "one", false}, Case{"nonsense", "one", false}}) {
    tiers::Tiers tiers(tiers::TiersOptions{.staging_bytes = 1 << 20});
    auto memory = std::make_unique<MemoryTier>(TierKind::Disk, store, tiers);
    MemoryTier* tier = memory.get();
    tier->note = each.note;
    tiers.add(std::move(memory));
    Options next = options;
    next.tiers = &tiers;
    next.engine.machine = each.machine;
    Fixture fixture(next);
    EXPECT_EQ(fixture.engine->cost_model().knows_anything(), each.knows) << each.note << " on " << each.machine;
    const auto heard = fixture.submit(request);
    for (int i = 0; i < 1'000'000 && (!fixture.engine->idle() || tiers.busy()); ++i) {
      fixture.engine->step();
      tier->run();
    }
    EXPECT_EQ(heard->choices[0].answer(), fixture.right(request));
    EXPECT_EQ(fixture.engine->stats().tier_waits, each.knows ? 0u : 1u) << each.note << " on " << each.machine;
    EXPECT_EQ(from_disk(*heard) == 0, each.knows);
  }
}

// Many requests with common prefixes, too little memory, several servers on one store that fails now and then.
TEST_P(EngineOnEachKind, AnswersAreRightWhateverTheTierDoes) {
  Store store;
  std::uint64_t random = 7;
  const auto chance = [&random](std::uint64_t of) { return (random = scramble(random + 1)) % of == 0; };
  for (int server = 0; server < 3; ++server) {
    Options options{.kind = GetParam(), .budget = std::uint64_t{1} << (GetParam() == Kind::Recurrent ? 15 : 16)};
    options.max_sequences = 6;
    options.engine = {.step_tokens = 24, .check_integrity = true};
    Server at(store, options);
    at.tier->capacity = 16;
    at.tier->fails = [&] { return chance(12); };
    std::vector<Request> requests;
    std::vector<std::shared_ptr<Collector>> heard;
    for (std::uint64_t i = 0; i < 60; ++i) {
      auto prompt = some_tokens(40 + static_cast<std::uint32_t>(scramble(i) % 60), 1 + i % 4);
      for (const Token token : some_tokens(static_cast<std::uint32_t>(scramble(i + 9) % 30), 50 + i))
        prompt.push_back(token);
      requests.push_back(seeded(prompt, 1 + static_cast<std::uint32_t>(i % 7), i));
      requests.back().name_space = i % 3;
      heard.push_back(at.fixture.submit(requests.back()));
      for (std::uint64_t steps = i % 4; steps > 0; --steps) {
        at.fixture.engine->step();
        at.tier->run(scramble(i) % 20);
      }
      if (chance(10) && !store.empty()) {  // an object is damaged
        auto object = std::next(store.begin(), static_cast<long>(random % store.size()));
        object->second[random % object->second.size()] ^= std::byte{16};
      }
    }
    at.run();
    for (std::size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(heard[i]->choices[0].answer(), at.fixture.right(requests[i])) << server << " " << i;
    }
    EXPECT_TRUE(at.fixture.pool->check_integrity().has_value());
  }
}

// Work of the device fails now and then: copies for the tier, pages that come back, steps. Requests may fail. No answer
// is wrong, and neither is what the tier has afterwards.
TEST_P(EngineOnEachKind, WorkThatFailsOnTheWayToOrFromATierSpoilsNothing) {
  const Request known = seeded(some_tokens(100), 5, 3), other = seeded(some_tokens(90, 4), 5, 4);
  Store computed;
  {
    Server first(computed, {.kind = GetParam()});
    first.fixture.submit(known);
    first.run();
  }
  std::uint32_t failures = 0;
  for (std::uint64_t work = 0; work < 240; work += 3) {
    Store store = computed;
    CountingDevice device;
    {
      Server server(store, {.kind = GetParam(), .device = &device});
      server.fixture.model->before_kernels = [&] { device.settle(); };
      device.fail_work_after(work);
      std::vector<std::shared_ptr<Collector>> heard;
      for (const Request& request : {known, other}) heard.push_back(server.fixture.submit(request));
      server.run();
      for (std::size_t i = 0; i < heard.size(); ++i) {
        if (heard[i]->choices[0].finish == Finish::Failed) continue;
        EXPECT_EQ(heard[i]->choices[0].answer(), server.fixture.right(i == 0 ? known : other)) << work;
      }
      failures += server.fixture.engine->stats().device_errors;
      EXPECT_EQ(server.fixture.engine->device_lost(), "");
      device.fail_work_after(UINT64_MAX);
    }
    Server reader(store, {.kind = GetParam()});
    for (const Request& request : {known, other}) {
      const auto heard = reader.fixture.submit(request);
      reader.run();
      EXPECT_EQ(heard->choices[0].answer(), reader.fixture.right(request)) << work;
      EXPECT_EQ(reader.fixture.model->problem, "") << work;
    }
  }
  EXPECT_GT(failures, 0u);
}

TEST_P(EngineOnEachKind, AnEngineThatIsToldOfAFailedDeviceComputesAgain) {
  Fixture fixture({.kind = GetParam()});
  const Request request = seeded(some_tokens(60), 20, 3);
  const auto heard = fixture.submit(request);
  for (int i = 0; i < 6; ++i) fixture.engine->step();
  fixture.engine->device_failed();
  fixture.run();
  EXPECT_EQ(heard->choices[0].answer(), fixture.right(request));
  EXPECT_EQ(fixture.engine->stats().device_errors, 1u);
  EXPECT_GT(fixture.model->tokens_computed, 80u);
}

// Suspended sequences and evicted pages share the host arena; suspended sequences go first.
TEST_P(EngineOnEachKind, EvictedPagesInHostMemoryGiveWayToSuspendedSequences) {
  tiers::Tiers tiers(tiers::TiersOptions{.staging_bytes = 1});
  Options options{.kind = GetParam(), .budget = std::uint64_t{1} << (GetParam() == Kind::Recurrent ? 13 : 16)};
  options.max_sequences = 6;
  options.tiers = &tiers;
  options.engine = {.step_tokens = 24,
                    .host_bytes = 1 << 14,
                    .host_cache_bytes = 1 << 16,
                    .suspend_by = SuspendBy::Copy,
                    .check_integrity = true};
  Fixture fixture(options);
  for (std::uint64_t round = 0; round < 4; ++round) {
    std::vector<Request> requests;
    std::vector<std::shared_ptr<Collector>> heard;
    for (std::uint64_t i = 0; i < 24; ++i) {
      requests.push_back(seeded(some_tokens(60 + static_cast<std::uint32_t>(i % 5) * 10, 1 + i % 8), 40, i));
      heard.push_back(fixture.submit(requests.back()));
    }
    while (!fixture.engine->idle()) fixture.engine->step();
    for (std::size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(heard[i]->choices[0].answer(), fixture.right(requests[i])) << i;
    }
  }
  EXPECT_GT(tiers.stats().tiers.at(0).usage.puts, 0u);
}

}  // namespace
}  // namespace quire::engine::testing
