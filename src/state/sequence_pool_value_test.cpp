// What is evicted first by value per byte: costs, kinds, states, and the floors and caps of tenants.
#include <map>

#include <gtest/gtest.h>

#include "quire/state/pool_behaviour_testing.h"

namespace quire::testing {
namespace {

constexpr std::uint32_t kBlock = 4;

std::uint64_t page_bytes() { return ToyModel::attention().layout().groups[0].page_bytes(); }

// Room for so many blocks of an attention model.
PoolConfig blocks(std::uint64_t count, Eviction eviction = Eviction::Value) {
  PoolConfig config = pool_of(ToyModel::attention(), count * page_bytes());
  config.eviction = eviction;
  return config;
}

// Tokens that begin no other prompt.
std::vector<Token> prompt(Token name, std::size_t blocks) { return counting(1000 * name, blocks * kBlock); }

std::uint32_t known(SequencePool& pool, std::vector<Token> tokens, Namespace tenant = 0) {
  tokens.push_back(-1);  // so that all of them may be reused
  return pool.lookup(tokens, tenant).tokens;
}

TEST(Value, WhileNothingIsKnownTheLeastRecentlyUsedGoesFirst) {
  CountingDevice device;
  ToyEngine engine(device, blocks(12));
  for (Token name = 1; name <= 3; ++name) cached(engine, prompt(name, 4));
  EXPECT_EQ(known(engine.pool(), prompt(1, 4)), 16u);
  cached(engine, prompt(1, 4));
  cached(engine, prompt(4, 4));
  EXPECT_EQ(known(engine.pool(), prompt(1, 4)), 16u) << "used again";
  EXPECT_EQ(known(engine.pool(), prompt(2, 4)), 0u);
  EXPECT_EQ(known(engine.pool(), prompt(3, 4)), 16u);
}

// A short prompt that has just been used, and the end of a long one that is older. Which one goes depends on the costs.
TEST(Value, WhatIsCheapToComputeGoesFirst) {
  for (const bool deep_is_dear : {false, true}) {
    CountingDevice device;
    ToyEngine engine(device, blocks(12));
    engine.pool().set_costs(deep_is_dear ? RecomputeCosts{0, 1} : RecomputeCosts{1, 0});
    cached(engine, prompt(1, 11));
    cached(engine, prompt(2, 1));
    const auto next = written(engine, prompt(3, 1));
    EXPECT_EQ(known(engine.pool(), prompt(1, 11)), deep_is_dear ? 44u : 40u);
    EXPECT_EQ(known(engine.pool(), prompt(2, 1)), deep_is_dear ? 0u : 4u);
    EXPECT_TRUE(done(engine.pool().release(next.id)));
  }
}

// Two prompts come again and again; between two uses, more prompts pass through that never come again than the pool can
// hold. LRU has always just evicted what comes next.
TEST(Value, WhatComesAgainSurvivesAStreamOfWhatDoesNot) {
  std::map<Eviction, std::uint64_t> hits;
  for (const Eviction eviction : {Eviction::Lru, Eviction::Value}) {
    CountingDevice device;
    ToyEngine engine(device, blocks(24, eviction));
    Token fresh = 100;
    for (int round = 0; round < 200; ++round) {
      cached(engine, prompt(1 + round % 2, 4));
      for (int i = 0; i < 4; ++i) cached(engine, prompt(fresh++, 4));
    }
    hits[eviction] = engine.pool().stats().hit_tokens;
  }
  EXPECT_EQ(hits[Eviction::Lru], 0u);
  EXPECT_GT(hits[Eviction::Value], 200u * 15 / 2) << "most rounds reuse 15 tokens";
}

TEST(Value, AParentOutlivesItsChildren) {
  CountingDevice device;
  ToyEngine engine(device, blocks(16));
  for (Token name = 0; name < 300; ++name) {
    // Some share a beginning, some come again.
    const auto tokens = joined(prompt(name % 3, 2), prompt(10 + name % 7, 1 + name % 5));
    cached(engine, tokens);  // recounts the pool: every node has its parent
  }
  EXPECT_GT(engine.pool().stats().blocks_evicted, 100u);
}

// --- recurrent states

PoolConfig states(std::uint64_t count) {
  PoolConfig config = pool_of(ToyModel::recurrent(), 0);
  config.budget_bytes = 16 * config.layout.recurrent.bytes();
  config.checkpoint_budget_bytes = count * config.layout.recurrent.bytes();
  config.checkpoint_interval = kBlock;
  return config;
}

TEST(Value, AStateBetweenTwoOthersGoesBeforeTheEndOfAPath) {
  CountingDevice device;
  ToyEngine engine(device, states(3));
  for (Token name = 1; name <= 3; ++name) cached(engine, prompt(name, 6), 0, kBlock);
  EXPECT_EQ(engine.pool().stats().states.cached, 3u);
  // Each path has kept one state: at its end.
  for (Token name = 1; name <= 3; ++name) EXPECT_EQ(known(engine.pool(), prompt(name, 6)), 24u) << name;
}

TEST(Value, WithABudgetForNoStateSequencesRunAllTheSame) {
  CountingDevice device;
  ToyEngine engine(device, states(0));
  for (int round = 0; round < 3; ++round) cached(engine, prompt(1, 6), 0, kBlock);
  auto live = written(engine, prompt(1, 6), 0, kBlock);
  EXPECT_TRUE(done(engine.pool().next_checkpoint(live.id)));
  EXPECT_TRUE(done(engine.rewind(live, 5)));
  EXPECT_EQ(live.tokens.size(), 0u) << "no state to go back to";
  const PoolStats stats = engine.pool().stats();
  EXPECT_EQ(stats.states.cached + stats.checkpoints_stored + stats.hit_tokens, 0u);
  EXPECT_EQ(stats.prefix_blocks, 0u) << "blocks that nobody can resume from help nobody";
  EXPECT_GT(stats.checkpoints_skipped, 0u);
  EXPECT_TRUE(sound(engine.pool()));
}

TEST(Value, ALiveSequenceTakesTheRoomOfEveryState) {
  CountingDevice device;
  PoolConfig config = states(16);
  ToyEngine engine(device, config);
  for (Token name = 1; name <= 3; ++name) cached(engine, prompt(name, 6), 0, kBlock);
  std::vector<SlotId> slots;
  for (RequestId request = 1; request <= 16; ++request) {
    const auto slot = engine.pool().alloc_ssm(request);
    ASSERT_TRUE(done(slot));
    slots.push_back(*slot);
  }
  EXPECT_EQ(engine.pool().stats().states.cached, 0u);
  EXPECT_EQ(engine.pool().stats().prefix_blocks, 0u);
}

// --- tenants

TEST(Shares, AFloorSurvivesAFloodByAnotherTenant) {
  for (const std::uint64_t floor : {std::uint64_t{0}, 8 * page_bytes()}) {
    CountingDevice device;
    ToyEngine engine(device, blocks(24));
    ASSERT_TRUE(done(engine.pool().set_share(1, floor, UINT64_MAX)));
    cached(engine, prompt(1, 4), 1);
    cached(engine, prompt(2, 4), 1);
    for (Token name = 10; name < 40; ++name) cached(engine, prompt(name, 4), 2);
    const std::uint32_t left = known(engine.pool(), prompt(1, 4), 1) + known(engine.pool(), prompt(2, 4), 1);
    EXPECT_EQ(left, floor == 0 ? 0u : 32u);
    EXPECT_EQ(engine.pool().stats().floors_yielded, 0u);
    if (floor > 0) {
      EXPECT_EQ(engine.pool().tenant_bytes(1)->resident, floor);
    }
  }
}

// A window group that needs room takes a cached page of its own: not one that a floor protects.
TEST(Shares, AFloorProtectsTheWindowOfAPrefixToo) {
  for (const bool floor : {false, true}) {
    CountingDevice device;
    PoolConfig config = pool_of(ToyModel::windowed(8), 0);
    for (const PageShape& group : config.layout.groups) config.budget_bytes += 24 * group.page_bytes();
    ToyEngine engine(device, config);
    cached(engine, prompt(1, 6), 1, kBlock);
    ASSERT_TRUE(done(engine.pool().set_share(1, floor ? config.budget_bytes : 0, UINT64_MAX)));
    for (Token name = 10; name < 40; ++name) cached(engine, prompt(name, 6), 2, kBlock);
    EXPECT_EQ(known(engine.pool(), prompt(1, 6), 1), floor ? 24u : 0u);
    EXPECT_EQ(engine.pool().stats().floors_yielded, 0u);
  }
}

TEST(Shares, AFloorYieldsToALiveSequenceAndIsCounted) {
  CountingDevice device;
  ToyEngine engine(device, blocks(16));
  ASSERT_TRUE(done(engine.pool().set_share(1, 8 * page_bytes(), UINT64_MAX)));
  cached(engine, prompt(1, 8), 1);
  const auto small = written(engine, prompt(2, 8), 2);
  EXPECT_EQ(known(engine.pool(), prompt(1, 8), 1), 32u);
  EXPECT_TRUE(done(engine.pool().reserve(small.id, 4 * kBlock)));
  EXPECT_EQ(known(engine.pool(), prompt(1, 8), 1), 16u);
  EXPECT_EQ(engine.pool().stats().floors_yielded, 4u);
  EXPECT_TRUE(sound(engine.pool()));
}

TEST(Shares, ATenantAboveItsCapEvictsItsOwn) {
  CountingDevice device;
  ToyEngine engine(device, blocks(32));
  ASSERT_TRUE(done(engine.pool().set_share(1, 0, 8 * page_bytes())));
  cached(engine, prompt(1, 8), 2);
  for (Token name = 10; name < 20; ++name) {
    cached(engine, prompt(name, 4), 1);
    EXPECT_LE(engine.pool().tenant_bytes(1)->resident, 8 * page_bytes());
  }
  EXPECT_EQ(known(engine.pool(), prompt(1, 8), 2), 32u) << "nobody else loses anything";
  // What a live sequence holds may be more than the cap. It is given up with the sequence.
  const auto live = written(engine, prompt(30, 12), 1);
  EXPECT_EQ(engine.pool().tenant_bytes(1)->resident, 12 * page_bytes());
  EXPECT_TRUE(done(engine.pool().release(live.id)));
  EXPECT_EQ(engine.pool().tenant_bytes(1)->resident, 8 * page_bytes());
  EXPECT_EQ(known(engine.pool(), prompt(30, 12), 1), 32u);
}

TEST(Shares, WhatATenantsAdaptersComputedCountsForTheTenant) {
  CountingDevice device;
  ToyEngine engine(device, blocks(32));
  ASSERT_TRUE(done(engine.pool().set_share(1, 0, 8 * page_bytes())));
  cached(engine, prompt(1, 4), 1);
  cached(engine, prompt(1, 4), in_adapter(1, 3));
  EXPECT_EQ(engine.pool().tenant_bytes(1)->resident, 8 * page_bytes());
  EXPECT_EQ(known(engine.pool(), prompt(1, 4), in_adapter(1, 4)), 0u) << "another adapter finds nothing";
  for (Token name = 10; name < 20; ++name) {
    cached(engine, prompt(name, 4), in_adapter(1, static_cast<std::uint32_t>(name)));
    EXPECT_LE(engine.pool().tenant_bytes(1)->resident, 8 * page_bytes());
  }
  EXPECT_TRUE(sound(engine.pool()));
}

TEST(Shares, ALowerCapTakesEffectAtOnceAndBothCanBeRemoved) {
  CountingDevice device;
  ToyEngine engine(device, blocks(32));
  cached(engine, prompt(1, 8), 1);
  EXPECT_FALSE(engine.pool().tenant_bytes(1));
  ASSERT_TRUE(done(engine.pool().set_share(1, 0, 100 * page_bytes())));
  EXPECT_EQ(engine.pool().tenant_bytes(1)->resident, 8 * page_bytes());
  ASSERT_TRUE(done(engine.pool().set_share(1, 2 * page_bytes(), 3 * page_bytes())));
  EXPECT_EQ(engine.pool().tenant_bytes(1)->resident, 3 * page_bytes());
  ASSERT_TRUE(done(engine.pool().set_share(1, 0, UINT64_MAX)));
  EXPECT_FALSE(engine.pool().tenant_bytes(1));
  cached(engine, prompt(2, 8), 1);
  EXPECT_EQ(known(engine.pool(), prompt(2, 8), 1), 32u);
}

TEST(Shares, RefusesWhatMakesNoSense) {
  CountingDevice device;
  ToyEngine lru(device, blocks(8, Eviction::Lru));
  EXPECT_TRUE(refused(lru.pool().set_share(1, 1, 2), Code::InvalidArgument));
  ToyEngine engine(device, blocks(8));
  EXPECT_TRUE(refused(engine.pool().set_share(1, 2, 1), Code::InvalidArgument));
  for (Namespace tenant = 1; tenant <= PrefixIndex::kMaxShares; ++tenant) {
    ASSERT_TRUE(done(engine.pool().set_share(tenant, 1, UINT64_MAX)));
  }
  EXPECT_TRUE(refused(engine.pool().set_share(1000, 1, UINT64_MAX), Code::Exhausted));
  ASSERT_TRUE(done(engine.pool().set_share(7, 0, UINT64_MAX)));
  EXPECT_TRUE(done(engine.pool().set_share(1000, 1, UINT64_MAX))) << "a place was given back";
  EXPECT_TRUE(sound(engine.pool()));
}

}  // namespace
}  // namespace quire::testing
