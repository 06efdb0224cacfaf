// SequencePool: one reservation for all groups and sequences, planned without side effects and done entirely or not at
// all. Also: what can ever fit, and how few table entries are uploaded.
#include <vector>

#include <gtest/gtest.h>

#include "quire/state/pool_behaviour_testing.h"

namespace quire::testing {
namespace {

using BatchEntry = BatchEntry;

constexpr std::uint64_t kPage = 128;                     // attention toy (block size 4)
constexpr std::uint64_t kSlab = 128;                     // windowed toy: two pages of group 0, or one of group 1
constexpr std::uint64_t kHybridSlab = 320;               // hybrid toy: five pages, or one state
constexpr std::uint64_t kEntry = sizeof(std::uint32_t);  // of a table

std::vector<SequenceId> create(SequencePool& pool, std::size_t count) {
  std::vector<SequenceId> ids;
  for (std::size_t i = 0; i < count; ++i) ids.push_back(pool.create({}).value().id);
  return ids;
}

// --- all or nothing

TEST(Reservation, ForSeveralSequencesIsAllOrNothing) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 4 * kPage));
  SequencePool& pool = engine.pool();
  const auto ids = create(pool, 3);
  const std::vector<BatchEntry> five{{ids[0], 8}, {ids[1], 4}, {ids[2], 8}};
  EXPECT_TRUE(refused_with(pool.reserve(five), Code::Exhausted, 5 * kPage, 4 * kPage));
  EXPECT_EQ(pool.stats().pages[0].held, 0u);
  EXPECT_EQ(pool.stats().refusals, 1u);
  for (const SequenceId id : ids) {
    EXPECT_TRUE(pool.pages(id, 0)->empty());
    EXPECT_TRUE(refused(pool.commit(id, counting(0, 1)), Code::NotReserved));
  }
  EXPECT_TRUE(sound(pool));
  const std::vector<BatchEntry> four{{ids[0], 8}, {ids[1], 4}, {ids[2], 4}};
  EXPECT_TRUE(done(pool.reserve(four)));
  EXPECT_EQ(pool.stats().pages[0].held, 4u);
  EXPECT_TRUE(done(pool.commit(ids[2], counting(0, 4))));
  EXPECT_TRUE(sound(pool));
}

TEST(Reservation, ForSeveralGroupsIsAllOrNothing) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::windowed(8), 3 * kSlab));
  SequencePool& pool = engine.pool();
  const SequenceId id = create(pool, 1)[0];
  // Three pages of group 0 would fit (two slabs), three of group 1 beside them would not.
  EXPECT_TRUE(refused(pool.reserve(id, 12), Code::Exhausted));
  EXPECT_EQ(pool.stats().pages[0].held, 0u);
  EXPECT_EQ(pool.stats().pages[1].held, 0u);
  EXPECT_EQ(pool.stats().free_slabs, 3u);
  EXPECT_TRUE(done(pool.reserve(id, 8)));
  EXPECT_EQ(pool.stats().pages[0].held, 2u);
  EXPECT_EQ(pool.stats().pages[1].held, 2u);
  EXPECT_EQ(pool.stats().free_slabs, 0u);
  EXPECT_TRUE(sound(pool));
}

TEST(Reservation, ARefusedOneLeavesTheCacheAlone) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 4 * kPage));
  SequencePool& pool = engine.pool();
  cached(engine, counting(0, 8));
  const SequenceId id = create(pool, 1)[0];
  EXPECT_TRUE(refused(pool.reserve(id, 20), Code::Exhausted));
  EXPECT_EQ(pool.stats().pages[0].cached, 2u);
  EXPECT_EQ(pool.stats().blocks_evicted, 0u);
  EXPECT_EQ(pool.lookup(counting(0, 9)).tokens, 8u);
}

TEST(Reservation, CountsTheCopiesOfSharedPages) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 3 * kPage));
  SequencePool& pool = engine.pool();
  auto a = written(engine, counting(0, 6));
  auto b = engine.fork(a, 6).value(), c = engine.fork(a, 6).value();
  EXPECT_EQ(pool.stats().pages[0].free, 1u);
  // Three sequences want to write one half-full page: one may keep it, two need a copy, and there is room for one.
  const std::vector<BatchEntry> all{{a.id, 1}, {b.id, 1}, {c.id, 1}};
  EXPECT_TRUE(refused(pool.reserve(all), Code::Exhausted));
  EXPECT_EQ(pages_of(pool, b.id), pages_of(pool, a.id));
  EXPECT_EQ(pages_of(pool, c.id), pages_of(pool, a.id));
  EXPECT_TRUE(done(pool.reserve(b.id, 1)));
  EXPECT_EQ(pool.stats().pages[0].free, 0u);
  for (const auto* sequence : {&a, &b, &c}) EXPECT_EQ(engine.verify(*sequence), "");
  EXPECT_TRUE(sound(pool));
}

TEST(Reservation, OfAllHoldersOfAPageNeedsACopyForAllButOne) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 4 * kPage));
  SequencePool& pool = engine.pool();
  auto a = written(engine, counting(0, 6));
  auto b = engine.fork(a, 6).value(), c = engine.fork(a, 6).value();
  EXPECT_EQ(pool.stats().pages[0].free, 2u);
  const std::vector<BatchEntry> all{{a.id, 1}, {b.id, 1}, {c.id, 1}};
  EXPECT_TRUE(done(pool.reserve(all)));
}

TEST(Reservation, OfAllHoldersOfAPageThatTheIndexKnowsNeedsACopyForAllButOneWhereThereIsNoRoomForMore) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 3 * kPage));
  SequencePool& pool = engine.pool();
  auto a = written(engine, counting(0, 8));
  auto b = engine.fork(a, 6).value();
  ASSERT_TRUE(done(engine.rewind(a, 6)));
  ASSERT_EQ(pool.stats().pages[0].held, 2u);  // both end in the second page, which is published
  const std::vector<BatchEntry> both{{a.id, 1}, {b.id, 1}};
  EXPECT_TRUE(done(pool.can_reserve(both)));
  ASSERT_TRUE(done(pool.reserve(both)));
  EXPECT_EQ(pool.stats().pages_copied, 1u);
  EXPECT_EQ(pool.stats().prefix_blocks, 1u);  // the second page was taken out of the index
  EXPECT_TRUE(done(engine.write_and_commit(a, {70})));
  EXPECT_TRUE(done(engine.write_and_commit(b, {80})));
  EXPECT_EQ(engine.verify(a), "");
  EXPECT_EQ(engine.verify(b), "");
  EXPECT_TRUE(sound(pool));
}

TEST(Reservation, OneUnknownSequenceRefusesTheWhole) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 4 * kPage));
  SequencePool& pool = engine.pool();
  const auto ids = create(pool, 2);
  ASSERT_TRUE(done(pool.release(ids[1])));
  const std::vector<BatchEntry> demands{{ids[0], 4}, {ids[1], 4}};
  EXPECT_TRUE(refused_at(pool.reserve(demands), Code::InvalidSequence, ids[1].index));
  EXPECT_EQ(pool.stats().pages[0].held, 0u);
  EXPECT_EQ(pool.stats().refusals, 0u);  // nothing was short
}

TEST(Reservation, OneThatIsTooLongRefusesTheWhole) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 64 * kPage));
  SequencePool& pool = engine.pool();
  const auto ids = create(pool, 2);
  const std::vector<BatchEntry> demands{{ids[0], 4}, {ids[1], 65}};
  EXPECT_TRUE(refused_with(pool.reserve(demands), Code::TooLong, 65, 64));
  EXPECT_EQ(pool.stats().pages[0].held, 0u);
}

TEST(Reservation, TheSameSequenceTwiceIsRefused) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 4 * kPage));
  SequencePool& pool = engine.pool();
  const SequenceId id = create(pool, 1)[0];
  const std::vector<BatchEntry> twice{{id, 4}, {id, 4}};
  EXPECT_TRUE(refused(pool.reserve(twice), Code::InvalidArgument));
  EXPECT_TRUE(refused(pool.can_reserve(twice), Code::InvalidArgument));
  EXPECT_EQ(pool.stats().pages[0].held, 0u);
  EXPECT_TRUE(done(pool.reserve(std::span(twice).first(1))));
}

TEST(Reservation, OfNothingIsDone) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 4 * kPage));
  SequencePool& pool = engine.pool();
  EXPECT_TRUE(done(pool.reserve(std::span<const BatchEntry>())));
  const SequenceId id = create(pool, 1)[0];
  EXPECT_TRUE(done(pool.reserve(id, 0)));
  EXPECT_EQ(pool.stats().pages[0].held, 0u);
}

TEST(Reservation, ASecondOneForTheSameTokensTakesNothingMore) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 8 * kPage));
  SequencePool& pool = engine.pool();
  const SequenceId id = create(pool, 1)[0];
  ASSERT_TRUE(done(pool.reserve(id, 6)));
  device.reset_counts();
  const auto events = pool.events().written();
  ASSERT_TRUE(done(pool.reserve(id, 6)));
  ASSERT_TRUE(done(pool.reserve(id, 8)));  // the rest of the same page
  const BatchEntry demand{id, 6};
  ASSERT_TRUE(done(pool.reserve(std::span(&demand, 1))));
  EXPECT_EQ(pool.stats().pages[0].held, 2u);
  EXPECT_EQ(device.counts().uploads, 0u);
  EXPECT_EQ(pool.events().written(), events);
}

TEST(Reservation, OfADeviceThatRefusesChangesNothingForAnyOfThem) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 8 * kPage));
  SequencePool& pool = engine.pool();
  auto a = written(engine, counting(0, 6));
  auto b = engine.fork(a, 6).value();
  const SequenceId c = create(pool, 1)[0];
  const std::vector<BatchEntry> demands{{c, 5}, {b.id, 5}, {a.id, 1}};
  const auto held = pool.stats().pages[0].held;
  for (std::uint64_t calls = 0;; ++calls) {
    device.fail_after(calls);
    if (pool.reserve(demands)) break;
    EXPECT_EQ(pool.stats().pages[0].held, held);
    EXPECT_EQ(engine.verify(a), "");
    EXPECT_EQ(engine.verify(b), "");
    EXPECT_TRUE(sound(pool));
    ASSERT_LT(calls, 100u);
  }
  device.never_fail();
  ASSERT_TRUE(done(engine.write_and_commit(b, counting(60, 5))));
  EXPECT_EQ(engine.verify(b), "");
}

TEST(Planning, ChangesNothing) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::windowed(8), 8 * kSlab));
  SequencePool& pool = engine.pool();
  cached(engine, counting(0, 8));
  const auto ids = create(pool, 2);
  device.reset_counts();
  const auto events = pool.events().written();
  const std::vector<BatchEntry> fits{{ids[0], 8}, {ids[1], 4}}, does_not{{ids[0], 20}, {ids[1], 20}};
  EXPECT_TRUE(done(pool.can_reserve(fits)));
  EXPECT_TRUE(refused(pool.can_reserve(does_not), Code::Exhausted));
  EXPECT_EQ(pool.events().written(), events);
  EXPECT_EQ(device.counts().uploads + device.counts().copies + device.counts().zeroes, 0u);
  EXPECT_EQ(pool.stats().refusals, 0u);
  EXPECT_EQ(pool.stats().pages[0].cached, 2u);
  EXPECT_EQ(pool.stats().pages[0].held, 0u);
  EXPECT_TRUE(done(pool.reserve(fits)));
}

TEST(Planning, SaysWhatReserveWillSay) {
  CountingDevice device;
  for (std::uint32_t slabs = 2; slabs <= 8; ++slabs) {
    for (std::uint32_t x = 0; x <= 20; x += 2) {
      for (std::uint32_t y = 0; y <= 20; y += 5) {
        ToyEngine engine(device, pool_of(ToyModel::windowed(8), slabs * kSlab));
        const auto ids = create(engine.pool(), 2);
        const std::vector<BatchEntry> demands{{ids[0], x}, {ids[1], y}};
        const bool promised = engine.pool().can_reserve(demands).has_value();
        EXPECT_EQ(engine.pool().reserve(demands).has_value(), promised) << slabs << " " << x << " " << y;
        // The answer is right: two pages of group 0 to a slab, one of group 1.
        const std::uint32_t pages = (x + 3) / 4 + (y + 3) / 4;
        EXPECT_EQ(promised, (pages + 1) / 2 + pages <= slabs) << slabs << " " << x << " " << y;
      }
    }
  }
}

// --- what can ever fit

TEST(CanEverFit, CountsAllPagesOfFullAttention) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 4 * kPage));
  const SequencePool& pool = engine.pool();
  EXPECT_TRUE(done(pool.can_ever_fit(16, 1)));
  EXPECT_TRUE(refused_with(pool.can_ever_fit(17, 1), Code::Exhausted, 5 * kPage, 4 * kPage));
  EXPECT_TRUE(done(pool.can_ever_fit(0, 1)));
}

TEST(CanEverFit, RefusesMoreTokensThanASequenceMayHave) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 64 * kPage));
  EXPECT_TRUE(done(engine.pool().can_ever_fit(64, 64)));
  EXPECT_TRUE(refused_with(engine.pool().can_ever_fit(65, 1), Code::TooLong, 65, 64));
}

TEST(CanEverFit, DoesNotDependOnWhatIsInThePoolNow) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 4 * kPage));
  const auto living = written(engine, counting(0, 16));
  EXPECT_TRUE(done(engine.pool().can_ever_fit(16, 1)));
}

TEST(CanEverFit, CountsTheStateBesideThePages) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::hybrid(), 3 * kHybridSlab));
  EXPECT_TRUE(done(engine.pool().can_ever_fit(40, 1)));  // two slabs of five pages, one state
  EXPECT_TRUE(refused(engine.pool().can_ever_fit(41, 1), Code::Exhausted));
}

TEST(CanEverFit, CountsAWindowAndAChunkInsteadOfAllPages) {
  CountingDevice device;
  // 40 tokens: ten pages of group 0 in five slabs; a window of 8 and a token touch at most three blocks.
  ToyEngine enough(device, pool_of(ToyModel::windowed(8), 8 * kSlab));
  EXPECT_TRUE(done(enough.pool().can_ever_fit(40, 1)));
  EXPECT_TRUE(refused(enough.pool().can_ever_fit(40, 12), Code::Exhausted));  // a chunk of 12 touches six
  ToyEngine too_few(device, pool_of(ToyModel::windowed(8), 7 * kSlab));
  EXPECT_TRUE(refused(too_few.pool().can_ever_fit(40, 1), Code::Exhausted));
}

// A sequence that can ever fit is never refused for lack of memory when it is alone, whatever is cached.
TEST(CanEverFit, IsAPromiseForASequenceThatIsAlone) {
  CountingDevice device;
  std::uint32_t promises = 0;
  for (const ToyModel& model : {ToyModel::attention(), ToyModel::windowed(6), ToyModel::recurrent(), ToyModel::hybrid(),
                                ToyModel::everything(7)}) {
    for (std::uint64_t budget = 1024; budget <= 3072; budget += 384) {
      for (const std::uint32_t chunk : {1u, 3u, 8u}) {
        PoolConfig config = pool_of(model, budget);
        config.checkpoint_interval = 4;
        ToyEngine engine(device, config);
        for (std::uint32_t tokens = 5; tokens <= 64; tokens += 7) {
          if (!engine.pool().can_ever_fit(tokens, chunk)) continue;
          ++promises;
          cached(engine, counting(static_cast<Token>(100 * tokens), tokens), 0, chunk);
        }
      }
    }
  }
  EXPECT_GT(promises, 200u);
}

// --- uploads

TEST(Uploads, ANewPageCostsOneEntryAndATokenWithinAPageNothing) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 16 * kPage));
  auto sequence = engine.create({}).value();
  for (std::uint32_t position = 0; position < 32; ++position) {
    device.reset_counts();
    ASSERT_TRUE(done(engine.append(sequence, {static_cast<Token>(position)})));
    EXPECT_EQ(device.counts().uploaded_bytes, position % 4 == 0 ? kEntry : 0u) << position;
    EXPECT_EQ(device.counts().uploads, position % 4 == 0 ? 1u : 0u) << position;
  }
}

TEST(Uploads, APromptCostsItsEntriesInOneUploadForAllGroups) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::windowed(8), 64 * kSlab));
  auto sequence = engine.create(counting(0, 20)).value();
  device.reset_counts();
  ASSERT_TRUE(done(engine.append(sequence, counting(0, 20))));
  EXPECT_EQ(device.counts().uploads, 1u);
  EXPECT_EQ(device.counts().uploaded_bytes, 2 * 5 * kEntry);
}

TEST(Uploads, AHitCostsTheEntriesOfItsBlocks) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 16 * kPage));
  cached(engine, counting(0, 12));
  device.reset_counts();
  auto sequence = engine.create(joined(counting(0, 12), {99})).value();
  EXPECT_EQ(device.counts().uploads, 0u);  // not before a view is asked for
  ASSERT_TRUE(done(engine.pool().kv_view(sequence.id, 0, 0)));
  EXPECT_EQ(device.counts().uploads, 1u);
  EXPECT_EQ(device.counts().uploaded_bytes, 3 * kEntry);
}

TEST(Uploads, AForkCostsItsEntriesAndACopyOnWriteOne) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 16 * kPage));
  const auto parent = written(engine, counting(0, 14));
  device.reset_counts();
  auto child = engine.fork(parent, 14).value();
  ASSERT_TRUE(done(engine.pool().kv_view(child.id, 0, 0)));
  EXPECT_EQ(device.counts().uploaded_bytes, 4 * kEntry);
  device.reset_counts();
  ASSERT_TRUE(done(engine.append(child, {77})));
  EXPECT_EQ(device.counts().uploads, 1u);
  EXPECT_EQ(device.counts().uploaded_bytes, kEntry);
}

TEST(Uploads, ARewindAndAReleaseCostNothing) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 16 * kPage));
  auto sequence = written(engine, counting(0, 14));
  device.reset_counts();
  ASSERT_TRUE(done(engine.rewind(sequence, 8)));
  ASSERT_TRUE(done(engine.pool().release(sequence.id)));
  EXPECT_EQ(device.counts().uploads, 0u);
  EXPECT_EQ(device.counts().copies, 0u);
}

TEST(Uploads, ABlockThatSomebodyElseHadComputedCostsOneEntryWhenItIsNextLookedAt) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 16 * kPage));
  auto a = engine.create({}).value(), b = engine.create({}).value();
  ASSERT_TRUE(done(engine.append(a, counting(0, 8))));
  ASSERT_TRUE(done(engine.append(b, counting(0, 4))));  // and takes a's page for block 0
  device.reset_counts();
  ASSERT_TRUE(done(engine.pool().kv_view(b.id, 0, 0)));
  EXPECT_EQ(device.counts().uploaded_bytes, kEntry);
  ASSERT_TRUE(done(engine.pool().kv_view(b.id, 0, 1)));  // one table for all layers of the group
  EXPECT_EQ(device.counts().uploaded_bytes, kEntry);
}

}  // namespace
}  // namespace quire::testing
