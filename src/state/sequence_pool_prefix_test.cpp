// SequencePool: computed prefixes are reused, within their namespace, until the memory is needed.
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "quire/state/pool_behaviour_testing.h"

namespace quire::testing {
namespace {

constexpr std::uint64_t kPage = 128;   // of the attention toy (block size 4)
constexpr std::uint64_t kState = 384;  // at least as large as every object of every toy

// --- reuse

TEST(PrefixReuse, ASequenceStartsWithTheFullBlocksThatAreCached) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 16 * kPage));
  cached(engine, counting(0, 10));
  const auto sequence = engine.create(joined(counting(0, 8), counting(50, 5))).value();
  EXPECT_EQ(engine.last_hit().tokens, 8u);
  EXPECT_EQ(engine.last_hit().matched, 8u);
  EXPECT_EQ(*engine.pool().length(sequence.id), 8u);
  EXPECT_EQ(engine.pool().stats().pages[0].held, 2u);
  EXPECT_EQ(engine.pool().stats().pages[0].cached, 0u);
  EXPECT_EQ(engine.verify(sequence), "");
  EXPECT_TRUE(sound(engine.pool()));
}

TEST(PrefixReuse, LivingSequencesShareTheirPrefix) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 16 * kPage));
  const auto a = written(engine, counting(0, 10));
  auto b = engine.create(joined(counting(0, 8), counting(50, 5))).value();
  EXPECT_EQ(engine.last_hit().tokens, 8u);
  EXPECT_EQ(pages_of(engine.pool(), b.id)[0], pages_of(engine.pool(), a.id)[0]);
  EXPECT_EQ(pages_of(engine.pool(), b.id)[1], pages_of(engine.pool(), a.id)[1]);
  EXPECT_EQ(engine.pool().stats().pages[0].held, 3u);
  ASSERT_TRUE(done(engine.append(b, b.pending)));
  EXPECT_EQ(engine.verify(a), "");
  EXPECT_EQ(engine.verify(b), "");
}

TEST(PrefixReuse, AtLeastOneTokenIsAlwaysLeftToCompute) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 32 * kPage));
  cached(engine, counting(0, 16));
  for (std::uint32_t length = 1; length <= 16; ++length) {
    const auto created = engine.pool().create({.prompt = counting(0, length)}).value();
    EXPECT_EQ(created.hit.tokens, length - 1) << length;  // part of a page is reused too
    EXPECT_EQ(created.hit.end, HitEnd::Complete) << length;
    ASSERT_TRUE(done(engine.pool().release(created.id)));
  }
  EXPECT_EQ(engine.pool().create({}).value().hit.tokens, 0u);
}

TEST(PrefixReuse, APartOfAPageIsSharedAndCopiedOnTheFirstWrite) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 16 * kPage));
  cached(engine, counting(0, 8));
  auto sequence = engine.create(joined(counting(0, 6), counting(50, 4))).value();
  EXPECT_EQ(engine.last_hit().tokens, 6u);
  EXPECT_EQ(engine.pool().stats().pages[0].held, 2u);
  device.reset_counts();
  ASSERT_TRUE(done(engine.append(sequence, sequence.pending)));
  EXPECT_EQ(device.counts().copies, 1u);
  EXPECT_EQ(device.counts().copied_bytes, kPage);
  EXPECT_EQ(engine.verify(sequence), "");
  // The original page is still cached for others.
  auto other = engine.create(joined(counting(0, 8), {99})).value();
  EXPECT_EQ(engine.last_hit().tokens, 8u);
  EXPECT_EQ(engine.verify(other), "");
  EXPECT_TRUE(sound(engine.pool()));
}

TEST(PrefixReuse, OfSeveralPagesTheOneWithTheMostTokensInCommonIsSharedInPart) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 16 * kPage));
  cached(engine, joined(counting(0, 4), {10, 11, 12, 13}));
  cached(engine, joined(counting(0, 4), {10, 20, 21, 22}));
  auto sequence = engine.create(joined(counting(0, 4), {10, 11, 12, 99, 98})).value();
  EXPECT_EQ(engine.last_hit().tokens, 7u);
  EXPECT_EQ(engine.verify(sequence), "");
}

TEST(PrefixReuse, ABlockCountsOnlyBehindTheSameBeginning) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 16 * kPage));
  cached(engine, counting(0, 8));
  EXPECT_EQ(engine.pool().lookup(joined(counting(50, 4), counting(4, 5))).tokens, 0u);
  EXPECT_EQ(engine.pool().lookup(counting(4, 5)).tokens, 0u);
  EXPECT_EQ(engine.pool().lookup(counting(0, 9)).tokens, 8u);
}

TEST(PrefixReuse, GeneratedTokensAreReusedLikeThoseOfAPrompt) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 16 * kPage));
  auto a = written(engine, counting(0, 3));
  for (Token t = 70; t < 79; ++t) ASSERT_TRUE(done(engine.append(a, {t})));
  EXPECT_EQ(engine.pool().lookup(joined(a.tokens, {99})).tokens, 12u);
}

TEST(PrefixReuse, CollidingHashesChangeNothing) {
  CountingDevice device;
  for (const std::uint32_t bits : {0u, 1u, 128u}) {
    PoolConfig config = pool_of(ToyModel::attention(), 64 * kPage);
    config.hash_bits = bits;
    ToyEngine engine(device, config);
    for (Token t = 0; t < 5; ++t) cached(engine, counting(100 * t, 12), static_cast<Namespace>(t % 2));
    for (Token t = 0; t < 5; ++t) {
      const auto sequence = engine.create(joined(counting(100 * t, 12), {99}), static_cast<Namespace>(t % 2)).value();
      EXPECT_EQ(engine.last_hit().tokens, 12u) << bits;
      EXPECT_EQ(engine.verify(sequence), "") << bits;
      EXPECT_EQ(engine.pool().lookup(counting(100 * t, 13), static_cast<Namespace>(1 - t % 2)).tokens, 0u) << bits;
      EXPECT_EQ(engine.pool().lookup(joined({-1}, counting(100 * t, 13)), 0).tokens, 0u) << bits;
    }
    EXPECT_TRUE(sound(engine.pool()));
  }
}

TEST(PrefixReuse, TwoThatComputeTheSameBlockEndWithOnePage) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 16 * kPage));
  SequencePool& pool = engine.pool();
  auto a = engine.create(counting(0, 9)).value(), b = engine.create(counting(0, 9)).value();
  ASSERT_TRUE(done(engine.append(a, counting(0, 8))));
  EXPECT_EQ(pool.stats().pages[0].held, 2u);
  ASSERT_TRUE(done(engine.append(b, counting(0, 8))));
  EXPECT_EQ(pool.stats().pages[0].held, 2u);
  EXPECT_EQ(pool.stats().blocks_published, 2u);
  EXPECT_EQ(pool.stats().blocks_deduplicated, 2u);
  EXPECT_EQ(pages_of(pool, a.id), pages_of(pool, b.id));
  EXPECT_EQ(engine.verify(a), "");
  EXPECT_EQ(engine.verify(b), "");
  EXPECT_TRUE(sound(pool));
}

TEST(PrefixReuse, CanBeDeclinedByARequest) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 16 * kPage));
  cached(engine, counting(0, 8));
  const auto sequence = engine.create(counting(0, 9), 0, false).value();
  EXPECT_EQ(engine.last_hit().tokens, 0u);
  EXPECT_EQ(engine.last_hit().end, HitEnd::Disabled);
  EXPECT_EQ(*engine.pool().length(sequence.id), 0u);
}

TEST(PrefixReuse, SwitchedOffNothingIsKept) {
  CountingDevice device;
  PoolConfig config = pool_of(ToyModel::attention(), 16 * kPage);
  config.prefix_cache = false;
  ToyEngine engine(device, config);
  cached(engine, counting(0, 10));
  EXPECT_EQ(engine.pool().stats().pages[0].cached, 0u);
  EXPECT_EQ(engine.pool().stats().pages[0].free, 16u);
  EXPECT_EQ(engine.pool().lookup(counting(0, 9)).end, HitEnd::Disabled);
  const auto again = written(engine, counting(0, 10));
  EXPECT_EQ(engine.last_hit().tokens, 0u);
  EXPECT_EQ(engine.last_hit().end, HitEnd::Disabled);
  auto fork = engine.fork(again, 9).value();  // sharing needs no index
  ASSERT_TRUE(done(engine.append(fork, {77})));
  EXPECT_EQ(engine.verify(fork), "");
  EXPECT_TRUE(sound(engine.pool()));
}

TEST(PrefixReuse, LookupPromisesWhatCreateGivesAndChangesNothing) {
  CountingDevice device;
  for (const ToyModel& model : {ToyModel::attention(), ToyModel::windowed(6), ToyModel::recurrent(), ToyModel::hybrid(),
                                ToyModel::everything(6)}) {
    PoolConfig config = pool_of(model, 64 * kState);
    config.checkpoint_interval = 8;
    ToyEngine engine(device, config);
    SequencePool& pool = engine.pool();
    const auto living = written(engine, counting(0, 22), 0, 4);
    cached(engine, joined(counting(0, 12), counting(50, 13)), 0, 4);
    cached(engine, counting(0, 17), 1, 4);
    std::uint32_t hits = 0;
    for (const Namespace name_space : {0, 1}) {
      for (std::uint32_t same = 0; same <= 26; ++same) {
        for (const auto& tail : {std::vector<Token>{}, counting(same, 1), counting(50, 9)}) {
          const auto prompt = joined(counting(0, same), tail);
          const auto events = pool.events().written();
          const auto lookups = pool.stats().lookups;
          const Hit promised = pool.lookup(prompt, name_space);
          EXPECT_EQ(pool.events().written(), events);
          EXPECT_EQ(pool.stats().lookups, lookups);
          const auto created = pool.create({.prompt = prompt, .name_space = name_space}).value();
          EXPECT_EQ(created.hit.tokens, promised.tokens);
          EXPECT_EQ(created.hit.matched, promised.matched);
          EXPECT_EQ(created.hit.end, promised.end);
          EXPECT_EQ(*pool.length(created.id), promised.tokens);
          hits += promised.tokens > 0;
          ASSERT_TRUE(done(pool.release(created.id)));
        }
      }
    }
    EXPECT_GT(hits, 50u);
    EXPECT_EQ(engine.verify(living), "");
    EXPECT_TRUE(sound(pool));
  }
}

TEST(PrefixReuse, LookupPromisesWhatCreateGivesAlsoWhereMemoryIsShort) {
  CountingDevice device;
  PoolConfig config = pool_of(ToyModel::hybrid(), 4 * 320);  // four slabs of a state or five pages
  config.checkpoint_interval = 8;
  ToyEngine engine(device, config);
  SequencePool& pool = engine.pool();
  cached(engine, counting(0, 8));                          // a slab for the checkpoint, a slab for two pages
  const auto living = written(engine, counting(100, 19));  // its state, and five pages: seven need two slabs
  ASSERT_EQ(pool.stats().states.cached, 1u);
  const Hit promised = pool.lookup(counting(0, 9));
  const auto created = pool.create({.prompt = counting(0, 9)}).value();
  EXPECT_EQ(created.hit.tokens, promised.tokens);
  EXPECT_EQ(created.hit.end, promised.end);
  EXPECT_EQ(engine.verify(living), "");
  EXPECT_TRUE(sound(pool));
}

// --- namespaces

TEST(Namespaces, NeverSeeEachOthersPages) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 16 * kPage));
  const auto a = written(engine, counting(0, 10), 1);
  auto b = engine.create(counting(0, 10), 2).value();
  EXPECT_EQ(engine.last_hit().tokens, 0u);  // not even a part of a page
  EXPECT_EQ(engine.last_hit().matched, 0u);
  EXPECT_EQ(engine.last_hit().end, HitEnd::OtherNamespace);
  ASSERT_TRUE(done(engine.append(b, b.pending)));
  for (const PageId mine : pages_of(engine.pool(), b.id)) {
    for (const PageId theirs : pages_of(engine.pool(), a.id)) EXPECT_NE(mine, theirs);
  }
  EXPECT_EQ(engine.pool().lookup(counting(0, 9), 1).tokens, 8u);
  EXPECT_EQ(engine.pool().lookup(counting(0, 9), 2).tokens, 8u);
  EXPECT_EQ(engine.pool().lookup(counting(0, 9), 3).tokens, 0u);
  EXPECT_TRUE(sound(engine.pool()));
}

TEST(Namespaces, NeverSeeEachOthersCheckpoints) {
  CountingDevice device;
  PoolConfig config = pool_of(ToyModel::recurrent(), 16 * kState);
  config.checkpoint_interval = 4;
  ToyEngine engine(device, config);
  cached(engine, counting(0, 8), 1);
  EXPECT_EQ(engine.pool().lookup(counting(0, 9), 1).tokens, 8u);
  EXPECT_EQ(engine.pool().lookup(counting(0, 9), 2).tokens, 0u);
}

// --- eviction

TEST(Eviction, PagesThatNobodyHoldsStayUntilTheyAreNeeded) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 6 * kPage));
  cached(engine, counting(0, 8));
  cached(engine, counting(100, 8));
  EXPECT_EQ(engine.pool().stats().pages[0].cached, 4u);
  EXPECT_EQ(engine.pool().stats().blocks_evicted, 0u);
  const SequenceId id = engine.pool().create({}).value().id;
  ASSERT_TRUE(done(engine.pool().reserve(id, 8)));  // the two free pages
  EXPECT_EQ(engine.pool().stats().blocks_evicted, 0u);
  ASSERT_TRUE(done(engine.pool().reserve(id, 12)));  // evicts exactly one
  EXPECT_EQ(engine.pool().stats().blocks_evicted, 1u);
  EXPECT_EQ(engine.pool().stats().pages[0].cached, 3u);
  EXPECT_TRUE(sound(engine.pool()));
}

TEST(Eviction, TheLeastRecentlyUsedGoesFirst) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 6 * kPage));
  SequencePool& pool = engine.pool();
  const auto a = counting(0, 8), b = counting(100, 8);
  cached(engine, a);
  cached(engine, b);
  // A is used again, by a hit only.
  const SequenceId again = pool.create({.prompt = joined(a, {99})}).value().id;
  ASSERT_TRUE(done(pool.release(again)));
  const SequenceId id = pool.create({}).value().id;
  ASSERT_TRUE(done(pool.reserve(id, 16)));
  EXPECT_EQ(pool.lookup(joined(a, {99})).tokens, 8u);
  EXPECT_EQ(pool.lookup(joined(b, {99})).tokens, 0u);
  EXPECT_EQ(pool.lookup(joined(b, {99})).end, HitEnd::Evicted);
}

TEST(Eviction, ALookupIsNoUse) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 4 * kPage));
  SequencePool& pool = engine.pool();
  const auto a = counting(0, 8), b = counting(100, 8);
  cached(engine, a);
  cached(engine, b);
  EXPECT_EQ(pool.lookup(joined(a, {99})).tokens, 8u);
  const SequenceId id = pool.create({}).value().id;
  ASSERT_TRUE(done(pool.reserve(id, 8)));
  EXPECT_EQ(pool.lookup(joined(a, {99})).tokens, 0u);
  EXPECT_EQ(pool.lookup(joined(b, {99})).tokens, 8u);
}

TEST(Eviction, TakesAPathFromItsEndSoThatNoChildIsOrphaned) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 5 * kPage));
  SequencePool& pool = engine.pool();
  const auto a = counting(0, 20);
  cached(engine, a);
  const SequenceId id = pool.create({}).value().id;
  for (std::uint32_t taken = 1; taken <= 5; ++taken) {
    ASSERT_TRUE(done(pool.reserve(id, 4 * taken)));
    EXPECT_EQ(pool.lookup(joined(a, {99})).tokens, 20 - 4 * taken);
    EXPECT_TRUE(sound(pool));
  }
}

TEST(Eviction, ASharedParentGoesAfterItsChildren) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 4 * kPage));
  SequencePool& pool = engine.pool();
  const auto x = joined(counting(0, 8), counting(50, 4)), y = joined(counting(0, 8), counting(60, 4));
  const auto first = written(engine, x);
  cached(engine, y);
  ASSERT_TRUE(done(pool.release(first.id)));  // x is the more recently used one now
  const SequenceId id = pool.create({}).value().id;
  const auto hits = [&] { return std::pair(pool.lookup(joined(x, {99})).tokens, pool.lookup(joined(y, {99})).tokens); };
  EXPECT_EQ(hits(), std::pair(12u, 12u));
  ASSERT_TRUE(done(pool.reserve(id, 4)));
  EXPECT_EQ(hits(), std::pair(12u, 8u));
  ASSERT_TRUE(done(pool.reserve(id, 8)));
  EXPECT_EQ(hits(), std::pair(8u, 8u));
  ASSERT_TRUE(done(pool.reserve(id, 12)));
  EXPECT_EQ(hits(), std::pair(4u, 4u));
  EXPECT_TRUE(sound(pool));
}

TEST(Eviction, NeverTakesWhatASequenceHolds) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 4 * kPage));
  SequencePool& pool = engine.pool();
  const auto living = written(engine, counting(0, 8));
  cached(engine, counting(100, 8));
  const SequenceId id = pool.create({}).value().id;
  ASSERT_TRUE(done(pool.reserve(id, 8)));
  EXPECT_TRUE(refused_with(pool.reserve(id, 9), Code::Exhausted, kPage, 0));
  EXPECT_EQ(engine.verify(living), "");
  EXPECT_EQ(pool.lookup(counting(0, 9)).tokens, 8u);
}

TEST(Eviction, DroppingTheCacheForgetsAllButWhatIsHeld) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 16 * kPage));
  SequencePool& pool = engine.pool();
  const auto living = written(engine, counting(0, 8));
  cached(engine, counting(100, 8));
  cached(engine, joined(counting(0, 8), counting(50, 4)));
  pool.drop_cache();
  EXPECT_EQ(pool.stats().pages[0].cached, 0u);
  EXPECT_EQ(pool.stats().pages[0].held, 2u);
  EXPECT_EQ(pool.stats().prefix_blocks, 2u);
  EXPECT_EQ(pool.lookup(counting(0, 9)).tokens, 8u);
  EXPECT_EQ(pool.lookup(counting(100, 9)).tokens, 0u);
  EXPECT_EQ(engine.verify(living), "");
  EXPECT_TRUE(sound(pool));
}

// Full pages of a live sequence are published. Rewinding into one means a copy. If there is no page for the copy, and
// nobody else uses the published page, it is removed from the index instead.
TEST(Eviction, APublishedPageIsTakenBackWhereThereIsNoRoomForACopy) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 2 * kPage));
  auto sequence = written(engine, counting(0, 8));
  ASSERT_TRUE(done(engine.rewind(sequence, 6)));
  device.reset_counts();
  ASSERT_TRUE(done(engine.append(sequence, {70, 71})));
  EXPECT_EQ(device.counts().copies, 0u);
  EXPECT_EQ(engine.verify(sequence), "");
  EXPECT_EQ(engine.pool().lookup(counting(0, 9)).tokens, 6u);  // the tokens that the old and the new block share
  EXPECT_EQ(engine.pool().lookup(joined(sequence.tokens, {99})).tokens, 8u);
  EXPECT_TRUE(sound(engine.pool()));
}

TEST(Eviction, APublishedPageThatAnotherHoldsIsNotTakenBack) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 2 * kPage));
  const auto a = written(engine, counting(0, 8));
  auto b = engine.fork(a, 6).value();
  EXPECT_TRUE(refused_with(engine.pool().reserve(b.id, 1), Code::Exhausted, kPage, 0));
  EXPECT_EQ(engine.verify(a), "");
  EXPECT_EQ(engine.verify(b), "");
  EXPECT_TRUE(sound(engine.pool()));
}

TEST(HashSeed, IsDrawnForEachPoolUnlessItIsGiven) {
  CountingDevice device;
  const auto key = [&](std::optional<std::uint64_t> seed) {
    PoolConfig config = pool_of(ToyModel::attention(), 1 << 12);
    config.hash_seed = seed;
    return SequencePool::create(device, config).value()->prefix_index().key_of(0, counting(0, 8));
  };
  EXPECT_EQ(key(7), key(7));
  EXPECT_NE(key(7), key(8));
  EXPECT_NE(key(std::nullopt), key(std::nullopt));
}

}  // namespace
}  // namespace quire::testing
