// SequencePool: recurrent checkpoints. They are kept at block boundaries under a byte budget. With Eviction::Lru they
// are thinned so that any cached prefix resumes with a bounded number of recomputed tokens. In hybrids a hit needs both
// pages and a checkpoint.
#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "quire/state/pool_behaviour_testing.h"

namespace quire::testing {
namespace {

constexpr std::uint64_t kState = 384;        // recurrent toy
constexpr std::uint64_t kHybridState = 320;  // hybrid toy: a slab holds one state or five pages
constexpr std::uint64_t kHybridPage = 64;

PoolConfig recurrent(std::uint64_t states, std::uint32_t interval) {
  PoolConfig config = pool_of(ToyModel::recurrent(), states * kState);
  config.checkpoint_interval = interval;
  return config;
}
PoolConfig hybrid(std::uint64_t slabs, std::uint32_t interval) {
  PoolConfig config = pool_of(ToyModel::hybrid(), slabs * kHybridState);
  config.checkpoint_interval = interval;
  return config;
}

// Positions of the checkpoints that were stored since the log began.
std::vector<std::uint64_t> stored(const SequencePool& pool) {
  std::vector<std::uint64_t> positions;
  for (const PoolEvent& event : only(events_since(pool, 0), PoolEvent::Kind::CheckpointStored)) {
    positions.push_back(event.detail);
  }
  return positions;
}

// Over all prefixes of `tokens`: the largest number of tokens that are known to the index but must be recomputed.
std::uint32_t most_recomputed(const SequencePool& pool, const std::vector<Token>& tokens) {
  std::uint32_t most = 0;
  for (std::size_t n = 4; n <= tokens.size(); n += 4) {
    const Hit hit = pool.lookup(joined({tokens.begin(), tokens.begin() + static_cast<long>(n)}, {-1}));
    most = std::max(most, hit.matched - hit.tokens);
  }
  return most;
}

TEST(Checkpoints, AreKeptAtBlockBoundariesWhenOneIsDue) {
  CountingDevice device;
  ToyEngine engine(device, recurrent(32, 8));
  (void)written(engine, counting(0, 30), 0, 1);
  EXPECT_EQ(stored(engine.pool()), (std::vector<std::uint64_t>{8, 16, 24}));
  EXPECT_EQ(engine.pool().stats().checkpoints_stored, 3u);
  EXPECT_EQ(engine.pool().stats().states.cached, 3u);
  EXPECT_TRUE(sound(engine.pool()));
}

TEST(Checkpoints, AnIntervalIsRoundedUpToWholeBlocks) {
  CountingDevice device;
  ToyEngine engine(device, recurrent(32, 5));
  (void)written(engine, counting(0, 20), 0, 1);
  EXPECT_EQ(stored(engine.pool()), (std::vector<std::uint64_t>{8, 16}));
}

TEST(Checkpoints, AreKeptOnlyWhereTheSequenceStandsAtABoundary) {
  CountingDevice device;
  ToyEngine engine(device, recurrent(32, 4));
  (void)written(engine, counting(0, 21), 0, 7);  // 7, 14, 21: no multiple of 4
  EXPECT_EQ(engine.pool().stats().checkpoints_stored, 0u);
  auto other = written(engine, counting(100, 9), 0, 6);  // 6, 9
  ASSERT_TRUE(done(engine.append(other, counting(109, 3))));
  EXPECT_EQ(stored(engine.pool()), (std::vector<std::uint64_t>{12}));
}

TEST(Checkpoints, CanBeAskedForAtABoundary) {
  CountingDevice device;
  ToyEngine engine(device, recurrent(32, 64));
  auto sequence = engine.create({}).value();
  ASSERT_TRUE(done(engine.append(sequence, counting(0, 4), true)));
  ASSERT_TRUE(done(engine.append(sequence, counting(4, 3), true)));  // not a boundary
  ASSERT_TRUE(done(engine.append(sequence, counting(7, 1), false)));
  EXPECT_EQ(stored(engine.pool()), (std::vector<std::uint64_t>{4}));
  EXPECT_EQ(engine.pool().lookup(counting(0, 9)).tokens, 4u);
}

// A regression of commit's fast path: a commit without tokens at a boundary kept
// no checkpoint although one was asked for.
TEST(Checkpoints, CanBeAskedForWhereTheSequenceStandsAlready) {
  CountingDevice device;
  ToyEngine engine(device, recurrent(32, 64));
  auto sequence = engine.create({}).value();
  ASSERT_TRUE(done(engine.append(sequence, counting(0, 4))));
  ASSERT_TRUE(done(engine.append(sequence, {}, true)));
  EXPECT_EQ(stored(engine.pool()), (std::vector<std::uint64_t>{4}));
}

TEST(Checkpoints, OneThatIsThereIsNotKeptTwice) {
  CountingDevice device;
  ToyEngine engine(device, recurrent(32, 4));
  const auto a = written(engine, counting(0, 8), 0, 4);
  auto b = engine.create(counting(0, 9), 0, false).value();  // computes the same tokens without reuse
  ASSERT_TRUE(done(engine.append(b, counting(0, 4), true)));
  ASSERT_TRUE(done(engine.append(b, counting(4, 4), true)));
  EXPECT_EQ(engine.pool().stats().checkpoints_stored, 2u);
  EXPECT_EQ(engine.pool().stats().states.cached, 2u);
}

TEST(Checkpoints, ThePoolSaysWhereTheNextOneFallsDue) {
  CountingDevice device;
  PoolConfig config = recurrent(32, 8);
  config.max_tokens = 30;
  ToyEngine engine(device, config);
  auto sequence = engine.create({}).value();
  std::vector<std::uint32_t> stops;
  while (sequence.tokens.size() < 30) {
    stops.push_back(engine.pool().next_checkpoint(sequence.id).value());
    ASSERT_GT(stops.back(), sequence.tokens.size());
    const auto from = static_cast<Token>(sequence.tokens.size());
    ASSERT_TRUE(done(engine.append(sequence, counting(from, stops.back() - sequence.tokens.size()))));
  }
  EXPECT_EQ(stops, (std::vector<std::uint32_t>{8, 16, 24, 30}));
  EXPECT_EQ(stored(engine.pool()), (std::vector<std::uint64_t>{8, 16, 24}));
}

TEST(Checkpoints, AreWhereACachedRecurrentPrefixResumes) {
  CountingDevice device;
  ToyEngine engine(device, recurrent(32, 4));
  cached(engine, counting(0, 10), 0, 4);
  device.reset_counts();
  auto sequence = engine.create(counting(0, 12)).value();
  EXPECT_EQ(engine.last_hit().tokens, 8u);
  EXPECT_EQ(device.counts().copies, 1u);  // the state, in one run
  EXPECT_EQ(device.counts().copied_bytes, kState);
  EXPECT_EQ(engine.pool().stats().checkpoints_restored, 1u);
  EXPECT_EQ(engine.verify(sequence), "");
  ASSERT_TRUE(done(engine.append(sequence, counting(8, 4))));
  EXPECT_EQ(engine.verify(sequence), "");
  EXPECT_EQ(engine.pool().lookup(counting(0, 9)).tokens, 8u);  // the checkpoint is still there
}

TEST(Checkpoints, ARecurrentPrefixIsNeverReusedInTheMiddleOfABlock) {
  CountingDevice device;
  ToyEngine engine(device, recurrent(32, 4));
  cached(engine, counting(0, 8), 0, 4);
  EXPECT_EQ(engine.pool().lookup(counting(0, 8)).tokens, 4u);
  EXPECT_EQ(engine.pool().lookup(joined(counting(0, 6), counting(90, 6))).tokens, 4u);
}

// --- hybrids need both

TEST(HybridPrefix, CountsOnlyUpToABoundaryThatHasPagesAndCheckpoint) {
  CountingDevice device;
  ToyEngine engine(device, hybrid(32, 8));
  const auto living = written(engine, counting(0, 15), 0, 4);  // checkpoint at 8, blocks up to 12
  const Hit hit = engine.pool().lookup(counting(0, 14));
  EXPECT_EQ(hit.tokens, 8u);
  EXPECT_EQ(hit.matched, 12u);
  EXPECT_EQ(hit.end, HitEnd::NoCheckpoint);
  const auto sequence = engine.create(counting(0, 14)).value();
  EXPECT_EQ(engine.last_hit().tokens, 8u);
  EXPECT_EQ(pages_of(engine.pool(), sequence.id).size(), 2u);
  EXPECT_EQ(engine.verify(sequence), "");
  EXPECT_TRUE(sound(engine.pool()));
}

TEST(HybridPrefix, PagesBehindTheLastCheckpointDoNotLinger) {
  CountingDevice device;
  ToyEngine engine(device, hybrid(32, 8));
  cached(engine, counting(0, 15), 0, 4);
  const PoolStats stats = engine.pool().stats();
  EXPECT_EQ(stats.pages[0].cached, 2u);
  EXPECT_EQ(stats.pages[0].held, 0u);
  EXPECT_EQ(stats.states.cached, 1u);
  EXPECT_EQ(stats.prefix_blocks, 2u);
  EXPECT_EQ(engine.pool().lookup(counting(0, 14)).tokens, 8u);
  EXPECT_TRUE(sound(engine.pool()));
}

TEST(HybridPrefix, WithoutAnyCheckpointNothingLingers) {
  CountingDevice device;
  PoolConfig config = hybrid(32, 4);
  config.checkpoint_budget_bytes = 0;
  ToyEngine engine(device, config);
  cached(engine, counting(0, 15), 0, 4);
  const PoolStats stats = engine.pool().stats();
  EXPECT_EQ(stats.pages[0].cached, 0u);
  EXPECT_EQ(stats.states.cached, 0u);
  EXPECT_EQ(stats.prefix_blocks, 0u);
  EXPECT_EQ(stats.free_slabs, stats.slabs);
  EXPECT_EQ(stats.checkpoints_skipped, 3u);
}

TEST(HybridPrefix, PagesGoWithTheirCheckpointWhenMemoryIsNeeded) {
  CountingDevice device;
  ToyEngine engine(device, hybrid(4, 8));
  SequencePool& pool = engine.pool();
  cached(engine, counting(0, 12), 0, 4);
  ASSERT_EQ(pool.stats().states.cached, 1u);  // one slab for the checkpoint, one for the pages
  ASSERT_EQ(pool.stats().pages[0].cached, 2u);
  // Three slabs for states are possible only without the checkpoint or the pages, and then both are evicted.
  for (RequestId r = 1; r <= 3; ++r) ASSERT_TRUE(done(pool.alloc_ssm(r)));
  EXPECT_EQ(pool.stats().states.cached, 0u);
  EXPECT_EQ(pool.stats().pages[0].cached, 0u);
  EXPECT_EQ(pool.stats().prefix_blocks, 0u);
  EXPECT_TRUE(sound(pool));
}

TEST(HybridPrefix, OnABranchEveryEndHasACheckpointOrIsForgotten) {
  CountingDevice device;
  ToyEngine engine(device, hybrid(64, 8));
  SequencePool& pool = engine.pool();
  cached(engine, counting(0, 16), 0, 4);                           // checkpoints at 8 and 16
  cached(engine, joined(counting(0, 12), counting(50, 4)), 0, 4);  // resumes at 8, due again at 16
  cached(engine, joined(counting(0, 8), counting(70, 6)), 0, 4);   // ends at 12 without one
  EXPECT_EQ(pool.lookup(joined(counting(0, 16), {-1})).tokens, 16u);
  EXPECT_EQ(pool.lookup(joined(counting(0, 12), counting(50, 5))).tokens, 16u);
  EXPECT_EQ(pool.lookup(joined(counting(0, 8), counting(70, 6))).matched, 8u);
  EXPECT_EQ(pool.stats().prefix_blocks, 5u);
  EXPECT_TRUE(sound(pool));
}

// --- the budget, and thinning

TEST(CheckpointBudget, IsNeverExceeded) {
  CountingDevice device;
  PoolConfig config = recurrent(32, 4);
  config.checkpoint_budget_bytes = 3 * kState + 100;
  config.max_recompute = 64;
  ToyEngine engine(device, config);
  std::uint32_t most = 0;
  for (Token t = 0; t < 3; ++t) {
    auto sequence = engine.create({}).value();
    for (std::uint32_t i = 0; i < 40; ++i) {
      ASSERT_TRUE(done(engine.append(sequence, {static_cast<Token>(1000 * t + i)})));
      most = std::max(most, engine.pool().stats().states.cached);
      ASSERT_TRUE(sound(engine.pool()));
    }
    ASSERT_TRUE(done(engine.pool().release(sequence.id)));
  }
  EXPECT_EQ(most, 3u);
}

// With checkpoints at most 16 tokens apart, five of them are enough for 64 tokens, whatever the length.
TEST(CheckpointBudget, ThinningKeepsTheBoundOnRecomputedTokens) {
  CountingDevice device;
  PoolConfig config = recurrent(32, 4);
  config.eviction = Eviction::Lru;
  config.checkpoint_budget_bytes = 5 * kState;
  config.max_recompute = 16;
  config.max_tokens = 128;
  ToyEngine engine(device, config);
  SequencePool& pool = engine.pool();
  const auto tokens = counting(0, 64);
  auto sequence = engine.create({}).value();
  for (std::uint32_t n = 0; n < 64; n += 4) {
    ASSERT_TRUE(done(engine.append(sequence, counting(static_cast<Token>(n), 4))));
    EXPECT_LE(pool.stats().states.cached, 5u);
    EXPECT_LT(most_recomputed(pool, tokens), 16u) << n;
  }
  EXPECT_EQ(pool.stats().checkpoints_stored, 16u);
  EXPECT_EQ(pool.stats().checkpoints_dropped, 11u);
  EXPECT_EQ(pool.stats().checkpoints_skipped, 0u);
  ASSERT_TRUE(done(pool.release(sequence.id)));
  EXPECT_EQ(pool.stats().prefix_blocks, 16u);  // all of it is still cached
  EXPECT_LT(most_recomputed(pool, tokens), 16u);
  EXPECT_EQ(pool.lookup(joined(tokens, {-1})).tokens, 64u);
  EXPECT_TRUE(sound(pool));
}

TEST(CheckpointBudget, WhereItIsTooSmallForTheBoundThePrefixEndsEarlierAndTheBoundHolds) {
  CountingDevice device;
  PoolConfig config = recurrent(32, 4);
  config.eviction = Eviction::Lru;
  config.checkpoint_budget_bytes = 2 * kState;
  config.max_recompute = 16;
  config.max_tokens = 128;
  ToyEngine engine(device, config);
  SequencePool& pool = engine.pool();
  const auto tokens = counting(0, 64);
  cached(engine, tokens, 0, 4);
  EXPECT_GT(pool.stats().checkpoints_skipped, 0u);
  EXPECT_EQ(pool.stats().states.cached, 2u);
  const Hit hit = pool.lookup(joined(tokens, {-1}));
  EXPECT_GE(hit.tokens, 16u);
  EXPECT_LE(hit.tokens, 32u);  // two gaps
  EXPECT_EQ(hit.matched, hit.tokens);
  EXPECT_LT(most_recomputed(pool, tokens), 16u);
}

TEST(CheckpointBudget, ThinningMakesTheMostOfTheBudget) {
  CountingDevice device;
  PoolConfig config = recurrent(32, 4);
  config.eviction = Eviction::Lru;
  config.checkpoint_budget_bytes = 4 * kState;
  config.max_recompute = 16;
  config.max_tokens = 128;
  ToyEngine engine(device, config);
  cached(engine, counting(0, 64), 0, 4);
  EXPECT_EQ(engine.pool().stats().checkpoints_skipped, 0u);
  EXPECT_EQ(engine.pool().lookup(joined(counting(0, 64), {-1})).tokens, 64u);
}

TEST(CheckpointBudget, OldPathsGiveTheirsUpForNewOnes) {
  CountingDevice device;
  PoolConfig config = recurrent(32, 4);
  config.eviction = Eviction::Lru;
  config.checkpoint_budget_bytes = 2 * kState;
  config.max_recompute = 4;  // no thinning
  ToyEngine engine(device, config);
  SequencePool& pool = engine.pool();
  cached(engine, counting(0, 8), 0, 4);
  cached(engine, counting(100, 8), 0, 4);
  EXPECT_EQ(pool.lookup(counting(0, 9)).tokens, 0u);
  EXPECT_EQ(pool.lookup(counting(100, 9)).tokens, 8u);
  EXPECT_EQ(pool.stats().states.cached, 2u);
  EXPECT_TRUE(sound(pool));
}

TEST(CheckpointBudget, AUsedCheckpointIsNotTheNextToGo) {
  CountingDevice device;
  PoolConfig config = recurrent(32, 8);
  config.checkpoint_budget_bytes = 2 * kState;
  ToyEngine engine(device, config);
  SequencePool& pool = engine.pool();
  cached(engine, counting(0, 8), 0, 8);
  cached(engine, counting(100, 8), 0, 8);
  const SequenceId again = pool.create({.prompt = counting(0, 9)}).value().id;
  ASSERT_TRUE(done(pool.release(again)));
  cached(engine, counting(200, 8), 0, 8);
  EXPECT_EQ(pool.lookup(counting(0, 9)).tokens, 8u);
  EXPECT_EQ(pool.lookup(counting(100, 9)).tokens, 0u);
  EXPECT_EQ(pool.lookup(counting(200, 9)).tokens, 8u);
}

// --- memory

TEST(Checkpoints, ACommitNeverFailsForLackOfMemoryForOne) {
  CountingDevice device;
  ToyEngine engine(device, recurrent(1, 4));
  auto sequence = engine.create({}).value();
  ASSERT_TRUE(done(engine.append(sequence, counting(0, 4), true)));
  ASSERT_TRUE(done(engine.append(sequence, counting(4, 4))));
  EXPECT_EQ(engine.pool().stats().checkpoints_skipped, 2u);
  EXPECT_EQ(engine.pool().stats().checkpoints_stored, 0u);
  EXPECT_EQ(engine.verify(sequence), "");
  EXPECT_TRUE(sound(engine.pool()));
}

TEST(Checkpoints, GiveWayToTheLiving) {
  CountingDevice device;
  ToyEngine engine(device, recurrent(3, 4));
  SequencePool& pool = engine.pool();
  const auto a = written(engine, counting(0, 10), 0, 4);
  EXPECT_EQ(pool.stats().states.cached, 2u);
  EXPECT_EQ(pool.stats().states.free, 0u);
  ASSERT_TRUE(done(pool.create({})));
  EXPECT_EQ(pool.stats().states.cached, 1u);
  ASSERT_TRUE(done(pool.create({})));
  EXPECT_EQ(pool.stats().states.cached, 0u);
  EXPECT_TRUE(refused(pool.create({}), Code::Exhausted));
  EXPECT_EQ(engine.verify(a), "");
  EXPECT_TRUE(sound(pool));
}

TEST(Checkpoints, TheOneThatIsAboutToBeReadIsNotTakenToMakeRoomForTheReader) {
  CountingDevice device;
  ToyEngine engine(device, recurrent(3, 4));
  const auto living = written(engine, counting(0, 8), 0, 4);  // its state, and checkpoints at 4 and 8
  ASSERT_EQ(engine.pool().stats().states.free, 0u);
  const auto sequence = engine.create(joined(counting(0, 4), counting(50, 3))).value();
  EXPECT_EQ(engine.last_hit().tokens, 4u);  // the older of the two, which would have been the one to go
  EXPECT_EQ(engine.verify(sequence), "");
  EXPECT_EQ(engine.verify(living), "");
  EXPECT_EQ(engine.pool().stats().states.cached, 1u);
  EXPECT_TRUE(sound(engine.pool()));
}

TEST(Checkpoints, WithoutRoomBesideTheCheckpointASequenceIsMadeAllTheSame) {
  CountingDevice device;
  ToyEngine engine(device, recurrent(2, 8));
  const auto living = written(engine, counting(0, 8));  // its state, and a checkpoint at 8
  ASSERT_EQ(engine.pool().stats().states.free, 0u);
  const auto sequence = engine.create(counting(0, 9));
  ASSERT_TRUE(done(sequence));
  EXPECT_EQ(engine.verify(*sequence), "");
  EXPECT_EQ(engine.verify(living), "");
  EXPECT_TRUE(sound(engine.pool()));
}

TEST(Checkpoints, AStateThatWasACheckpointIsZeroForANewSequence) {
  CountingDevice device;
  ToyEngine engine(device, recurrent(1, 4));
  SequencePool& pool = engine.pool();
  cached(engine, counting(0, 8));
  const SequenceId id = pool.create({}).value().id;
  const StateView view = pool.state_view(id).value();
  device.settle();
  EXPECT_TRUE(all_zero({view.base, kState}));
}

TEST(Checkpoints, DroppingTheCacheDropsThemAll) {
  CountingDevice device;
  ToyEngine engine(device, hybrid(32, 4));
  SequencePool& pool = engine.pool();
  const auto living = written(engine, counting(0, 10), 0, 4);
  cached(engine, counting(100, 10), 0, 4);
  EXPECT_EQ(pool.stats().states.cached, 4u);
  pool.drop_cache();
  EXPECT_EQ(pool.stats().states.cached, 0u);
  EXPECT_EQ(pool.stats().pages[0].cached, 0u);
  EXPECT_EQ(engine.verify(living), "");
  EXPECT_TRUE(sound(pool));
  ASSERT_TRUE(done(pool.release(living.id)));
  EXPECT_EQ(pool.stats().free_slabs, pool.stats().slabs);  // no block stays cached without a checkpoint
}

TEST(HybridPrefix, AStateMayFillWhatPagesLeave) {
  CountingDevice device;
  ToyEngine engine(device, hybrid(3, 64));
  SequencePool& pool = engine.pool();
  auto a = engine.create({}).value();
  ASSERT_TRUE(done(engine.append(a, counting(0, 40))));  // ten pages: the other two slabs
  EXPECT_EQ(pool.stats().free_slabs, 0u);
  EXPECT_TRUE(refused_with(pool.create({}), Code::Exhausted, kHybridState, 0));
  ASSERT_TRUE(done(engine.rewind(a, 0)));
  EXPECT_TRUE(done(pool.create({})));
  EXPECT_TRUE(done(pool.create({})));
  EXPECT_TRUE(refused_with(pool.reserve(a.id, 1), Code::Exhausted, kHybridPage, 0));
  EXPECT_TRUE(sound(pool));
}

}  // namespace
}  // namespace quire::testing
