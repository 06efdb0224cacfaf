// SequencePool: suspend and resume.
#include <vector>

#include <gtest/gtest.h>

#include "quire/state/pool_behaviour_testing.h"

namespace quire::testing {
namespace {

constexpr std::uint64_t kPage = 128;  // attention, block size 4

struct Kind {
  const char* name;
  ToyModel model;
};
class SuspendedSequences : public ::testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Models, SuspendedSequences,
                         ::testing::Values(Kind{"Attention", ToyModel::attention()},
                                           Kind{"Windowed", ToyModel::windowed(7)},
                                           Kind{"Recurrent", ToyModel::recurrent()}, Kind{"Hybrid", ToyModel::hybrid()},
                                           Kind{"Everything", ToyModel::everything(7)}),
                         [](const auto& kind) { return std::string(kind.param.name); });

// The bytes of the recurrent state, and of the pages of `blocks` blocks in every group.
std::uint64_t bytes_of(const StateLayout& layout, std::uint64_t blocks) {
  std::uint64_t bytes = layout.has_recurrent() ? layout.recurrent.bytes() : 0;
  for (const PageShape& shape : layout.groups) bytes += blocks * shape.page_bytes();
  return bytes;
}

TEST_P(SuspendedSequences, ComeBackWithEveryByteAfterAllWasForgotten) {
  for (const std::uint32_t length : {0u, 1u, 4u, 13u, 30u}) {
    CountingDevice device;
    ToyEngine engine(device, pool_of(GetParam().model, 1 << 16));
    SequencePool& pool = engine.pool();
    const auto arena = pool.create_host_arena(1 << 14).value();
    auto sequence = written(engine, counting(0, length));
    const std::uint64_t promised = pool.holding(sequence.id)->saved_bytes;
    auto suspended = pool.suspend(sequence.id, *arena);
    ASSERT_TRUE(done(suspended));
    EXPECT_EQ(suspended->bytes, promised);
    EXPECT_GE(arena->used_bytes(), promised);
    EXPECT_TRUE(refused(pool.length(sequence.id), Code::InvalidSequence)) << "suspending releases it";
    EXPECT_EQ(pool.stats().sequences, 0u);
    pool.drop_cache();
    cached(engine, counting(100, 40));  // others overwrite its pages
    ASSERT_TRUE(done(pool.can_resume(*suspended, sequence.tokens, 3, 1, {})));
    const auto id = pool.resume(*suspended, sequence.tokens);
    ASSERT_TRUE(done(id));
    suspended = std::unexpected(PoolError{});
    EXPECT_EQ(arena->used_bytes(), 0u);
    sequence.id = *id;
    EXPECT_EQ(engine.verify(sequence), "");
    ASSERT_TRUE(done(engine.append(sequence, {7, 8, 9})));
    EXPECT_EQ(engine.verify(sequence), "");
    EXPECT_TRUE(sound(pool));
    EXPECT_TRUE(refused(pool.suspend(SequenceId{}, *arena), Code::InvalidSequence));
  }
}

TEST_P(SuspendedSequences, CopyOnlyWhatNobodyElseHolds) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(GetParam().model, 1 << 16));
  SequencePool& pool = engine.pool();
  const auto arena = pool.create_host_arena(1 << 14).value();
  auto stays = written(engine, counting(0, 16));
  auto leaves = engine.fork(stays, 16).value();
  ASSERT_TRUE(done(engine.append(leaves, counting(50, 2))));
  EXPECT_EQ(pool.holding(leaves.id)->saved_bytes, bytes_of(pool.layout(), 1));
  device.reset_counts();
  const auto suspended = pool.suspend(leaves.id, *arena);
  ASSERT_TRUE(done(suspended));
  EXPECT_EQ(suspended->bytes, bytes_of(pool.layout(), 1));
  EXPECT_EQ(engine.verify(stays), "");
  EXPECT_TRUE(sound(pool));
  device.reset_counts();
  leaves.id = pool.resume(*suspended, leaves.tokens).value();
  EXPECT_EQ(device.counts().uploaded_bytes, bytes_of(pool.layout(), 1));
  EXPECT_EQ(engine.verify(leaves), "");
  EXPECT_EQ(engine.verify(stays), "");
  EXPECT_TRUE(sound(pool));
}

TEST_P(SuspendedSequences, WhoseSharedPagesAreStillCachedComeBackAfterTheOthersHaveEnded) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(GetParam().model, 1 << 16));
  SequencePool& pool = engine.pool();
  const auto arena = pool.create_host_arena(1 << 14).value();
  auto stays = written(engine, counting(0, 16));
  auto leaves = engine.fork(stays, 16).value();
  ASSERT_TRUE(done(engine.append(leaves, counting(50, 2))));
  ASSERT_TRUE(done(engine.append(stays, counting(90, 1))));
  const auto suspended = pool.suspend(leaves.id, *arena);
  ASSERT_TRUE(done(suspended));
  ASSERT_TRUE(done(pool.release(stays.id)));
  const auto id = pool.resume(*suspended, leaves.tokens);
  if (!id) {
    // Without a checkpoint at its end, a cached path of a recurrent model is useless and is evicted at once.
    EXPECT_TRUE(refused(id, Code::PrefixGone));
    EXPECT_TRUE(pool.is_hybrid());
    return;
  }
  leaves.id = *id;
  EXPECT_EQ(engine.verify(leaves), "");
  EXPECT_TRUE(sound(pool));
}

TEST_P(SuspendedSequences, WhoseSharedPagesWereEvictedAreRefusedAndNothingChanges) {
  if (!GetParam().model.layout().has_attention()) return;
  CountingDevice device;
  ToyEngine engine(device, pool_of(GetParam().model, 1 << 16));
  SequencePool& pool = engine.pool();
  const auto arena = pool.create_host_arena(1 << 14).value();
  const auto stays = written(engine, counting(0, 16));
  auto leaves = engine.fork(stays, 16).value();
  ASSERT_TRUE(done(engine.append(leaves, counting(50, 2))));
  const auto suspended = pool.suspend(leaves.id, *arena);
  ASSERT_TRUE(done(pool.release(stays.id)));
  pool.drop_cache();
  EXPECT_TRUE(refused(pool.can_resume(*suspended, leaves.tokens, 0, 1, {}), Code::PrefixGone));
  EXPECT_TRUE(refused(pool.resume(*suspended, leaves.tokens), Code::PrefixGone));
  const PoolStats stats = pool.stats();
  EXPECT_EQ(stats.sequences + stats.prefix_blocks + stats.refusals, 0u);
  EXPECT_EQ(stats.free_slabs, stats.slabs);
  // Somebody computes the prefix again: now it can be resumed.
  const auto again = written(engine, counting(0, 16));
  leaves.id = pool.resume(*suspended, leaves.tokens).value();
  EXPECT_EQ(engine.verify(leaves), "");
  EXPECT_EQ(engine.verify(again), "");
  EXPECT_TRUE(sound(pool));
}

TEST_P(SuspendedSequences, AreRefusedWithOtherTokensOrByAnotherPool) {
  CountingDevice device;
  PoolConfig mine = pool_of(GetParam().model, 1 << 16), theirs = mine;
  theirs.model.words[0] = 9;
  ToyEngine engine(device, mine), stranger(device, theirs);
  SequencePool& pool = engine.pool();
  const auto arena = pool.create_host_arena(1 << 14).value();
  auto sequence = written(engine, counting(0, 13));
  const auto suspended = pool.suspend(sequence.id, *arena);
  EXPECT_TRUE(refused(stranger.pool().resume(*suspended, sequence.tokens), Code::Incompatible));
  auto other = sequence.tokens;
  other[3] ^= 1;
  EXPECT_TRUE(refused(pool.resume(*suspended, other), Code::InvalidArgument));
  EXPECT_TRUE(refused(pool.can_resume(*suspended, other, 0, 1, {}), Code::InvalidArgument));
  EXPECT_TRUE(refused(pool.resume(*suspended, std::span(other).first(12)), Code::InvalidArgument));
  EXPECT_TRUE(refused(pool.can_resume(*suspended, sequence.tokens, 52, 1, {}), Code::TooLong));
  sequence.id = pool.resume(*suspended, sequence.tokens).value();
  EXPECT_EQ(engine.verify(sequence), "");
}

TEST_P(SuspendedSequences, StayAliveIfTheArenaIsTooFull) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(GetParam().model, 1 << 16));
  SequencePool& pool = engine.pool();
  auto sequence = written(engine, counting(0, 13));
  const std::uint64_t bytes = pool.holding(sequence.id)->saved_bytes;
  const auto small = pool.create_host_arena(bytes - 1).value(), none = pool.create_host_arena(0).value();
  for (HostArena* arena : {small.get(), none.get()}) {
    EXPECT_TRUE(refused(pool.suspend(sequence.id, *arena), Code::Exhausted));
    EXPECT_EQ(arena->used_bytes(), 0u);
  }
  EXPECT_EQ(pool.stats().refusals, 2u);
  EXPECT_EQ(engine.verify(sequence), "");
  EXPECT_TRUE(sound(pool));
}

// The device fails at each call of a suspension and of a resumption in turn.
TEST_P(SuspendedSequences, AreAsTheyWereAfterADeviceFailure) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(GetParam().model, 1 << 16));
  SequencePool& pool = engine.pool();
  const auto arena = pool.create_host_arena(1 << 14).value();
  auto stays = written(engine, counting(0, 9));
  auto sequence = engine.fork(stays, 9).value();
  ASSERT_TRUE(done(engine.append(sequence, counting(40, 9))));
  ASSERT_TRUE(done(device.fence()));
  PoolResult<SuspendedSequence> suspended = std::unexpected(PoolError{});
  std::uint64_t failures = 0;
  for (;; ++failures) {
    device.fail_after(failures);
    suspended = pool.suspend(sequence.id, *arena);
    device.never_fail();
    if (suspended) break;
    EXPECT_EQ(arena->used_bytes(), 0u);
    EXPECT_EQ(engine.verify(sequence), "");
    ASSERT_TRUE(sound(pool));
  }
  EXPECT_GT(failures, 1u);
  for (failures = 0;; ++failures) {
    device.fail_after(failures);
    const auto id = pool.resume(*suspended, sequence.tokens);
    device.never_fail();
    if (id) sequence.id = *id;
    if (id) break;
    EXPECT_EQ(pool.stats().sequences, 1u);
    EXPECT_EQ(engine.verify(stays), "");
    ASSERT_TRUE(sound(pool));
  }
  EXPECT_GT(failures, 1u);
  EXPECT_EQ(engine.verify(sequence), "");
}

// Work that fails later is reported by the fence, before anything depends on it.
TEST_P(SuspendedSequences, AreNeitherSuspendedNorResumedWhenTheFenceFails) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(GetParam().model, 1 << 16));
  SequencePool& pool = engine.pool();
  const auto arena = pool.create_host_arena(1 << 14).value();
  auto sequence = written(engine, counting(0, 13));
  ASSERT_TRUE(done(device.fence()));
  device.fail_work_after(0);
  EXPECT_TRUE(refused(pool.suspend(sequence.id, *arena), Code::WorkFailed));
  EXPECT_EQ(arena->used_bytes(), 0u);
  const auto suspended = pool.suspend(sequence.id, *arena);
  ASSERT_TRUE(done(suspended));
  pool.drop_cache();
  ASSERT_TRUE(done(device.fence()));
  device.fail_work_after(0);
  EXPECT_TRUE(refused(pool.resume(*suspended, sequence.tokens), Code::WorkFailed));
  EXPECT_EQ(pool.stats().prefix_blocks, 0u) << "nothing void is published";
  EXPECT_EQ(pool.stats().free_slabs, pool.stats().slabs);
  sequence.id = pool.resume(*suspended, sequence.tokens).value();
  EXPECT_EQ(engine.verify(sequence), "");
}

// A page that a fork is filling is shared, but the index does not know it. It could not be found again.
TEST(SuspendedSequences, CopyASharedPageThatTheIndexDoesNotKnow) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 16 * kPage));
  SequencePool& pool = engine.pool();
  const auto arena = pool.create_host_arena(1 << 12).value();
  const auto stays = written(engine, counting(0, 14));
  auto leaves = engine.fork(stays, 14).value();
  const auto suspended = pool.suspend(leaves.id, *arena);
  EXPECT_EQ(suspended->bytes, kPage);
  ASSERT_TRUE(done(pool.release(stays.id)));
  leaves.id = pool.resume(*suspended, leaves.tokens).value();
  EXPECT_EQ(engine.verify(leaves), "");

  PoolConfig without = pool_of(ToyModel::attention(), 16 * kPage);
  without.prefix_cache = false;
  ToyEngine plain(device, without);
  const auto parent = written(plain, counting(0, 14));
  auto child = plain.fork(parent, 14).value();
  const auto copy = plain.pool().suspend(child.id, *arena);
  EXPECT_EQ(copy->bytes, 4 * kPage);
  child.id = plain.pool().resume(*copy, child.tokens).value();
  EXPECT_EQ(plain.verify(child), "");
}

// Another sequence shares only the first tokens of a page. It holds the page, but not the block in the index.
TEST(SuspendedSequences, CopyAPageOfWhichOthersShareOnlyAPart) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 16 * kPage));
  SequencePool& pool = engine.pool();
  const auto arena = pool.create_host_arena(1 << 12).value();
  auto leaves = written(engine, counting(0, 8));
  const auto partial = engine.create({0, 1, 2, 3, 4, 5, 99}).value();
  ASSERT_EQ(partial.tokens.size(), 6u);
  const auto suspended = pool.suspend(leaves.id, *arena);
  EXPECT_EQ(suspended->bytes, kPage) << "the first page stays, the second does not";
  pool.drop_cache();
  leaves.id = pool.resume(*suspended, leaves.tokens).value();
  EXPECT_EQ(engine.verify(leaves), "");
  EXPECT_TRUE(sound(pool));
}

// In a window group, the pages that others hold may lie between those that nobody else holds, and the index may have
// lost a page of a block that others still hold.
TEST(SuspendedSequences, MixPagesOfTheIndexAndOfTheArena) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::windowed(9), 1 << 16));
  SequencePool& pool = engine.pool();
  const auto arena = pool.create_host_arena(1 << 14).value();
  auto stays = written(engine, counting(0, 16));
  auto leaves = engine.fork(stays, 16).value();
  ASSERT_TRUE(done(engine.append(leaves, counting(50, 2))));  // its window has blocks 2 to 4
  ASSERT_TRUE(done(engine.append(stays, counting(80, 5))));   // its window begins in block 3
  const auto suspended = pool.suspend(leaves.id, *arena);
  const auto& groups = pool.layout().groups;
  const std::uint64_t window_page = groups[groups[0].window != 0 ? 0 : 1].page_bytes();
  EXPECT_EQ(suspended->bytes, bytes_of(pool.layout(), 1) + window_page);
  pool.drop_cache();  // evicts the window page of block 2
  leaves.id = pool.resume(*suspended, leaves.tokens).value();
  EXPECT_EQ(engine.verify(leaves), "");
  EXPECT_EQ(engine.verify(stays), "");
  EXPECT_TRUE(sound(pool));
}

TEST(SuspendedSequences, AreRefusedWholeWhereThereIsNoRoom) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 8 * kPage));
  SequencePool& pool = engine.pool();
  const auto arena = pool.create_host_arena(1 << 12).value();
  auto sequence = written(engine, counting(0, 16));
  const auto suspended = pool.suspend(sequence.id, *arena);
  pool.drop_cache();
  const auto other = written(engine, counting(50, 16));
  const BatchEntry more{other.id, 1};
  EXPECT_TRUE(done(pool.can_resume(*suspended, sequence.tokens, 0, 1, {})));
  EXPECT_TRUE(refused(pool.can_resume(*suspended, sequence.tokens, 1, 1, {}), Code::Exhausted));
  EXPECT_TRUE(refused(pool.can_resume(*suspended, sequence.tokens, 0, 1, std::span(&more, 1)), Code::Exhausted));
  ASSERT_TRUE(done(pool.reserve(other.id, 1)));
  EXPECT_TRUE(refused(pool.resume(*suspended, sequence.tokens), Code::Exhausted));
  EXPECT_EQ(pool.stats().pages[0].held, 5u);
  ASSERT_TRUE(done(pool.release(other.id)));
  sequence.id = pool.resume(*suspended, sequence.tokens).value();
  EXPECT_EQ(engine.verify(sequence), "");
  EXPECT_TRUE(sound(pool));
}

TEST(Holding, SaysWhatASuspensionCopiesWhatGoesBackAndWhatOthersShare) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 16 * kPage));
  SequencePool& pool = engine.pool();
  const auto parent = written(engine, counting(0, 10));
  auto holding = pool.holding(parent.id).value();
  EXPECT_EQ(holding.saved_bytes, 3 * kPage);
  EXPECT_EQ(holding.own_bytes, 3 * kPage);
  EXPECT_EQ(holding.shared_tokens, 0u);
  auto child = engine.fork(parent, 10).value();
  ASSERT_TRUE(done(engine.append(child, counting(70, 5))));
  holding = pool.holding(child.id).value();
  EXPECT_EQ(holding.saved_bytes, 2 * kPage);
  EXPECT_EQ(holding.own_bytes, 2 * kPage);
  EXPECT_EQ(holding.shared_tokens, 8u);
}

}  // namespace
}  // namespace quire::testing
