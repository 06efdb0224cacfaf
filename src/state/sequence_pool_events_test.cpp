// SequencePool: the event stream and the statistics.
#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "quire/state/pool_behaviour_testing.h"

namespace quire::testing {
namespace {

using Kind = PoolEvent::Kind;

constexpr std::uint64_t kPage = 128;        // attention toy (block size 4)
constexpr std::uint64_t kHybridSlab = 320;  // hybrid toy: five pages, or one state
constexpr std::uint32_t kStates = 1;        // hybrid toy: the class of states

std::vector<Kind> kinds(const std::vector<PoolEvent>& events) {
  std::vector<Kind> result;
  for (const PoolEvent& event : events) result.push_back(event.kind);
  return result;
}

TEST(PoolEvents, TellTheLifeOfAnAttentionSequenceInOrder) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 8 * kPage));
  SequencePool& pool = engine.pool();
  const SequenceId id = pool.create({}).value().id;
  EXPECT_EQ(kinds(events_since(pool, 0)), (std::vector{Kind::SequenceCreated}));
  std::uint64_t cursor = pool.events().written();

  ASSERT_TRUE(done(pool.reserve(id, 5)));
  EXPECT_EQ(kinds(events_since(pool, cursor)), (std::vector{Kind::SlabTaken, Kind::PageTaken, Kind::PageTaken}));
  const auto pages = pages_of(pool, id);
  EXPECT_EQ(events_since(pool, cursor)[1].object, pages[0].index);
  EXPECT_EQ(events_since(pool, cursor)[2].object, pages[1].index);
  cursor = pool.events().written();

  ASSERT_TRUE(done(pool.commit(id, counting(0, 5))));
  ASSERT_EQ(kinds(events_since(pool, cursor)), (std::vector{Kind::PagePublished}));
  EXPECT_EQ(events_since(pool, cursor)[0].object, pages[0].index);
  EXPECT_EQ(events_since(pool, cursor)[0].detail, 0u);  // block
  cursor = pool.events().written();

  ASSERT_TRUE(done(pool.release(id)));
  EXPECT_EQ(kinds(events_since(pool, cursor)),
            (std::vector{Kind::PageFreed, Kind::PageCached, Kind::SequenceReleased}));
  EXPECT_EQ(events_since(pool, cursor)[0].object, pages[1].index);
  EXPECT_EQ(events_since(pool, cursor)[1].object, pages[0].index);
  EXPECT_EQ(events_since(pool, cursor)[2].object, id.index);
}

TEST(PoolEvents, TellOfAHitAndOfPagesHeldAgain) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 8 * kPage));
  SequencePool& pool = engine.pool();
  cached(engine, counting(0, 8));
  std::uint64_t cursor = pool.events().written();
  const auto a = engine.create(counting(0, 9)).value();
  EXPECT_EQ(only(events_since(pool, cursor), Kind::PageRevived).size(), 2u);
  ASSERT_EQ(only(events_since(pool, cursor), Kind::SequenceCreated).size(), 1u);
  EXPECT_EQ(only(events_since(pool, cursor), Kind::SequenceCreated)[0].detail, 8u);  // tokens reused
  cursor = pool.events().written();
  const auto b = engine.create(counting(0, 9)).value();
  const auto shared = only(events_since(pool, cursor), Kind::PageShared);
  ASSERT_EQ(shared.size(), 2u);
  EXPECT_EQ(shared[0].detail, 2u);  // holders now
}

TEST(PoolEvents, TellOfForkCopyAndRewind) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 8 * kPage));
  SequencePool& pool = engine.pool();
  const auto parent = written(engine, counting(0, 6));
  std::uint64_t cursor = pool.events().written();
  auto child = engine.fork(parent, 6).value();
  const auto forked = only(events_since(pool, cursor), Kind::SequenceForked);
  ASSERT_EQ(forked.size(), 1u);
  EXPECT_EQ(forked[0].object, child.id.index);
  EXPECT_EQ(forked[0].detail, parent.id.index);
  cursor = pool.events().written();
  ASSERT_TRUE(done(engine.append(child, {77})));
  const auto copied = only(events_since(pool, cursor), Kind::PageCopied);
  ASSERT_EQ(copied.size(), 1u);
  EXPECT_EQ(copied[0].object, pages_of(pool, parent.id)[1].index);
  EXPECT_EQ(copied[0].detail, pages_of(pool, child.id)[1].index);
  cursor = pool.events().written();
  ASSERT_TRUE(done(engine.rewind(child, 4)));
  const auto rewound = only(events_since(pool, cursor), Kind::SequenceRewound);
  ASSERT_EQ(rewound.size(), 1u);
  EXPECT_EQ(rewound[0].object, child.id.index);
  EXPECT_EQ(rewound[0].detail, 4u);
}

TEST(PoolEvents, TellOfEveryEviction) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 2 * kPage));
  SequencePool& pool = engine.pool();
  cached(engine, counting(0, 8));
  const SequenceId id = pool.create({}).value().id;
  const std::uint64_t cursor = pool.events().written();
  ASSERT_TRUE(done(pool.reserve(id, 8)));
  EXPECT_EQ(only(events_since(pool, cursor), Kind::PageEvicted).size(), 2u);
  EXPECT_EQ(pool.stats().blocks_evicted, 2u);
}

TEST(PoolEvents, TellTheLifeOfAHybridsState) {
  CountingDevice device;
  PoolConfig config = pool_of(ToyModel::hybrid(), 16 * kHybridSlab);
  config.checkpoint_interval = 4;
  ToyEngine engine(device, config);
  SequencePool& pool = engine.pool();
  const SequenceId id = pool.create({.request = 42}).value().id;
  const std::uint32_t slot = pool.slot(id)->index;
  const auto taken = only(events_since(pool, 0), Kind::SlotTaken);
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_EQ(taken[0].group, kStates);
  EXPECT_EQ(taken[0].object, slot);
  EXPECT_EQ(taken[0].detail, 42u);

  ASSERT_TRUE(done(pool.reserve(id, 8)));
  ASSERT_TRUE(done(pool.commit(id, counting(0, 4))));
  const auto stored = only(events_since(pool, 0), Kind::CheckpointStored);
  ASSERT_EQ(stored.size(), 1u);
  EXPECT_EQ(stored[0].detail, 4u);
  EXPECT_NE(stored[0].object, slot);

  ASSERT_TRUE(done(pool.release(id)));
  const auto released = only(events_since(pool, 0), Kind::SlotReleased);
  ASSERT_EQ(released.size(), 1u);
  EXPECT_EQ(released[0].object, slot);

  const SequenceId again = pool.create({.prompt = counting(0, 5)}).value().id;
  const auto restored = only(events_since(pool, 0), Kind::CheckpointRestored);
  ASSERT_EQ(restored.size(), 1u);
  EXPECT_EQ(restored[0].object, stored[0].object);
  EXPECT_EQ(restored[0].detail, pool.slot(again)->index);

  ASSERT_TRUE(done(pool.release(again)));
  pool.drop_cache();
  const auto dropped = only(events_since(pool, 0), Kind::CheckpointDropped);
  ASSERT_EQ(dropped.size(), 1u);
  EXPECT_EQ(dropped[0].object, stored[0].object);
}

TEST(PoolEvents, TellOfPlainSlotsToo) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::hybrid(), 16 * kHybridSlab));
  SequencePool& pool = engine.pool();
  const SlotId slot = pool.alloc_ssm(42).value();
  ASSERT_TRUE(done(pool.release_ssm(slot)));
  EXPECT_EQ(only(events_since(pool, 0), Kind::SlotTaken).size(), 1u);
  EXPECT_EQ(only(events_since(pool, 0), Kind::SlotReleased).size(), 1u);
}

TEST(PoolEvents, NoPageEventIsAboutAState) {
  CountingDevice device;
  PoolConfig config = pool_of(ToyModel::recurrent(), 4096);
  config.checkpoint_interval = 4;
  ToyEngine engine(device, config);
  cached(engine, counting(0, 8), 0, 4);
  engine.pool().drop_cache();
  for (const Kind kind : {Kind::PageTaken, Kind::PageFreed, Kind::PageCached, Kind::PageEvicted}) {
    EXPECT_TRUE(only(events_since(engine.pool(), 0), kind).empty());  // the model has no pages at all
  }
}

TEST(PoolEvents, ALogOfNoCapacityOnlyCounts) {
  CountingDevice device;
  PoolConfig config = pool_of(ToyModel::attention(), 8 * kPage);
  config.event_capacity = 0;
  ToyEngine engine(device, config);
  cached(engine, counting(0, 8));
  EXPECT_GT(engine.pool().events().written(), 0u);
  std::array<PoolEvent, 4> out;
  EXPECT_EQ(engine.pool().events().read(0, out).count, 0u);
}

TEST(PoolEvents, ASlowReaderIsToldWhatItLost) {
  CountingDevice device;
  PoolConfig config = pool_of(ToyModel::attention(), 8 * kPage);
  config.event_capacity = 4;
  ToyEngine engine(device, config);
  for (Token t = 0; t < 10; ++t) cached(engine, counting(100 * t, 8));
  std::array<PoolEvent, 16> out;
  const auto read = engine.pool().events().read(0, out);
  EXPECT_EQ(read.count, 4u);
  EXPECT_EQ(read.lost, engine.pool().events().written() - 4);
}

// --- statistics

TEST(PoolStatistics, FreeHeldAndCachedAddUpInEveryClass) {
  CountingDevice device;
  for (const ToyModel& model : {ToyModel::attention(), ToyModel::windowed(6), ToyModel::recurrent(), ToyModel::hybrid(),
                                ToyModel::everything(6)}) {
    PoolConfig config = pool_of(model, 48 * 384);
    config.checkpoint_interval = 4;
    ToyEngine engine(device, config);
    const auto add_up = [&] {
      const PoolStats stats = engine.pool().stats();
      std::uint64_t used = 0;
      for (const ObjectCounts& pages : stats.pages) {
        EXPECT_EQ(pages.free + pages.held + pages.cached, pages.total);
        used += (pages.held + pages.cached) * pages.object_bytes;
      }
      EXPECT_EQ(stats.states.free + stats.states.held + stats.states.cached, stats.states.total);
      used += (stats.states.held + stats.states.cached) * stats.states.object_bytes;
      EXPECT_LE(used, stats.arena_bytes);
      EXPECT_LE(stats.arena_bytes, config.budget_bytes);
    };
    add_up();
    const auto a = written(engine, counting(0, 22), 0, 4);
    add_up();
    const auto b = engine.fork(a, 22).value();
    add_up();
    ASSERT_TRUE(done(engine.pool().release(a.id)));
    ASSERT_TRUE(done(engine.pool().release(b.id)));
    add_up();
    engine.pool().drop_cache();
    add_up();
  }
}

TEST(PoolStatistics, CountLookupsAndTheTokensThatWereHit) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 16 * kPage));
  SequencePool& pool = engine.pool();
  cached(engine, counting(0, 10));
  EXPECT_EQ(pool.stats().lookups, 1u);
  EXPECT_EQ(pool.stats().lookup_tokens, 10u);
  EXPECT_EQ(pool.stats().hit_tokens, 0u);
  (void)pool.create({.prompt = joined(counting(0, 8), counting(50, 5))});
  EXPECT_EQ(pool.stats().lookups, 2u);
  EXPECT_EQ(pool.stats().lookup_tokens, 23u);
  EXPECT_EQ(pool.stats().hit_tokens, 8u);
  (void)pool.lookup(counting(0, 10));  // lookup() is not counted
  EXPECT_EQ(pool.stats().lookups, 2u);
}

// Each reason for a miss, in a situation with that reason and no other.
TEST(PoolStatistics, CountEachMissUnderItsReason) {
  CountingDevice device;
  const auto ends = [](const SequencePool& pool, HitEnd end) {
    return pool.stats().hit_ends[static_cast<std::size_t>(end)];
  };
  {
    ToyEngine engine(device, pool_of(ToyModel::attention(), 4 * kPage));
    SequencePool& pool = engine.pool();
    const auto create = [&](const std::vector<Token>& prompt, Namespace name_space = 0, bool reuse = true) {
      const auto created = pool.create({.prompt = prompt, .name_space = name_space, .reuse = reuse}).value();
      ASSERT_TRUE(done(pool.release(created.id)));
    };
    create(counting(0, 9));
    EXPECT_EQ(ends(pool, HitEnd::NeverSeen), 1u);
    cached(engine, counting(0, 8));
    EXPECT_EQ(ends(pool, HitEnd::NeverSeen), 2u);
    create(counting(0, 9));
    EXPECT_EQ(ends(pool, HitEnd::Complete), 1u);
    create(joined(counting(0, 8), counting(50, 5)));  // two blocks, then nothing
    EXPECT_EQ(ends(pool, HitEnd::NeverSeen), 3u);
    create(counting(0, 9), 5);
    EXPECT_EQ(ends(pool, HitEnd::OtherNamespace), 1u);
    create(counting(0, 9), 0, false);
    EXPECT_EQ(ends(pool, HitEnd::Disabled), 1u);
    cached(engine, counting(100, 16));  // needs all four pages
    create(counting(0, 9));
    EXPECT_EQ(ends(pool, HitEnd::Evicted), 1u);
    EXPECT_EQ(ends(pool, HitEnd::NoCheckpoint), 0u);
    EXPECT_EQ(ends(pool, HitEnd::WindowGone), 0u);
  }
  {
    PoolConfig config = pool_of(ToyModel::hybrid(), 16 * kHybridSlab);
    config.checkpoint_interval = 64;
    ToyEngine engine(device, config);
    const auto living = written(engine, counting(0, 8));
    (void)engine.pool().create({.prompt = counting(0, 9)});
    EXPECT_EQ(ends(engine.pool(), HitEnd::NoCheckpoint), 1u);
  }
  {
    ToyEngine engine(device, pool_of(ToyModel::windowed(8), 16 * kPage));
    SequencePool& pool = engine.pool();
    cached(engine, counting(0, 32));
    for (int i = 0; i < 8; ++i) ASSERT_TRUE(done(pool.alloc_kv(1)));  // four free slabs, then blocks 0 to 3
    EXPECT_EQ(pool.stats().window_pages_evicted, 4u);
    (void)pool.create({.prompt = joined(counting(0, 16), counting(90, 4))});
    EXPECT_EQ(ends(pool, HitEnd::WindowGone), 1u);
  }
}

TEST(PoolStatistics, EveryReasonHasAName) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < kHitEnds; ++i) {
    const std::string reason = name(static_cast<HitEnd>(i));
    EXPECT_NE(reason, "?");
    EXPECT_EQ(std::count(names.begin(), names.end(), reason), 0);
    names.push_back(reason);
  }
}

TEST(PoolStatistics, CountPublishedDeduplicatedCopiedAndEvictedPages) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 4 * kPage));
  SequencePool& pool = engine.pool();
  auto a = engine.create({}).value(), b = engine.create({}).value();
  ASSERT_TRUE(done(engine.append(a, counting(0, 4))));
  ASSERT_TRUE(done(engine.append(b, counting(0, 4))));
  EXPECT_EQ(pool.stats().blocks_published, 1u);
  EXPECT_EQ(pool.stats().blocks_deduplicated, 1u);
  EXPECT_EQ(pool.stats().prefix_blocks, 1u);
  ASSERT_TRUE(done(engine.rewind(b, 2)));
  ASSERT_TRUE(done(engine.append(b, {70})));
  EXPECT_EQ(pool.stats().pages_copied, 1u);
  EXPECT_EQ(pool.stats().rewinds, 1u);
  ASSERT_TRUE(done(pool.release(a.id)));
  ASSERT_TRUE(done(pool.release(b.id)));
  cached(engine, counting(100, 16));
  EXPECT_EQ(pool.stats().blocks_evicted, 1u);
  EXPECT_EQ(pool.stats().blocks_published, 5u);
}

TEST(PoolStatistics, RememberTheHighWaterMarks) {
  CountingDevice device;
  PoolConfig config = pool_of(ToyModel::hybrid(), 32 * kHybridSlab);
  config.prefix_cache = false;
  ToyEngine engine(device, config);
  SequencePool& pool = engine.pool();
  std::vector<SequenceId> ids;
  for (Token t = 0; t < 3; ++t) ids.push_back(written(engine, counting(100 * t, 10)).id);
  for (const SequenceId id : ids) ASSERT_TRUE(done(pool.release(id)));
  (void)written(engine, counting(0, 4));
  const PoolStats stats = pool.stats();
  EXPECT_EQ(stats.sequences, 1u);
  EXPECT_EQ(stats.sequences_high_water, 3u);
  EXPECT_EQ(stats.pages[0].held, 1u);
  EXPECT_EQ(stats.pages[0].high_water, 9u);
  EXPECT_EQ(stats.pages[0].allocations, 10u);
  EXPECT_EQ(stats.states.held, 1u);
  EXPECT_EQ(stats.states.high_water, 3u);
  EXPECT_EQ(stats.states.allocations, 4u);
}

TEST(PoolStatistics, CountRefusalsForLackOfMemory) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::hybrid(), 2 * kHybridSlab));
  SequencePool& pool = engine.pool();
  const SequenceId id = pool.create({}).value().id;
  EXPECT_TRUE(refused(pool.reserve(id, 24), Code::Exhausted));  // six pages: two slabs, one is there
  EXPECT_EQ(pool.stats().refusals, 1u);
  ASSERT_TRUE(done(pool.reserve(id, 20)));
  EXPECT_TRUE(refused(pool.create({}), Code::Exhausted));
  EXPECT_EQ(pool.stats().refusals, 2u);
  EXPECT_TRUE(refused(pool.fork(id, 0), Code::Exhausted));
  EXPECT_EQ(pool.stats().refusals, 3u);
}

TEST(PoolStatistics, CountRefusalsOfPlainPagesAndStates) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::hybrid(), 2 * kHybridSlab));
  SequencePool& pool = engine.pool();
  while (pool.alloc_ssm(1)) {
  }
  EXPECT_EQ(pool.stats().refusals, 1u);
  EXPECT_TRUE(refused(pool.alloc_kv(), Code::Exhausted));
  EXPECT_EQ(pool.stats().refusals, 2u);
  EXPECT_TRUE(refused(pool.alloc_kv(7), Code::InvalidSlot));  // nothing was short
  EXPECT_TRUE(refused(pool.alloc_ssm(0), Code::InvalidArgument));
  EXPECT_EQ(pool.stats().refusals, 2u);
}

TEST(PoolStatistics, CountRefusalsForLackOfASequence) {
  CountingDevice device;
  PoolConfig config = pool_of(ToyModel::attention(), 4096);
  config.max_sequences = 1;
  ToyEngine engine(device, config);
  SequencePool& pool = engine.pool();
  const SequenceId id = pool.create({}).value().id;
  EXPECT_TRUE(refused(pool.create({}), Code::Exhausted));
  EXPECT_EQ(pool.stats().refusals, 1u);
  EXPECT_TRUE(refused(pool.fork(id, 0), Code::Exhausted));
  EXPECT_EQ(pool.stats().refusals, 2u);
  EXPECT_TRUE(refused(pool.fork(id, 1), Code::NotWritten));  // invalid, however much room there is
  EXPECT_EQ(pool.stats().refusals, 2u);
}

TEST(PoolStatistics, CountObjectsThatWereMovedToEmptyASlab) {
  CountingDevice device;
  PoolConfig config = pool_of(ToyModel::hybrid(), 6 * kHybridSlab);
  config.prefix_cache = false;
  ToyEngine engine(device, config);
  SequencePool& pool = engine.pool();
  // Two slabs of five pages each, then only two pages left in each.
  const auto a = written(engine, counting(0, 8)), c = written(engine, counting(100, 12));
  const auto b = written(engine, counting(200, 8)), d = written(engine, counting(300, 12));
  ASSERT_EQ(pool.stats().free_slabs, 0u);
  ASSERT_TRUE(done(pool.release(c.id)));
  ASSERT_TRUE(done(pool.release(d.id)));
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(done(pool.create({})));
  EXPECT_EQ(pool.stats().objects_moved, 0u);
  ASSERT_TRUE(done(pool.create({})));  // four pages fit into one slab, so the state has the other
  EXPECT_EQ(pool.stats().objects_moved, 2u);
  EXPECT_EQ(only(events_since(pool, 0), Kind::PageMoved).size(), 2u);
  EXPECT_EQ(engine.verify(a), "");
  EXPECT_EQ(engine.verify(b), "");
  EXPECT_TRUE(sound(pool));
}

}  // namespace
}  // namespace quire::testing
