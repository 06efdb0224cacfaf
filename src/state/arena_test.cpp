// One arena from one byte budget: how it is cut into slabs, and how slabs change hands.
#include "quire/state/arena.h"

#include <array>
#include <vector>

#include <gtest/gtest.h>

#include "quire/state/behaviour_testing.h"
#include "quire/state/counting_device_testing.h"

namespace quire {
namespace {

using testing::all_zero;
using testing::Code;
using testing::done;
using testing::refused;
using testing::refused_with;

TEST(SlabPlan, OneClassOfObjectsGetsTheWholeBudgetAsOneSlab) {
  const std::array<std::uint64_t, 1> sizes{192};
  const auto plan = plan_slabs(1000, sizes);
  ASSERT_TRUE(done(plan));
  EXPECT_EQ(plan->slabs, 1u);
  EXPECT_EQ(plan->slab_bytes, 960u);  // five objects
  EXPECT_DOUBLE_EQ(plan->worst_fill, 0.96);
}

TEST(SlabPlan, ASlabHoldsAtLeastOneObjectOfEveryClass) {
  const std::array<std::uint64_t, 3> sizes{64, 4096, 640};
  const auto plan = plan_slabs(1 << 20, sizes);
  ASSERT_TRUE(done(plan));
  EXPECT_GE(plan->slab_bytes, 4096u);
  EXPECT_GT(plan->slabs, 1u);
  EXPECT_LE(plan->slab_bytes * plan->slabs, 1u << 20);
}

TEST(SlabPlan, AnyClassCanFillMostOfTheBudget) {
  // Sizes of pages and states of real models, and awkward ones.
  const std::vector<std::vector<std::uint64_t>> models{{65536, 1048576},
                                                       {2048 * 28, 2048 * 28 * 19},
                                                       {1 << 17, 3 << 19},
                                                       {64 * 7, 64 * 101},
                                                       {64 * 33, 64 * 1000, 64 * 77}};
  for (const auto& sizes : models) {
    const auto plan = plan_slabs(std::uint64_t{1} << 30, sizes);
    ASSERT_TRUE(done(plan));
    EXPECT_GE(plan->worst_fill, 0.95);
    EXPECT_GE(plan->slabs, 64u);  // a slab is the unit in which memory changes hands
    for (const std::uint64_t bytes : sizes) {
      const double useful = static_cast<double>(plan->slab_bytes / bytes * bytes) * plan->slabs / (1 << 30);
      EXPECT_GE(useful, plan->worst_fill - 1e-9);
    }
  }
}

TEST(SlabPlan, ABudgetTooSmallForOneObjectIsExhausted) {
  const std::array<std::uint64_t, 2> sizes{64, 640};
  EXPECT_TRUE(refused_with(plan_slabs(639, sizes), Code::Exhausted, 640, 639));
  EXPECT_TRUE(done(plan_slabs(640, sizes)));
}

TEST(SlabPlan, SizesThatAreZeroOrNotAlignedAreRefused) {
  EXPECT_TRUE(refused(plan_slabs(1000, std::array<std::uint64_t, 1>{0}), Code::InvalidArgument));
  EXPECT_TRUE(refused(plan_slabs(1000, std::array<std::uint64_t, 1>{100}), Code::InvalidArgument));
  EXPECT_TRUE(refused(plan_slabs(1000, {}), Code::InvalidArgument));
}

TEST(Arena, TakesAllItsMemoryZeroedInOneAllocation) {
  CountingDevice device;
  {
    const auto arena = Arena::create(device, 256, 4);
    ASSERT_TRUE(done(arena));
    EXPECT_EQ(device.counts().allocations, 1u);
    EXPECT_EQ(device.counts().live_bytes, 1024u);
    EXPECT_TRUE(all_zero({arena->base(), 1024}));
    EXPECT_EQ(arena->total_slabs(), 4u);
    EXPECT_EQ(arena->free_slabs(), 4u);
    EXPECT_EQ(arena->slab_bytes(), 256u);
  }
  EXPECT_EQ(device.counts().live_bytes, 0u);
}

TEST(Arena, MoreBytesThanCanBeCountedAreRefused) {
  CountingDevice device;
  EXPECT_TRUE(refused(Arena::create(device, std::uint64_t{1} << 62, 8), Code::InvalidArgument));
  EXPECT_EQ(device.counts().allocations, 0u);
}

TEST(Arena, ASlabBelongsToOneClassAtATimeUntilItIsGivenBack) {
  HostDevice device;
  auto arena = Arena::create(device, 256, 2);
  EXPECT_EQ(arena->take(7), 0u);
  EXPECT_FALSE(arena->is_free(0));
  EXPECT_EQ(arena->owner(0), 7u);
  EXPECT_TRUE(arena->is_free(1));
  EXPECT_EQ(arena->take(3), 1u);
  EXPECT_EQ(arena->owner(1), 3u);
  EXPECT_EQ(arena->free_slabs(), 0u);
  EXPECT_EQ(arena->take(7), std::nullopt);
  arena->give(0);
  EXPECT_TRUE(arena->is_free(0));
  EXPECT_EQ(arena->free_slabs(), 1u);
  EXPECT_EQ(arena->take(3), 0u);
  EXPECT_EQ(arena->owner(0), 3u);
}

TEST(Arena, TheSlabGivenBackLastIsTakenFirst) {
  HostDevice device;
  auto arena = Arena::create(device, 64, 4);
  for (int i = 0; i < 4; ++i) (void)arena->take(0);
  arena->give(1);
  arena->give(3);
  EXPECT_EQ(arena->take(0), 3u);
  EXPECT_EQ(arena->take(0), 1u);
}

TEST(Arena, TheTenancyTellsWhetherAnotherClassMayHaveWrittenThere) {
  HostDevice device;
  auto arena = Arena::create(device, 64, 1);
  (void)arena->take(0);
  EXPECT_EQ(arena->tenancy(0), 0u);
  arena->give(0);
  (void)arena->take(0);
  EXPECT_EQ(arena->tenancy(0), 0u);  // the same class again
  arena->give(0);
  (void)arena->take(1);
  EXPECT_EQ(arena->tenancy(0), 1u);
  arena->give(0);
  (void)arena->take(0);
  EXPECT_EQ(arena->tenancy(0), 2u);
}

TEST(Arena, TakingAndGivingSlabsAreEvents) {
  HostDevice device;
  EventLog events(8);
  auto arena = Arena::create(device, 64, 2, &events);
  (void)arena->take(5);
  arena->give(0);
  std::array<PoolEvent, 8> out;
  ASSERT_EQ(events.read(0, out).count, 2u);
  EXPECT_EQ(out[0].kind, PoolEvent::Kind::SlabTaken);
  EXPECT_EQ(out[0].group, 5u);
  EXPECT_EQ(out[0].object, 0u);
  EXPECT_EQ(out[1].kind, PoolEvent::Kind::SlabGiven);
  EXPECT_EQ(out[1].group, 5u);
}

TEST(Arena, AnArenaOfNoSlabsHasNothingToGive) {
  HostDevice device;
  auto arena = Arena::create(device, 64, 0);
  ASSERT_TRUE(done(arena));
  EXPECT_EQ(arena->take(0), std::nullopt);
}

}  // namespace
}  // namespace quire
