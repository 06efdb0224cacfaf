// SequencePool: creation, the plain operations, and the life of a sequence.
#include "quire/state/sequence_pool.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "quire/state/pool_behaviour_testing.h"

namespace quire::testing {
namespace {

// Bytes of the toy models' objects (block size 4).
constexpr std::uint64_t kPage = 128;         // attention
constexpr std::uint64_t kState = 384;        // recurrent
constexpr std::uint64_t kHybridState = 320;  // hybrid; its pages have 64

TEST(SequencePool, TheKindOfPoolFollowsFromTheModelsLayers) {
  CountingDevice device;
  const auto attention = SequencePool::create(device, pool_of(ToyModel::attention(), 4096)).value();
  EXPECT_TRUE(attention->is_kv_based());
  EXPECT_FALSE(attention->is_ssm());
  EXPECT_FALSE(attention->is_hybrid());
  const auto recurrent = SequencePool::create(device, pool_of(ToyModel::recurrent(), 4096)).value();
  EXPECT_FALSE(recurrent->is_kv_based());
  EXPECT_TRUE(recurrent->is_ssm());
  EXPECT_FALSE(recurrent->is_hybrid());
  const auto hybrid = SequencePool::create(device, pool_of(ToyModel::hybrid(), 4096)).value();
  EXPECT_FALSE(hybrid->is_kv_based());
  EXPECT_FALSE(hybrid->is_ssm());
  EXPECT_TRUE(hybrid->is_hybrid());
}

TEST(SequencePool, TheBudgetIsTheArenaRoundedDownToWholeObjects) {
  CountingDevice device;
  const auto pool = SequencePool::create(device, pool_of(ToyModel::attention(), 5 * kPage + 100)).value();
  const PoolStats stats = pool->stats();
  EXPECT_EQ(stats.arena_bytes, 5 * kPage);
  EXPECT_EQ(stats.pages[0].total, 5u);
  EXPECT_EQ(stats.pages[0].free, 5u);
  EXPECT_EQ(stats.pages[0].object_bytes, kPage);
  EXPECT_EQ(stats.states.total, 0u);
}

TEST(SequencePool, ImpossibleConfigurationsAreRefused) {
  CountingDevice device;
  const PoolConfig good = pool_of(ToyModel::attention(), 4096);
  const auto make = [&](auto change) {
    PoolConfig config = good;
    change(config);
    return SequencePool::create(device, config);
  };
  EXPECT_TRUE(done(make([](PoolConfig&) {})));
  EXPECT_TRUE(refused(make([](PoolConfig& c) { c.layout = StateLayout{}; }), Code::InvalidArgument));
  EXPECT_TRUE(refused(make([](PoolConfig& c) { c.layout.block_size = 0; }), Code::InvalidArgument));
  EXPECT_TRUE(refused(make([](PoolConfig& c) { c.layout.groups[0].block_size = 8; }), Code::InvalidArgument));
  EXPECT_TRUE(refused(make([](PoolConfig& c) { c.layout.groups[0].head_dim = 0; }), Code::InvalidArgument));
  EXPECT_TRUE(refused(make([](PoolConfig& c) { c.max_sequences = 0; }), Code::InvalidArgument));
  EXPECT_TRUE(refused(make([](PoolConfig& c) { c.max_tokens = 0; }), Code::InvalidArgument));
  EXPECT_TRUE(
      refused(make([](PoolConfig& c) { c.layout.groups.resize(16, c.layout.groups[0]); }), Code::InvalidArgument));
  EXPECT_TRUE(refused_with(make([](PoolConfig& c) { c.budget_bytes = kPage - 1; }), Code::Exhausted, kPage, kPage - 1));
  EXPECT_EQ(device.counts().live_bytes, 0u);
}

// --- plain operations

TEST(SequencePool, APoolWithoutSlotsAnswersInvalidSlot) {
  CountingDevice device;
  const auto pool = SequencePool::create(device, pool_of(ToyModel::attention(), 4 * kPage)).value();
  EXPECT_TRUE(refused(pool->alloc_ssm(1), Code::InvalidSlot));
  EXPECT_TRUE(refused_at(pool->release_ssm(SlotId{3, 0}), Code::InvalidSlot, 3));
  EXPECT_TRUE(refused_at(pool->ssm_slot(3), Code::InvalidSlot, 3));
  EXPECT_TRUE(refused_at(pool->ssm_slot(SlotId{3, 0}), Code::InvalidSlot, 3));
}

TEST(SequencePool, APoolWithoutPagesAnswersInvalidSlot) {
  CountingDevice device;
  const auto pool = SequencePool::create(device, pool_of(ToyModel::recurrent(), 4 * kState)).value();
  EXPECT_TRUE(refused(pool->alloc_kv(), Code::InvalidSlot));
  EXPECT_TRUE(refused(pool->free_kv(PageId{0, 0}), Code::InvalidSlot));
}

TEST(SequencePool, PlainPagesAreTheCallersUntilGivenBack) {
  CountingDevice device;
  const auto pool = SequencePool::create(device, pool_of(ToyModel::attention(), 2 * kPage)).value();
  const PageId a = pool->alloc_kv().value(), b = pool->alloc_kv().value();
  EXPECT_NE(a.index, b.index);
  EXPECT_EQ(pool->stats().pages[0].held, 2u);
  EXPECT_TRUE(refused_with(pool->alloc_kv(), Code::Exhausted, kPage, 0));
  EXPECT_TRUE(done(pool->free_kv(a)));
  EXPECT_EQ(pool->stats().pages[0].free, 1u);
  EXPECT_TRUE(refused_at(pool->free_kv(a), Code::StaleId, a.index));
  EXPECT_TRUE(refused_at(pool->free_kv(PageId{7, 0}), Code::InvalidPage, 7));
  EXPECT_EQ(pool->stats().pages[0].held, 1u);
  EXPECT_EQ(pool->alloc_kv()->index, a.index);
  EXPECT_TRUE(sound(*pool));
}

TEST(SequencePool, PlainPagesBelongToALayerGroup) {
  CountingDevice device;
  const auto pool = SequencePool::create(device, pool_of(ToyModel::windowed(8), 4 * kPage)).value();
  const PageId page = pool->alloc_kv(1).value();
  EXPECT_EQ(pool->stats().pages[0].held, 0u);
  EXPECT_EQ(pool->stats().pages[1].held, 1u);
  EXPECT_TRUE(refused_at(pool->alloc_kv(2), Code::InvalidSlot, 2));
  EXPECT_TRUE(refused_at(pool->free_kv(page, 2), Code::InvalidSlot, 2));
  EXPECT_TRUE(done(pool->free_kv(page, 1)));
}

TEST(SequencePool, APlainPageIsNotGivenBackInTheNameOfAnotherGroup) {
  CountingDevice device;
  const auto pool = SequencePool::create(device, pool_of(ToyModel::windowed(8), 16 * kPage)).value();
  std::vector<PageId> pages[2];
  for (std::uint32_t g : {0u, 1u, 0u, 1u, 0u, 1u, 0u, 1u}) pages[g].push_back(pool->alloc_kv(g).value());
  bool same_index = false;
  for (const PageId page : pages[0]) {
    for (const PageId other : pages[1]) same_index = same_index || page.index == other.index;
    EXPECT_FALSE(done(pool->free_kv(page, 1)));
  }
  EXPECT_TRUE(same_index) << "the groups have no page of the same index, so the test shows nothing";
  for (const PageId page : pages[1]) EXPECT_FALSE(done(pool->free_kv(page, 0)));
  EXPECT_EQ(pool->stats().pages[0].held, pages[0].size());
  EXPECT_EQ(pool->stats().pages[1].held, pages[1].size());
  for (std::uint32_t g : {0u, 1u}) {
    for (const PageId page : pages[g]) EXPECT_TRUE(done(pool->free_kv(page, g)));
  }
  EXPECT_TRUE(sound(*pool));
}

TEST(SequencePool, PlainSlotsAreTheCallersUntilGivenBack) {
  CountingDevice device;
  for (const ToyModel& model : {ToyModel::recurrent(), ToyModel::hybrid()}) {
    const auto pool = SequencePool::create(device, pool_of(model, 2 * model.layout().recurrent.bytes())).value();
    const SlotId a = pool->alloc_ssm(42).value(), b = pool->alloc_ssm(43).value();
    EXPECT_EQ((*pool->ssm_slot(a.index))->request(), 42u);
    EXPECT_EQ((*pool->ssm_slot(b.index))->request(), 43u);
    EXPECT_TRUE(refused_with(pool->alloc_ssm(44), Code::Exhausted, model.layout().recurrent.bytes(), 0));
    EXPECT_TRUE(refused(pool->alloc_ssm(0), Code::InvalidArgument));
    EXPECT_TRUE(done(pool->release_ssm(a)));
    EXPECT_EQ((*pool->ssm_slot(a.index))->request(), 0u);
    EXPECT_EQ((*pool->ssm_slot(a.index))->position(), 0u);
    EXPECT_TRUE(refused_at(pool->release_ssm(a), Code::StaleId, a.index));
    EXPECT_TRUE(refused_at(pool->release_ssm(SlotId{99, 0}), Code::InvalidSlot, 99));
    EXPECT_TRUE(refused_at(pool->ssm_slot(99), Code::InvalidSlot, 99));
    EXPECT_EQ(pool->alloc_ssm(45)->index, a.index);  // the freed slot is the next one handed out
    EXPECT_TRUE(sound(*pool));
  }
}

TEST(SequencePool, ASlotThatWasGivenBackDoesNotMeanTheNextOwners) {
  CountingDevice device;
  for (const ToyModel& model : {ToyModel::recurrent(), ToyModel::hybrid()}) {
    const auto pool = SequencePool::create(device, pool_of(model, 2 * model.layout().recurrent.bytes())).value();
    const SlotId old = pool->alloc_ssm(42).value();
    ASSERT_TRUE(done(pool->release_ssm(old)));
    const SlotId now = pool->alloc_ssm(43).value();
    ASSERT_EQ(now.index, old.index);
    EXPECT_TRUE(refused_at(pool->release_ssm(old), Code::StaleId, old.index));
    EXPECT_TRUE(refused_at(pool->ssm_slot(old), Code::StaleId, old.index));
    EXPECT_EQ((*pool->ssm_slot(now))->request(), 43u);
    EXPECT_TRUE(done(pool->release_ssm(now)));
    EXPECT_TRUE(sound(*pool));
  }
}

TEST(SequencePool, APlainSlotIsSteppedSavedAndRestoredByItsOwner) {
  CountingDevice device;
  const ToyModel model = ToyModel::hybrid();
  const auto pool = SequencePool::create(device, pool_of(model, 8 * model.layout().recurrent.bytes())).value();
  const SlotId a = pool->alloc_ssm(42).value(), b = pool->alloc_ssm(43).value();
  SequenceSlot& slot = **pool->ssm_slot(a);
  const auto bytes = pattern(slot.state().shape().bytes(), 5);
  std::copy(bytes.begin(), bytes.end(), slot.state().data());
  ASSERT_TRUE(done(slot.step(7)));
  EXPECT_EQ((*pool->ssm_slot(a.index))->position(), 7u);
  EXPECT_TRUE(refused(slot.step(100), Code::TooLong));  // more than the longest sequence
  const auto snapshot = slot.state().snapshot();
  ASSERT_TRUE(done(snapshot));
  ASSERT_TRUE(done((*pool->ssm_slot(b))->state().restore(*snapshot)));
  EXPECT_EQ((*pool->ssm_slot(b))->position(), 7u);
  EXPECT_EQ(bytes_at((*pool->ssm_slot(b))->state().data(), bytes.size()), bytes);
  const auto id = pool->create({})->id;
  EXPECT_TRUE(refused(pool->ssm_slot(pool->slot(id).value()), Code::InvalidSlot)) << "a sequence's slot is the pool's";
  EXPECT_TRUE(sound(*pool));
}

TEST(SequencePool, PlainOperationsRefuseWhatBelongsToASequence) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::hybrid(), 8 * kHybridState));
  SequencePool& pool = engine.pool();
  const auto sequence = written(engine, counting(0, 6));
  const PageId page = pages_of(pool, sequence.id)[0];
  const SlotId slot = pool.slot(sequence.id).value();
  EXPECT_TRUE(refused_at(pool.free_kv(page), Code::InvalidSlot, page.index));
  EXPECT_TRUE(refused_at(pool.release_ssm(slot), Code::InvalidSlot, slot.index));
  EXPECT_EQ(engine.verify(sequence), "");
  EXPECT_TRUE(sound(pool));
}

TEST(SequencePool, CachedContentMakesRoomForPlainObjects) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 2 * kPage));
  cached(engine, counting(0, 8));
  EXPECT_EQ(engine.pool().stats().pages[0].cached, 2u);
  EXPECT_TRUE(done(engine.pool().alloc_kv()));
  EXPECT_TRUE(done(engine.pool().alloc_kv()));
  EXPECT_EQ(engine.pool().stats().pages[0].cached, 0u);
  EXPECT_TRUE(sound(engine.pool()));
}

// --- the life of a sequence

TEST(SequencePool, ANewSequenceHoldsNoPages) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 8 * kPage));
  const auto created = engine.pool().create({.prompt = counting(0, 10)}).value();
  EXPECT_EQ(created.hit.tokens, 0u);
  EXPECT_EQ(engine.pool().stats().pages[0].held, 0u);
  EXPECT_EQ(engine.pool().stats().sequences, 1u);
  EXPECT_EQ(*engine.pool().length(created.id), 0u);
}

TEST(SequencePool, ReserveTakesThePagesOfTheTokensAndNoMore) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 8 * kPage));
  SequencePool& pool = engine.pool();
  const SequenceId id = pool.create({}).value().id;
  ASSERT_TRUE(done(pool.reserve(id, 5)));
  EXPECT_EQ(pool.stats().pages[0].held, 2u);
  ASSERT_TRUE(done(pool.reserve(id, 8)));
  EXPECT_EQ(pool.stats().pages[0].held, 2u);
  ASSERT_TRUE(done(pool.reserve(id, 9)));
  EXPECT_EQ(pool.stats().pages[0].held, 3u);
  EXPECT_EQ(*pool.length(id), 0u);
}

TEST(SequencePool, CommittedTokensAreTheSequences) {
  CountingDevice device;
  for (const ToyModel& model : {ToyModel::attention(), ToyModel::windowed(6), ToyModel::recurrent(), ToyModel::hybrid(),
                                ToyModel::everything(6)}) {
    ToyEngine engine(device, pool_of(model, 64 * kState));
    auto sequence = written(engine, counting(0, 7), 0, 3);
    ASSERT_TRUE(done(engine.append(sequence, {70})));
    ASSERT_TRUE(done(engine.append(sequence, {})));
    EXPECT_EQ(*engine.pool().length(sequence.id), 8u);
    EXPECT_EQ(engine.verify(sequence), "");  // tokens, every byte of every page within its windows, and the state
    EXPECT_TRUE(sound(engine.pool()));
  }
}

TEST(SequencePool, ACommitOfWhatWasNotReservedIsRefusedAndChangesNothing) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::hybrid(), 8 * kHybridState));
  SequencePool& pool = engine.pool();
  auto sequence = written(engine, counting(0, 4));
  EXPECT_TRUE(refused_with(pool.commit(sequence.id, counting(4, 1)), Code::NotReserved, 5, 4));
  ASSERT_TRUE(done(pool.reserve(sequence.id, 2)));
  EXPECT_TRUE(refused_with(pool.commit(sequence.id, counting(4, 5)), Code::NotReserved, 9, 8));
  EXPECT_EQ(*pool.length(sequence.id), 4u);
  EXPECT_EQ(engine.verify(sequence), "");
  EXPECT_TRUE(sound(pool));
}

TEST(SequencePool, ASequencesSlotCarriesItsRequestAndFollowsItsLength) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::hybrid(), 8 * kHybridState));
  SequencePool& pool = engine.pool();
  const SequenceId id = pool.create({.request = 42}).value().id;
  const std::uint32_t slot = pool.slot(id)->index;
  EXPECT_EQ((*pool.ssm_slot(slot))->request(), 42u);
  EXPECT_EQ((*pool.ssm_slot(slot))->position(), 0u);
  ASSERT_TRUE(done(pool.reserve(id, 5)));
  ASSERT_TRUE(done(pool.commit(id, counting(0, 5))));
  EXPECT_EQ((*pool.ssm_slot(slot))->position(), 5u);
  EXPECT_EQ(pool.state_view(id)->position, 5u);
  ASSERT_TRUE(done(pool.release(id)));
  EXPECT_EQ((*pool.ssm_slot(slot))->request(), 0u);
  EXPECT_EQ((*pool.ssm_slot(slot))->position(), 0u);
}

TEST(SequencePool, WithoutARequestIdThePoolMakesOneUp) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::recurrent(), 8 * kState));
  SequencePool& pool = engine.pool();
  const SequenceId a = pool.create({}).value().id, b = pool.create({}).value().id;
  const RequestId of_a = (*pool.ssm_slot(pool.slot(a)->index))->request();
  const RequestId of_b = (*pool.ssm_slot(pool.slot(b)->index))->request();
  EXPECT_NE(of_a, 0u);
  EXPECT_NE(of_b, 0u);
  EXPECT_NE(of_a, of_b);
}

TEST(SequencePool, ReleaseGivesBackWhatTheSequenceHeld) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 8 * kPage));
  const auto sequence = written(engine, counting(0, 10));
  EXPECT_EQ(engine.pool().stats().pages[0].held, 3u);
  ASSERT_TRUE(done(engine.pool().release(sequence.id)));
  const PoolStats stats = engine.pool().stats();
  EXPECT_EQ(stats.pages[0].held, 0u);
  EXPECT_EQ(stats.pages[0].cached, 2u);  // the full blocks stay for others
  EXPECT_EQ(stats.pages[0].free, 6u);
  EXPECT_EQ(stats.sequences, 0u);
}

TEST(SequencePool, NothingIsLeftWhenEverythingWasReleasedAndTheCacheDropped) {
  CountingDevice device;
  for (const ToyModel& model : {ToyModel::attention(), ToyModel::windowed(6), ToyModel::recurrent(), ToyModel::hybrid(),
                                ToyModel::everything(6)}) {
    PoolConfig config = pool_of(model, 64 * kState);
    config.checkpoint_interval = 4;
    ToyEngine engine(device, config);
    SequencePool& pool = engine.pool();
    const auto a = written(engine, counting(0, 22), 0, 4), b = written(engine, counting(0, 30), 0, 4);
    const auto fork = engine.fork(a, 22).value();
    for (const SequenceId id : {a.id, b.id, fork.id}) ASSERT_TRUE(done(pool.release(id)));
    EXPECT_TRUE(sound(pool));
    EXPECT_GT(pool.stats().prefix_blocks, 0u);
    pool.drop_cache();
    const PoolStats stats = pool.stats();
    EXPECT_EQ(stats.free_slabs, stats.slabs);
    EXPECT_EQ(stats.prefix_blocks, 0u);
    for (const ObjectCounts& pages : stats.pages) EXPECT_EQ(pages.held + pages.cached, 0u);
    EXPECT_EQ(stats.states.held + stats.states.cached, 0u);
    EXPECT_TRUE(sound(pool));
  }
}

TEST(SequencePool, AStaleSequenceIdIsRefusedEverywhere) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::hybrid(), 8 * kHybridState));
  SequencePool& pool = engine.pool();
  const auto old = written(engine, counting(0, 6));
  ASSERT_TRUE(done(pool.release(old.id)));
  const auto now = written(engine, counting(50, 6));
  ASSERT_EQ(now.id.index, old.id.index);
  const BatchEntry demand{old.id, 1};
  for (const SequenceId id : {old.id, SequenceId{}, SequenceId{100, 0}}) {
    EXPECT_TRUE(refused_at(pool.release(id), Code::InvalidSequence, id.index));
    EXPECT_TRUE(refused_at(pool.reserve(id, 1), Code::InvalidSequence, id.index));
    EXPECT_TRUE(refused_at(pool.reserve(id, 0), Code::InvalidSequence, id.index));
    EXPECT_TRUE(refused_at(pool.commit(id, counting(0, 1)), Code::InvalidSequence, id.index));
    EXPECT_TRUE(refused_at(pool.fork(id, 0), Code::InvalidSequence, id.index));
    EXPECT_TRUE(refused_at(pool.rewind(id, 0), Code::InvalidSequence, id.index));
    EXPECT_TRUE(refused_at(pool.next_checkpoint(id), Code::InvalidSequence, id.index));
    EXPECT_TRUE(refused_at(pool.kv_view(id, 0, 0), Code::InvalidSequence, id.index));
    EXPECT_TRUE(refused_at(pool.state_view(id), Code::InvalidSequence, id.index));
    EXPECT_TRUE(refused_at(pool.kv_cache(id, 0, 0), Code::InvalidSequence, id.index));
    EXPECT_TRUE(refused_at(pool.length(id), Code::InvalidSequence, id.index));
    EXPECT_TRUE(refused_at(pool.tokens(id), Code::InvalidSequence, id.index));
    EXPECT_TRUE(refused_at(pool.pages(id, 0), Code::InvalidSequence, id.index));
    EXPECT_TRUE(refused_at(pool.slot(id), Code::InvalidSequence, id.index));
  }
  EXPECT_TRUE(refused_at(pool.can_reserve(std::span(&demand, 1)), Code::InvalidSequence, old.id.index));
  EXPECT_EQ(engine.verify(now), "");
  EXPECT_TRUE(sound(pool));
}

TEST(SequencePool, PartsThatThePoolHasNotAreRefusedInViewsToo) {
  CountingDevice device;
  ToyEngine attention(device, pool_of(ToyModel::attention(), 8 * kPage));
  const SequenceId a = attention.pool().create({}).value().id;
  EXPECT_TRUE(refused(attention.pool().state_view(a), Code::InvalidSlot));
  EXPECT_TRUE(refused(attention.pool().slot(a), Code::InvalidSlot));
  EXPECT_TRUE(refused(attention.pool().next_checkpoint(a), Code::InvalidSlot));
  EXPECT_TRUE(refused(attention.pool().kv_view(a, 1, 0), Code::InvalidSlot));
  EXPECT_TRUE(refused(attention.pool().kv_view(a, 0, 2), Code::InvalidArgument));  // the group has two layers
  EXPECT_TRUE(refused(attention.pool().pages(a, 1), Code::InvalidSlot));
  EXPECT_TRUE(refused(attention.pool().kv_cache(a, 1, 0), Code::InvalidSlot));
  ToyEngine recurrent(device, pool_of(ToyModel::recurrent(), 8 * kState));
  const SequenceId r = recurrent.pool().create({}).value().id;
  EXPECT_TRUE(refused(recurrent.pool().kv_view(r, 0, 0), Code::InvalidSlot));
  EXPECT_TRUE(refused(recurrent.pool().pages(r, 0), Code::InvalidSlot));
}

TEST(SequencePool, OnlySoManySequencesLiveAtOnce) {
  CountingDevice device;
  PoolConfig config = pool_of(ToyModel::attention(), 8 * kPage);
  config.max_sequences = 2;
  ToyEngine engine(device, config);
  const auto a = engine.pool().create({}).value(), b = engine.pool().create({}).value();
  EXPECT_TRUE(refused_with(engine.pool().create({}), Code::Exhausted, 1, 0));
  EXPECT_TRUE(refused_with(engine.pool().fork(b.id, 0), Code::Exhausted, 1, 0));
  ASSERT_TRUE(done(engine.pool().release(a.id)));
  EXPECT_TRUE(done(engine.pool().create({})));
}

TEST(SequencePool, MoreTokensThanASequenceMayHaveAreRefused) {
  CountingDevice device;
  PoolConfig config = pool_of(ToyModel::attention(), 64 * kPage);
  config.max_tokens = 10;  // not a whole number of blocks
  ToyEngine engine(device, config);
  SequencePool& pool = engine.pool();
  EXPECT_TRUE(refused_with(pool.create({.prompt = counting(0, 11)}), Code::TooLong, 11, 10));
  auto sequence = written(engine, counting(0, 10));
  EXPECT_TRUE(refused_with(pool.reserve(sequence.id, 1), Code::TooLong, 11, 10));
  EXPECT_TRUE(refused(pool.reserve(sequence.id, UINT32_MAX), Code::TooLong));
  EXPECT_TRUE(refused_with(pool.commit(sequence.id, counting(0, 1)), Code::NotReserved, 11, 10));
  EXPECT_EQ(engine.verify(sequence), "");
}

TEST(SequencePool, AHybridWithoutRoomForAStateRefusesTheSequence) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::recurrent(), 2 * kState));
  ASSERT_TRUE(done(engine.pool().create({})));
  ASSERT_TRUE(done(engine.pool().create({})));
  EXPECT_TRUE(refused_with(engine.pool().create({}), Code::Exhausted, kState, 0));
  EXPECT_EQ(engine.pool().stats().sequences, 2u);
  EXPECT_TRUE(sound(engine.pool()));
}

TEST(SequencePool, AllMemoryIsTakenWhenThePoolIsMade) {
  CountingDevice device;
  PoolConfig config = pool_of(ToyModel::everything(6), 64 * kState);
  config.checkpoint_interval = 4;
  ToyEngine engine(device, config);
  const auto live = device.counts().live_bytes;
  device.reset_counts();
  const auto a = written(engine, counting(0, 22), 0, 4);
  auto b = engine.fork(a, 22).value();
  ASSERT_TRUE(done(engine.append(b, counting(0, 9))));
  ASSERT_TRUE(done(engine.rewind(b, 8)));
  ASSERT_TRUE(done(engine.pool().release(a.id)));
  ASSERT_TRUE(done(engine.pool().release(b.id)));
  cached(engine, counting(0, 22));
  EXPECT_EQ(device.counts().allocations, 0u);
  EXPECT_EQ(device.counts().live_bytes, live);
}

TEST(SequencePool, APageIsOneRunOfBytesWithKAndVOfAllItsLayers) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 8 * kPage));
  SequencePool& pool = engine.pool();
  const auto sequence = written(engine, counting(0, 10));
  const auto pages = pages_of(pool, sequence.id);
  for (std::uint32_t layer = 0; layer < 2; ++layer) {
    const KvView view = pool.kv_view(sequence.id, 0, layer).value();
    for (std::uint32_t p = 0; p < 10; ++p) {
      const std::byte* page = pool.block_pool(0).data(pages[p / 4]).value();
      for (const std::byte* row : {view.k(0, p), view.v(0, p)}) {
        EXPECT_GE(row, page);
        EXPECT_LE(row + 8, page + kPage);
      }
    }
  }
}

TEST(SequencePool, AStateIsOneRunOfBytesWithAllItsLayers) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::recurrent(), 4 * kState));
  SequencePool& pool = engine.pool();
  const auto sequence = written(engine, counting(0, 3));
  const StateView view = pool.state_view(sequence.id).value();
  const SequenceState& state = (*pool.ssm_slot(pool.slot(sequence.id)->index))->state();
  EXPECT_EQ(view.base, state.data());
  EXPECT_EQ(view.num_layers, 2u);
  EXPECT_LE(view.ssm(1) + 128, state.data() + kState);
  EXPECT_GE(state.data(), pool.arena().base());
}

TEST(SequencePool, AViewShowsWhatIsWrittenAndWhatMayBe) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 8 * kPage));
  SequencePool& pool = engine.pool();
  auto sequence = written(engine, counting(0, 6));
  EXPECT_EQ(pool.kv_view(sequence.id, 0, 0)->length, 6u);
  EXPECT_EQ(pool.kv_view(sequence.id, 0, 0)->capacity, 8u);  // the rest of its last page
  EXPECT_EQ(pool.kv_view(sequence.id, 0, 0)->first, 0u);
  const auto fork = engine.fork(sequence, 6).value();
  // A page in two tables must not be written through either.
  EXPECT_EQ(pool.kv_view(sequence.id, 0, 0)->capacity, 6u);
  EXPECT_EQ(pool.kv_view(fork.id, 0, 0)->capacity, 6u);
}

TEST(SequencePool, KAndVCanBeWrittenAndReadThroughAKvCache) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 8 * kPage));
  SequencePool& pool = engine.pool();
  const SequenceId id = pool.create({}).value().id;
  ASSERT_TRUE(done(pool.reserve(id, 6)));
  KvCache cache = pool.kv_cache(id, 0, 1).value();
  const auto k = pattern(6 * cache.token_bytes(), 1), v = pattern(6 * cache.token_bytes(), 2);
  ASSERT_TRUE(done(cache.write(0, k, v)));
  ASSERT_TRUE(done(pool.commit(id, counting(0, 6))));
  std::vector<std::byte> k_out(k.size()), v_out(v.size());
  ASSERT_TRUE(done(cache.read(0, 6, k_out, v_out)));
  EXPECT_EQ(k_out, k);
  EXPECT_EQ(v_out, v);
  // The first block is published now, and a published page is never written.
  EXPECT_TRUE(refused(cache.write(0, k, v), Code::SharedPage));
  EXPECT_TRUE(refused(pool.kv_cache(id, 0, 2), Code::InvalidArgument));
}

TEST(SequencePool, AKvCacheOfAReleasedSequenceNeverShowsAnothersBytes) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 8 * kPage));
  SequencePool& pool = engine.pool();
  const auto old = written(engine, counting(0, 4));
  const KvCache cache = pool.kv_cache(old.id, 0, 0).value();
  ASSERT_TRUE(done(pool.release(old.id)));
  const auto now = written(engine, counting(50, 4), 7);
  ASSERT_EQ(now.id.index, old.id.index);
  std::vector<std::byte> k(4 * cache.token_bytes()), v(k.size());
  EXPECT_FALSE(done(cache.read(0, 4, k, v)));
}

TEST(SequencePool, WithScrubbingNothingOfASequenceIsLeftInFreePages) {
  CountingDevice device;
  PoolConfig config = pool_of(ToyModel::attention(), 4 * kPage);
  config.scrub = true;
  ToyEngine engine(device, config);
  cached(engine, counting(1, 14));
  engine.pool().drop_cache();
  device.settle();
  EXPECT_TRUE(all_zero({engine.pool().arena().base(), 4 * kPage}));
}

}  // namespace
}  // namespace quire::testing
