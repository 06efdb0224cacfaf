// A fixed number of recurrent states.
#include "quire/state/ssm_state_pool.h"

#include <algorithm>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "quire/state/behaviour_testing.h"
#include "quire/state/counting_device_testing.h"

namespace quire {
namespace {

using testing::all_zero;
using testing::bytes_at;
using testing::Code;
using testing::done;
using testing::pattern;
using testing::refused;
using testing::refused_at;
using testing::refused_with;
using testing::sound;

constexpr StateShape kShape{.num_layers = 2, .conv_bytes = 64, .ssm_bytes = 192, .capacity = 100};
constexpr std::size_t kBytes = 512;

void fill(const SequenceState& state, unsigned salt) {
  const auto bytes = pattern(kBytes, salt);
  std::copy(bytes.begin(), bytes.end(), state.data());
}
std::vector<std::byte> content(const SequenceState& state) { return bytes_at(state.data(), kBytes); }

class SsmStatePoolTest : public ::testing::Test {
 protected:
  explicit SsmStatePoolTest() : pool_(std::move(*SsmStatePool::create(device_, 4, kShape))) {}

  // A slot with content and a position, as a sequence would leave it.
  SlotId used(RequestId request, unsigned salt, std::uint32_t position) {
    const SlotId id = *pool_.alloc(request);
    SequenceSlot* slot = *pool_.slot(id);
    device_.settle();
    fill(slot->state(), salt);
    (void)slot->step(position);
    return id;
  }
  std::vector<std::byte> content(const SequenceState& state) {
    device_.settle();
    return bytes_at(state.data(), kBytes);
  }
  bool adds_up() const {
    return pool_.capacity() == 4 && pool_.free_count() + pool_.used_count() == 4 &&
           pool_.allocator().check_integrity().has_value();
  }

  CountingDevice device_;
  SsmStatePool pool_;
};

TEST_F(SsmStatePoolTest, MadeFromAModelsDescriptionItTakesAllMemoryThen) {
  EXPECT_EQ(kShape.bytes(), kBytes);
  EXPECT_EQ(pool_.capacity(), 4u);
  EXPECT_EQ(device_.counts().live_bytes, 4 * kBytes);
  const auto allocations = device_.counts().allocations;
  for (RequestId r = 1; r <= 4; ++r) ASSERT_TRUE(done(pool_.alloc(r)));
  for (std::uint32_t i = 0; i < 4; ++i) ASSERT_TRUE(done(pool_.release(i)));
  EXPECT_EQ(device_.counts().allocations, allocations);
  EXPECT_EQ(device_.counts().live_bytes, 4 * kBytes);
}

TEST(SsmStatePool, TheFactoryIsCalledOncePerSlotWithItsIndex) {
  HostDevice device;
  std::vector<std::uint32_t> calls;
  auto pool = SsmStatePool::create(3, [&](std::uint32_t index) {
    calls.push_back(index);
    return SequenceState::create(device, kShape);
  });
  ASSERT_TRUE(done(pool));
  EXPECT_EQ(calls, (std::vector<std::uint32_t>{0, 1, 2}));
  EXPECT_EQ(pool->capacity(), 3u);
  for (RequestId r = 1; r <= 3; ++r) ASSERT_TRUE(done(pool->alloc(r)));
  ASSERT_TRUE(done(pool->release(0u)));
  ASSERT_TRUE(done(pool->alloc(9)));
  EXPECT_EQ(calls.size(), 3u);  // never again
}

TEST(SsmStatePool, AFactoryThatFailsMeansNoPool) {
  CountingDevice device;
  auto pool = SsmStatePool::create(3, [&](std::uint32_t index) -> PoolResult<SequenceState> {
    if (index == 2) return std::unexpected(PoolError::device_failure("allocate", 7));
    return SequenceState::create(device, kShape);
  });
  EXPECT_TRUE(refused(pool, Code::DeviceFailure));
  EXPECT_EQ(device.counts().live_bytes, 0u);
}

TEST(SsmStatePool, APoolOfNoSlotsIsAlwaysExhausted) {
  HostDevice device;
  auto pool = SsmStatePool::create(device, 0, kShape);
  ASSERT_TRUE(done(pool));
  EXPECT_EQ(pool->capacity(), 0u);
  EXPECT_TRUE(refused(pool->alloc(1), Code::Exhausted));
  EXPECT_TRUE(refused_at(pool->release(0u), Code::InvalidSlot, 0));
}

TEST(SsmStatePool, AnImpossibleShapeOrSizeIsRefused) {
  CountingDevice device;
  EXPECT_TRUE(refused(SsmStatePool::create(device, 1, StateShape{}), Code::InvalidArgument));
  EXPECT_TRUE(refused(SsmStatePool::create(device, kNoIndex, StateShape{.num_layers = 1 << 14, .ssm_bytes = 1 << 25}),
                      Code::InvalidArgument));
  EXPECT_EQ(device.counts().allocations, 0u);
}

TEST_F(SsmStatePoolTest, AllocBindsASlotToTheRequest) {
  const auto id = pool_.alloc(42);
  ASSERT_TRUE(done(id));
  EXPECT_EQ((*pool_.slot(*id))->request(), 42u);
  EXPECT_EQ((*pool_.slot(*id))->position(), 0u);
  EXPECT_EQ(pool_.used_count(), 1u);
  EXPECT_EQ(pool_.free_count(), 3u);
}

TEST_F(SsmStatePoolTest, AllocSaysExhaustedWhenEverySlotIsUsed) {
  std::set<std::uint32_t> indices;
  for (RequestId r = 1; r <= 4; ++r) indices.insert(pool_.alloc(r)->index);
  EXPECT_EQ(indices.size(), 4u);
  EXPECT_TRUE(refused_with(pool_.alloc(5), Code::Exhausted, 1, 0));
  EXPECT_EQ(pool_.used_count(), 4u);
  ASSERT_TRUE(done(pool_.release(2u)));
  EXPECT_TRUE(done(pool_.alloc(5)));
}

TEST_F(SsmStatePoolTest, RequestZeroMeansNoneAndIsRefused) {
  EXPECT_TRUE(refused(pool_.alloc(0), Code::InvalidArgument));
  EXPECT_EQ(pool_.free_count(), 4u);
}

TEST_F(SsmStatePoolTest, ReleaseZeroesConvWindowStateAndPositionAndClearsTheRequest) {
  const SlotId id = used(42, 1, 7);
  const std::byte* bytes = (*pool_.slot(id))->state().data();
  ASSERT_TRUE(done(pool_.release(id.index)));
  const SequenceSlot* slot = *pool_.slot_at(id.index);
  EXPECT_EQ(slot->request(), 0u);
  EXPECT_EQ(slot->position(), 0u);
  EXPECT_EQ(slot->state().position(), 0u);
  device_.settle();
  EXPECT_TRUE(all_zero({bytes, kBytes}));
  EXPECT_EQ(pool_.free_count(), 4u);
}

TEST_F(SsmStatePoolTest, ReleasingAFreeSlotIsRefusedAndChangesNothing) {
  const SlotId id = used(42, 1, 7);
  ASSERT_TRUE(done(pool_.release(id.index)));
  EXPECT_TRUE(refused_at(pool_.release(id.index), Code::InvalidSlot, id.index));
  EXPECT_TRUE(refused_at(pool_.release(3u), Code::InvalidSlot, 3));  // never used
  EXPECT_EQ(pool_.free_count(), 4u);
  EXPECT_TRUE(adds_up());
}

TEST_F(SsmStatePoolTest, ReleasingASlotOutOfRangeIsRefusedAndChangesNothing) {
  (void)used(42, 1, 7);
  EXPECT_TRUE(refused_at(pool_.release(4u), Code::InvalidSlot, 4));
  EXPECT_TRUE(refused_at(pool_.release(kNoIndex), Code::InvalidSlot, kNoIndex));
  EXPECT_EQ(pool_.used_count(), 1u);
  EXPECT_TRUE(adds_up());
}

TEST_F(SsmStatePoolTest, AFreedSlotIsTheNextOneHandedOut) {
  for (RequestId r = 1; r <= 4; ++r) ASSERT_TRUE(done(pool_.alloc(r)));
  ASSERT_TRUE(done(pool_.release(1u)));
  ASSERT_TRUE(done(pool_.release(3u)));
  EXPECT_EQ(pool_.alloc(5)->index, 3u);
  EXPECT_EQ(pool_.alloc(6)->index, 1u);
}

TEST_F(SsmStatePoolTest, ASlotThatIsHandedOutAgainIsZero) {
  const SlotId old = used(42, 1, 7);
  ASSERT_TRUE(done(pool_.release(old)));
  const SlotId now = *pool_.alloc(43);
  ASSERT_EQ(now.index, old.index);
  EXPECT_EQ((*pool_.slot(now))->request(), 43u);
  EXPECT_EQ((*pool_.slot(now))->position(), 0u);
  EXPECT_TRUE(all_zero(content((*pool_.slot(now))->state())));
}

TEST_F(SsmStatePoolTest, CapacityIsAlwaysFreePlusUsed) {
  EXPECT_TRUE(adds_up());
  for (RequestId r = 1; r <= 4; ++r) {
    ASSERT_TRUE(done(pool_.alloc(r)));
    EXPECT_EQ(pool_.used_count(), r);
    EXPECT_TRUE(adds_up());
  }
  (void)pool_.alloc(5);
  EXPECT_TRUE(adds_up());
  for (const std::uint32_t i : {2u, 0u, 2u, 9u, 1u, 3u}) {
    (void)pool_.release(i);
    EXPECT_TRUE(adds_up());
  }
  EXPECT_EQ(pool_.free_count(), 4u);
}

TEST_F(SsmStatePoolTest, ByIndexOneSeesThePhysicalSlotWhoeverHasIt) {
  EXPECT_EQ((*pool_.slot_at(0))->request(), 0u);
  EXPECT_EQ((*pool_.slot_at(0))->position(), 0u);
  const SlotId id = used(42, 1, 7);
  EXPECT_EQ((*pool_.slot_at(id.index))->request(), 42u);
  EXPECT_EQ((*pool_.slot_at(id.index))->position(), 7u);
  ASSERT_TRUE(done(pool_.release(id)));
  EXPECT_EQ((*pool_.slot_at(id.index))->request(), 0u);
  EXPECT_EQ((*pool_.slot_at(id.index))->position(), 0u);
  EXPECT_TRUE(refused_at(pool_.slot_at(4), Code::InvalidSlot, 4));
}

TEST_F(SsmStatePoolTest, AHandleNeverShowsSomebodyElsesSlot) {
  const SlotId old = used(42, 1, 7);
  ASSERT_TRUE(done(pool_.release(old)));
  EXPECT_TRUE(refused_at(pool_.slot(old), Code::StaleId, old.index));
  const SlotId now = used(43, 2, 5);
  ASSERT_EQ(now.index, old.index);
  EXPECT_TRUE(refused_at(pool_.slot(old), Code::StaleId, old.index));
  EXPECT_TRUE(refused_at(pool_.release(old), Code::StaleId, old.index));
  EXPECT_TRUE(refused_at(pool_.snapshot(old), Code::StaleId, old.index));
  EXPECT_TRUE(refused_at(pool_.restore(old, *pool_.snapshot(now)), Code::StaleId, old.index));
  EXPECT_TRUE(refused_at(pool_.copy(old, now), Code::StaleId, old.index));
  EXPECT_TRUE(refused_at(pool_.copy(now, old), Code::StaleId, old.index));
  EXPECT_EQ((*pool_.slot(now))->position(), 5u);
  EXPECT_EQ(content((*pool_.slot(now))->state()), pattern(kBytes, 2));
  EXPECT_EQ(pool_.used_count(), 1u);
}

TEST_F(SsmStatePoolTest, AHandleOfNoSlotIsRefused) {
  EXPECT_TRUE(refused_at(pool_.slot(SlotId{}), Code::InvalidSlot, kNoIndex));
  EXPECT_TRUE(refused_at(pool_.slot(SlotId{1, 0}), Code::InvalidSlot, 1));  // free
  EXPECT_TRUE(refused_at(pool_.release(SlotId{9, 0}), Code::InvalidSlot, 9));
}

TEST_F(SsmStatePoolTest, TwoLiveSlotsNeverShareAByte) {
  std::vector<SlotId> ids;
  for (unsigned i = 0; i < 4; ++i) ids.push_back(used(i + 1, i, i));
  for (unsigned i = 0; i < 4; ++i) EXPECT_EQ(content((*pool_.slot(ids[i]))->state()), pattern(kBytes, i));
  ASSERT_TRUE(done(pool_.release(ids[1])));
  for (const unsigned i : {0u, 2u, 3u}) EXPECT_EQ(content((*pool_.slot(ids[i]))->state()), pattern(kBytes, i));
}

TEST_F(SsmStatePoolTest, SnapshotAndRestoreMoveEverything) {
  const SlotId a = used(42, 1, 7), b = used(43, 2, 9);
  const auto snapshot = pool_.snapshot(a);
  ASSERT_TRUE(done(snapshot));
  EXPECT_EQ(snapshot->position, 7u);
  EXPECT_EQ(snapshot->bytes, pattern(kBytes, 1));
  ASSERT_TRUE(done(pool_.restore(b, *snapshot)));
  EXPECT_EQ((*pool_.slot(b))->position(), 7u);
  EXPECT_EQ(content((*pool_.slot(b))->state()), pattern(kBytes, 1));
  EXPECT_EQ((*pool_.slot(b))->request(), 43u);  // the request is not copied
  ASSERT_TRUE(done(pool_.release(a)));
  ASSERT_TRUE(done(pool_.restore(b, *snapshot)));  // a snapshot outlives its slot
}

TEST_F(SsmStatePoolTest, ASlotToSlotCopyMovesEverythingInOneCopy) {
  const SlotId a = used(42, 1, 7), b = used(43, 2, 9);
  device_.reset_counts();
  ASSERT_TRUE(done(pool_.copy(b, a)));
  EXPECT_EQ(device_.counts().copies, 1u);
  EXPECT_EQ(device_.counts().copied_bytes, kBytes);
  EXPECT_EQ((*pool_.slot(b))->position(), 7u);
  EXPECT_EQ(content((*pool_.slot(b))->state()), pattern(kBytes, 1));
  EXPECT_EQ((*pool_.slot(b))->request(), 43u);
  EXPECT_EQ((*pool_.slot(a))->position(), 7u);
  EXPECT_TRUE(done(pool_.copy(a, a)));
  EXPECT_EQ(content((*pool_.slot(a))->state()), pattern(kBytes, 1));
}

TEST_F(SsmStatePoolTest, ASnapshotOfAnotherShapeIsRefusedAndChangesNothing) {
  const SlotId id = used(42, 1, 7);
  auto other = SsmStatePool::create(device_, 1, StateShape{.num_layers = 2, .conv_bytes = 64, .ssm_bytes = 128});
  const SlotId theirs = *other->alloc(1);
  EXPECT_TRUE(refused(pool_.restore(id, *other->snapshot(theirs)), Code::ShapeMismatch));
  EXPECT_EQ((*pool_.slot(id))->position(), 7u);
  EXPECT_EQ(content((*pool_.slot(id))->state()), pattern(kBytes, 1));
}

TEST(SsmStatePool, SlotsOfDifferentShapesFromAFactoryCannotBeCopiedIntoEachOther) {
  HostDevice device;
  auto pool = SsmStatePool::create(2, [&](std::uint32_t index) {
    return SequenceState::create(device, StateShape{.num_layers = 1, .conv_bytes = 64, .ssm_bytes = 64 + index});
  });
  ASSERT_TRUE(done(pool));
  const SlotId a = *pool->alloc(1), b = *pool->alloc(2);
  EXPECT_TRUE(refused(pool->copy(a, b), Code::ShapeMismatch));
}

TEST(SsmStatePool, AFactorysStateThatIsNotZeroIsZeroWhenHandedOut) {
  HostDevice device;
  auto pool = SsmStatePool::create(1, [&](std::uint32_t) {
    auto state = SequenceState::create(device, kShape);
    fill(*state, 1);
    (void)state->advance(5);
    return state;
  });
  ASSERT_TRUE(done(pool));
  const SequenceSlot* slot = *pool->slot(*pool->alloc(1));
  EXPECT_EQ(slot->position(), 0u);
  EXPECT_TRUE(all_zero(content(slot->state())));
}

TEST_F(SsmStatePoolTest, ASlotThatTheDeviceRefusedToZeroIsZeroedBeforeItIsHandedOut) {
  const SlotId id = used(42, 1, 7);
  device_.fail_after(0);
  ASSERT_TRUE(done(pool_.release(id)));
  EXPECT_EQ((*pool_.slot_at(id.index))->request(), 0u);
  EXPECT_EQ((*pool_.slot_at(id.index))->position(), 0u);
  const SlotId now = *pool_.alloc(43);
  ASSERT_EQ(now.index, id.index);
  EXPECT_TRUE(all_zero(content((*pool_.slot(now))->state())));
}

TEST_F(SsmStatePoolTest, AllocThatCannotZeroASlotTakesNone) {
  const SlotId id = used(42, 1, 7);
  device_.fail_after(0);
  ASSERT_TRUE(done(pool_.release(id)));
  device_.fail_after(0);
  EXPECT_TRUE(refused(pool_.alloc(43), Code::DeviceFailure));
  EXPECT_EQ(pool_.free_count(), 4u);
  EXPECT_TRUE(adds_up());
}

TEST_F(SsmStatePoolTest, AKeptSlotIsNobodysAndKeepsItsContentUntilItIsDropped) {
  const SlotId id = used(42, 1, 7);
  ASSERT_TRUE(done(pool_.keep(id)));
  EXPECT_EQ((*pool_.slot_at(id.index))->request(), 0u);
  EXPECT_EQ((*pool_.slot_at(id.index))->position(), 7u);
  EXPECT_EQ(content((*pool_.slot_at(id.index))->state()), pattern(kBytes, 1));
  EXPECT_EQ(pool_.used_count(), 1u);  // cached is not free
  EXPECT_TRUE(refused_at(pool_.release(id.index), Code::InvalidSlot, id.index));
  ASSERT_TRUE(done(pool_.drop(id)));
  EXPECT_EQ(pool_.free_count(), 4u);
  EXPECT_TRUE(all_zero(content((*pool_.slot_at(id.index))->state())));
  EXPECT_TRUE(refused(pool_.drop(id), Code::StaleId));
}

TEST(SsmStatePool, InASharedArenaASlotIsZeroAlsoAfterOthersUsedItsSlab) {
  HostDevice device;
  Arena arena = *Arena::create(device, 2 * kBytes, 2);
  SsmStatePool pool(arena, 1, kShape);
  EXPECT_EQ(pool.capacity(), 4u);
  const SlotId old = *pool.alloc(1);
  ASSERT_TRUE(done(pool.release(old)));
  EXPECT_EQ(arena.free_slabs(), 2u);
  const auto slab = arena.take(0);  // another class overwrites it
  std::fill_n(arena.base() + *slab * arena.slab_bytes(), arena.slab_bytes(), std::byte{0xEE});
  arena.give(*slab);
  const SlotId now = *pool.alloc(2);
  ASSERT_EQ(now.index, old.index);
  EXPECT_TRUE(all_zero(content((*pool.slot(now))->state())));
  EXPECT_TRUE(sound(pool.allocator()));
}

}  // namespace
}  // namespace quire
