// SequencePool: a fork shares pages, a rewind gives them back, and a shared page is copied before it is written.
#include <vector>

#include <gtest/gtest.h>

#include "quire/state/pool_behaviour_testing.h"

namespace quire::testing {
namespace {

// Bytes of the toy models' objects (block size 4).
constexpr std::uint64_t kPage = 128;         // attention
constexpr std::uint64_t kState = 384;        // recurrent
constexpr std::uint64_t kHybridState = 320;  // hybrid; its pages have 64

PoolConfig with_checkpoints(PoolConfig config, std::uint32_t interval) {
  config.checkpoint_interval = interval;
  return config;
}

// --- fork

TEST(Fork, SharesAllPagesAndCopiesNothing) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 16 * kPage));
  SequencePool& pool = engine.pool();
  const auto parent = written(engine, counting(0, 10));
  device.reset_counts();
  const auto child = engine.fork(parent, 10).value();
  EXPECT_EQ(device.counts().copies, 0u);
  EXPECT_EQ(pool.stats().pages[0].held, 3u);
  EXPECT_EQ(pages_of(pool, child.id), pages_of(pool, parent.id));
  EXPECT_EQ(*pool.length(child.id), 10u);
  EXPECT_EQ(engine.verify(child), "");
  EXPECT_EQ(pool.stats().forks, 1u);
  EXPECT_TRUE(sound(pool));
}

TEST(Fork, TheFirstWriteToASharedHalfFullPageCopiesThatPageOnly) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 16 * kPage));
  SequencePool& pool = engine.pool();
  auto parent = written(engine, counting(0, 10));
  auto child = engine.fork(parent, 10).value();
  const auto before = pages_of(pool, parent.id);
  device.reset_counts();
  ASSERT_TRUE(done(engine.append(child, {77})));
  EXPECT_EQ(device.counts().copies, 1u);
  EXPECT_EQ(device.counts().copied_bytes, kPage);
  EXPECT_EQ(pool.stats().pages_copied, 1u);
  EXPECT_EQ(pool.stats().pages[0].held, 4u);
  EXPECT_EQ(pages_of(pool, parent.id), before);
  const auto after = pages_of(pool, child.id);
  EXPECT_EQ(after[0], before[0]);
  EXPECT_EQ(after[1], before[1]);
  EXPECT_NE(after[2], before[2]);

  // Each sequence has its own last page now: no write needs a copy.
  device.reset_counts();
  ASSERT_TRUE(done(engine.append(parent, {55})));
  ASSERT_TRUE(done(engine.append(child, {78})));
  EXPECT_EQ(device.counts().copies, 0u);
  EXPECT_EQ(engine.verify(parent), "");
  EXPECT_EQ(engine.verify(child), "");
  EXPECT_TRUE(sound(pool));
}

TEST(Fork, TheParentCopiesIfItWritesFirst) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 16 * kPage));
  auto parent = written(engine, counting(0, 10));
  auto child = engine.fork(parent, 10).value();
  device.reset_counts();
  ASSERT_TRUE(done(engine.append(parent, {55})));
  EXPECT_EQ(device.counts().copies, 1u);
  ASSERT_TRUE(done(engine.append(child, {77})));
  EXPECT_EQ(device.counts().copies, 1u);
  EXPECT_EQ(engine.verify(parent), "");
  EXPECT_EQ(engine.verify(child), "");
}

TEST(Fork, ManyForksOfAHalfFullPageCopyItOncePerWriterExceptTheLast) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 16 * kPage));
  std::vector<ToyEngine::Sequence> all{written(engine, counting(0, 6))};
  for (int i = 0; i < 3; ++i) all.push_back(engine.fork(all[0], 6).value());
  EXPECT_EQ(engine.pool().stats().pages[0].held, 2u);
  device.reset_counts();
  for (std::size_t i = 0; i < all.size(); ++i) ASSERT_TRUE(done(engine.append(all[i], {static_cast<Token>(90 + i)})));
  EXPECT_EQ(device.counts().copies, 3u);
  EXPECT_EQ(engine.pool().stats().pages[0].held, 5u);
  for (const auto& sequence : all) EXPECT_EQ(engine.verify(sequence), "");
}

TEST(Fork, AtABlockBoundaryNothingIsEverCopied) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 16 * kPage));
  auto parent = written(engine, counting(0, 8));
  auto child = engine.fork(parent, 8).value();
  device.reset_counts();
  ASSERT_TRUE(done(engine.append(child, {77})));
  ASSERT_TRUE(done(engine.append(parent, {55})));
  EXPECT_EQ(device.counts().copies, 0u);
  EXPECT_EQ(engine.pool().stats().pages[0].held, 4u);
  EXPECT_EQ(engine.verify(parent), "");
  EXPECT_EQ(engine.verify(child), "");
}

TEST(Fork, OfAttentionStandsAtAnyPosition) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 16 * kPage));
  auto parent = written(engine, counting(0, 10));
  for (std::uint32_t position = 0; position <= 10; ++position) {
    auto child = engine.fork(parent, position).value();
    EXPECT_TRUE(child.pending.empty());
    EXPECT_EQ(*engine.pool().length(child.id), position);
    ASSERT_TRUE(done(engine.append(child, counting(60, 5))));
    EXPECT_EQ(engine.verify(child), "") << position;
    EXPECT_EQ(engine.verify(parent), "") << position;
    EXPECT_TRUE(sound(engine.pool()));
    ASSERT_TRUE(done(engine.pool().release(child.id)));
  }
}

TEST(Fork, BeyondTheEndIsRefused) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 16 * kPage));
  const auto parent = written(engine, counting(0, 6));
  EXPECT_TRUE(refused_at(engine.pool().fork(parent.id, 7), Code::NotWritten, 7));
  EXPECT_EQ(engine.pool().stats().sequences, 1u);
}

TEST(Fork, OutlivesItsParent) {
  CountingDevice device;
  for (const ToyModel& model :
       {ToyModel::attention(), ToyModel::windowed(6), ToyModel::recurrent(), ToyModel::hybrid()}) {
    ToyEngine engine(device, pool_of(model, 32 * kState));
    const auto parent = written(engine, counting(0, 10));
    auto child = engine.fork(parent, 10).value();
    ASSERT_TRUE(done(engine.pool().release(parent.id)));
    EXPECT_EQ(engine.verify(child), "");
    ASSERT_TRUE(done(engine.append(child, counting(60, 7))));
    EXPECT_EQ(engine.verify(child), "");
    EXPECT_TRUE(sound(engine.pool()));
  }
}

TEST(Fork, PagesReservedByTheParentAreNotShared) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 16 * kPage));
  const auto parent = written(engine, counting(0, 6));
  ASSERT_TRUE(done(engine.pool().reserve(parent.id, 10)));
  const auto child = engine.fork(parent, 6).value();
  EXPECT_EQ(pages_of(engine.pool(), parent.id).size(), 4u);
  EXPECT_EQ(pages_of(engine.pool(), child.id).size(), 2u);
  EXPECT_TRUE(sound(engine.pool()));
}

TEST(Fork, AfterAForkAReservationOfTheHalfFullPageCountsNoMore) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 16 * kPage));
  const auto parent = written(engine, counting(0, 6));
  ASSERT_TRUE(done(engine.pool().reserve(parent.id, 2)));
  const auto child = engine.fork(parent, 6).value();
  EXPECT_TRUE(refused_with(engine.pool().commit(parent.id, counting(6, 1)), Code::NotReserved, 7, 6));
  EXPECT_TRUE(refused_with(engine.pool().commit(child.id, counting(6, 1)), Code::NotReserved, 7, 6));
}

TEST(Fork, OfARecurrentSequenceCopiesItsStateOnce) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::recurrent(), 8 * kState));
  auto parent = written(engine, counting(0, 5));
  device.reset_counts();
  auto child = engine.fork(parent, 5).value();
  EXPECT_EQ(device.counts().copies, 1u);
  EXPECT_EQ(device.counts().copied_bytes, kState);
  EXPECT_NE(engine.pool().slot(parent.id)->index, engine.pool().slot(child.id)->index);
  ASSERT_TRUE(done(engine.append(child, {77})));
  EXPECT_EQ(engine.verify(parent), "");
  EXPECT_EQ(engine.verify(child), "");
}

TEST(Fork, OfAHybridInThePastStandsAtTheLastCheckpoint) {
  CountingDevice device;
  ToyEngine engine(device, with_checkpoints(pool_of(ToyModel::hybrid(), 32 * kHybridState), 4));
  const auto parent = written(engine, counting(0, 15), 0, 4);  // checkpoints at 4, 8 and 12
  const auto forked = engine.pool().fork(parent.id, 11).value();
  EXPECT_EQ(forked.position, 8u);
  EXPECT_EQ(*engine.pool().length(forked.id), 8u);
  auto child = engine.fork(parent, 11).value();
  EXPECT_EQ(child.pending, counting(8, 3));
  EXPECT_EQ(engine.verify(child), "");
  ASSERT_TRUE(done(engine.append(child, child.pending)));
  EXPECT_EQ(engine.verify(child), "");
  EXPECT_TRUE(sound(engine.pool()));
}

TEST(Fork, OfARecurrentSequenceInThePastWithoutACheckpointStartsOver) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::recurrent(), 8 * kState));
  const auto parent = written(engine, counting(0, 10));
  const auto child = engine.fork(parent, 9).value();
  EXPECT_EQ(*engine.pool().length(child.id), 0u);
  EXPECT_EQ(child.pending, counting(0, 9));
  EXPECT_EQ(engine.verify(child), "");
}

TEST(Fork, WithoutRoomForTheStateIsRefusedAndChangesNothing) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::recurrent(), 1 * kState));
  const auto parent = written(engine, counting(0, 5));
  EXPECT_TRUE(refused_with(engine.pool().fork(parent.id, 5), Code::Exhausted, kState, 0));
  EXPECT_EQ(engine.pool().stats().sequences, 1u);
  EXPECT_EQ(engine.pool().stats().refusals, 1u);
  EXPECT_EQ(engine.verify(parent), "");
  EXPECT_TRUE(sound(engine.pool()));
}

TEST(Fork, StaysInItsParentsNamespace) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 16 * kPage));
  const auto parent = written(engine, counting(0, 6), 7);
  auto child = engine.fork(parent, 6).value();
  ASSERT_TRUE(done(engine.append(child, counting(60, 6))));
  const auto prompt = joined(child.tokens, {99});
  EXPECT_EQ(engine.pool().lookup(prompt, 7).tokens, 12u);
  EXPECT_EQ(engine.pool().lookup(prompt, 0).tokens, 0u);
}

TEST(Fork, CarriesTheRequestIdItIsGiven) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::recurrent(), 8 * kState));
  SequencePool& pool = engine.pool();
  const auto parent = written(engine, counting(0, 5));
  const SequenceId child = pool.fork(parent.id, 5, 42).value().id;
  EXPECT_EQ((*pool.ssm_slot(pool.slot(child)->index))->request(), 42u);
}

// --- rewind

TEST(Rewind, GivesThePagesBehindThePositionBack) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 16 * kPage));
  auto sequence = written(engine, counting(0, 15));
  EXPECT_EQ(engine.pool().stats().pages[0].held, 4u);
  ASSERT_TRUE(done(engine.rewind(sequence, 6)));
  EXPECT_EQ(engine.pool().stats().pages[0].held, 2u);
  EXPECT_EQ(engine.pool().stats().pages[0].cached, 1u);  // block 2 was full; block 3 was not
  EXPECT_EQ(engine.pool().stats().rewinds, 1u);
  EXPECT_EQ(engine.verify(sequence), "");
  EXPECT_TRUE(sound(engine.pool()));
}

TEST(Rewind, GivesReservedPagesBackToo) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 16 * kPage));
  auto sequence = written(engine, counting(0, 6));
  ASSERT_TRUE(done(engine.pool().reserve(sequence.id, 20)));
  EXPECT_EQ(engine.pool().stats().pages[0].held, 7u);
  ASSERT_TRUE(done(engine.rewind(sequence, 5)));
  EXPECT_EQ(engine.pool().stats().pages[0].held, 2u);
  EXPECT_TRUE(refused(engine.pool().commit(sequence.id, counting(5, 4)), Code::NotReserved));
}

TEST(Rewind, ToWhereTheSequenceStandsDoesNothing) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::hybrid(), 16 * kHybridState));
  const auto sequence = written(engine, counting(0, 6));
  const auto events = engine.pool().events().written();
  EXPECT_EQ(*engine.pool().rewind(sequence.id, 6), 6u);
  EXPECT_EQ(engine.pool().events().written(), events);
  EXPECT_EQ(engine.pool().stats().rewinds, 0u);
  EXPECT_EQ(engine.verify(sequence), "");
}

TEST(Rewind, BeyondTheEndIsRefused) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 16 * kPage));
  const auto sequence = written(engine, counting(0, 6));
  EXPECT_TRUE(refused_at(engine.pool().rewind(sequence.id, 7), Code::NotWritten, 7));
  EXPECT_EQ(engine.verify(sequence), "");
}

TEST(Rewind, AndWritingOtherTokensLeavesTheOldOnesToOthers) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 16 * kPage));
  auto sequence = written(engine, counting(0, 8));
  ASSERT_TRUE(done(engine.rewind(sequence, 6)));
  device.reset_counts();
  ASSERT_TRUE(done(engine.append(sequence, {70, 71})));
  EXPECT_EQ(device.counts().copies, 1u);  // the published page is not written
  EXPECT_EQ(device.counts().copied_bytes, kPage);
  EXPECT_EQ(engine.verify(sequence), "");
  auto other = engine.create(joined(counting(0, 8), {99})).value();
  EXPECT_EQ(engine.last_hit().tokens, 8u);
  EXPECT_EQ(engine.verify(other), "");
  EXPECT_TRUE(sound(engine.pool()));
}

TEST(Rewind, OfASharedHalfFullPageLeavesTheOtherHolderAlone) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 16 * kPage));
  const auto parent = written(engine, counting(0, 7));
  auto child = engine.fork(parent, 7).value();
  ASSERT_TRUE(done(engine.rewind(child, 5)));
  ASSERT_TRUE(done(engine.append(child, counting(80, 5))));
  EXPECT_EQ(engine.verify(parent), "");
  EXPECT_EQ(engine.verify(child), "");
  EXPECT_TRUE(sound(engine.pool()));
}

TEST(Rewind, OfAttentionStandsAtAnyPosition) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 16 * kPage));
  for (std::uint32_t position = 0; position < 11; ++position) {
    auto sequence = written(engine, counting(0, 11));
    EXPECT_EQ(*engine.pool().rewind(sequence.id, position), position);
    ASSERT_TRUE(done(engine.pool().release(sequence.id)));
  }
  EXPECT_TRUE(sound(engine.pool()));
}

TEST(Rewind, OfARecurrentSequenceStandsAtTheLastCheckpoint) {
  CountingDevice device;
  for (const ToyModel& model : {ToyModel::recurrent(), ToyModel::hybrid()}) {
    ToyEngine engine(device, with_checkpoints(pool_of(model, 32 * kState), 4));
    auto sequence = written(engine, counting(0, 15), 0, 4);
    ASSERT_TRUE(done(engine.rewind(sequence, 11)));
    EXPECT_EQ(*engine.pool().length(sequence.id), 8u);
    EXPECT_EQ(sequence.pending, counting(8, 3));
    EXPECT_EQ(engine.verify(sequence), "");  // the state is the checkpoint's
    EXPECT_EQ(engine.pool().stats().checkpoints_restored, 1u);
    ASSERT_TRUE(done(engine.append(sequence, counting(60, 9))));
    EXPECT_EQ(engine.verify(sequence), "");
    EXPECT_TRUE(sound(engine.pool()));
  }
}

TEST(Rewind, ToTheBeginningZeroesTheState) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::hybrid(), 16 * kHybridState));
  auto sequence = written(engine, counting(0, 6));
  ASSERT_TRUE(done(engine.rewind(sequence, 0)));
  const StateView view = engine.pool().state_view(sequence.id).value();
  EXPECT_EQ(view.position, 0u);
  device.settle();
  EXPECT_TRUE(all_zero({view.base, kHybridState}));
  EXPECT_EQ(engine.pool().stats().pages[0].held, 0u);
  EXPECT_EQ(engine.verify(sequence), "");
}

TEST(Rewind, ThatTheDeviceRefusesChangesNothing) {
  CountingDevice device;
  ToyEngine engine(device, with_checkpoints(pool_of(ToyModel::hybrid(), 32 * kHybridState), 4));
  auto sequence = written(engine, counting(0, 15), 0, 4);
  device.fail_after(0);
  EXPECT_TRUE(refused(engine.pool().rewind(sequence.id, 11), Code::DeviceFailure));
  EXPECT_EQ(engine.verify(sequence), "");
  EXPECT_TRUE(sound(engine.pool()));
}

}  // namespace
}  // namespace quire::testing
