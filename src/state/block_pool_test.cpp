// Pages with their bytes.
#include "quire/state/block_pool.h"

#include <algorithm>
#include <array>
#include <type_traits>
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
using testing::sound;

// Pages of 2 layers x (K, V) x 2 heads x 4 tokens x 8 floats.
constexpr PageShape kShape{
    .block_size = 4, .num_layers = 2, .num_kv_heads = 2, .head_dim = 8, .type = ElementType::F32};
constexpr std::size_t kPageBytes = 1024;

void fill(const BlockPool& pool, PageId page, unsigned salt) {
  const auto bytes = pattern(kPageBytes, salt);
  std::copy(bytes.begin(), bytes.end(), *pool.data(page));
}
std::vector<std::byte> content(const BlockPool& pool, PageId page) { return bytes_at(*pool.data(page), kPageBytes); }

TEST(BlockPool, IsAlsoKnownAsKvCachePool) { static_assert(std::is_same_v<BlockPool, KvCachePool>); }

TEST(BlockPool, TakesAndZeroesEveryPageAtConstruction) {
  CountingDevice device;
  auto pool = BlockPool::create(device, 5, kShape);
  ASSERT_TRUE(done(pool));
  EXPECT_EQ(kShape.page_bytes(), kPageBytes);
  EXPECT_EQ(device.counts().allocations, 1u);
  EXPECT_EQ(device.counts().live_bytes, 5 * kPageBytes);
  EXPECT_EQ(pool->total_count(), 5u);
  EXPECT_EQ(pool->free_count(), 5u);
  const auto pages = pool->allocate(5u);
  ASSERT_TRUE(pages);
  for (const PageId page : *pages) EXPECT_TRUE(all_zero(content(*pool, page)));
}

TEST(BlockPool, NeverGrows) {
  CountingDevice device;
  auto pool = BlockPool::create(device, 2, kShape);
  device.reset_counts();
  ASSERT_TRUE(pool->allocate(2u));
  EXPECT_EQ(pool->allocate(), std::nullopt);
  EXPECT_EQ(pool->total_count(), 2u);
  EXPECT_EQ(device.counts().allocations, 0u);
  EXPECT_EQ(device.counts().live_bytes, 2 * kPageBytes);
}

TEST(BlockPool, AllocatingSeveralPagesGivesAllOrNothing) {
  HostDevice device;
  auto pool = BlockPool::create(device, 3, kShape);
  ASSERT_TRUE(pool->allocate());
  EXPECT_EQ(pool->allocate(3u), std::nullopt);
  EXPECT_EQ(pool->free_count(), 2u);
  const auto two = pool->allocate(2u);
  ASSERT_TRUE(two);
  EXPECT_EQ(two->size(), 2u);
  EXPECT_EQ(pool->free_count(), 0u);
  EXPECT_TRUE(pool->allocate(0u).has_value());
}

TEST(BlockPool, FreeingTwiceAStalePageOrOneOutOfRangeIsAnErrorAndChangesNothing) {
  for (const bool scrub : {false, true}) {
    HostDevice device;
    auto pool = BlockPool::create(device, 2, kShape, scrub);
    const PageId old = *pool->allocate();
    ASSERT_TRUE(done(pool->free(old)));
    EXPECT_TRUE(refused_at(pool->free(old), Code::StaleId, old.index));
    const PageId now = *pool->allocate();
    fill(*pool, now, 1);
    EXPECT_TRUE(refused_at(pool->free(old), Code::StaleId, old.index));
    EXPECT_TRUE(refused_at(pool->free(PageId{2, 0}), Code::InvalidPage, 2));
    EXPECT_TRUE(refused_at(pool->acquire(old), Code::StaleId, old.index));
    EXPECT_TRUE(refused_at(pool->drop(now), Code::InvalidPage, now.index));  // it is not kept
    EXPECT_EQ(pool->free_count(), 1u);
    EXPECT_EQ(content(*pool, now), pattern(kPageBytes, 1));
    EXPECT_TRUE(sound(pool->allocator()));
  }
}

TEST(BlockPool, UtilizationIsBetweenZeroAndOne) {
  HostDevice device;
  auto pool = BlockPool::create(device, 4, kShape);
  EXPECT_DOUBLE_EQ(pool->utilization(), 0.0);
  const PageId page = *pool->allocate();
  EXPECT_DOUBLE_EQ(pool->utilization(), 0.25);
  ASSERT_TRUE(pool->allocate(3u));
  EXPECT_DOUBLE_EQ(pool->utilization(), 1.0);
  ASSERT_TRUE(done(pool->free(page)));
  EXPECT_DOUBLE_EQ(pool->utilization(), 0.75);
}

TEST(BlockPool, APoolOfNoPagesIsExhaustedAndItsUtilizationIsZero) {
  CountingDevice device;
  auto pool = BlockPool::create(device, 0, kShape);
  ASSERT_TRUE(done(pool));
  EXPECT_EQ(pool->allocate(), std::nullopt);
  EXPECT_EQ(pool->total_count(), 0u);
  EXPECT_EQ(pool->free_count(), 0u);
  EXPECT_EQ(pool->utilization(), 0.0);
  EXPECT_EQ(device.counts().live_bytes, 0u);
}

TEST(BlockPool, FreedPagesKeepTheirBytes) {
  CountingDevice device;
  auto pool = BlockPool::create(device, 1, kShape);
  const PageId page = *pool->allocate();
  fill(*pool, page, 1);
  device.reset_counts();
  ASSERT_TRUE(done(pool->free(page)));
  EXPECT_EQ(device.counts().zeroes, 0u);
  EXPECT_EQ(content(*pool, *pool->allocate()), pattern(kPageBytes, 1));
}

TEST(BlockPool, ScrubbingZeroesAPageAsItIsFreed) {
  CountingDevice device;
  auto pool = BlockPool::create(device, 2, kShape, true);
  const PageId page = *pool->allocate(), other = *pool->allocate();
  fill(*pool, page, 1);
  fill(*pool, other, 2);
  device.reset_counts();
  ASSERT_TRUE(done(pool->free(page)));
  device.settle();
  EXPECT_EQ(device.counts().zeroes, 1u);
  EXPECT_EQ(device.counts().zeroed_bytes, kPageBytes);
  EXPECT_TRUE(all_zero(bytes_at(pool->address(page.index), kPageBytes)));
  EXPECT_EQ(content(*pool, other), pattern(kPageBytes, 2));
}

TEST(BlockPool, ScrubbingWaitsForTheLastHolderAndForTheContentToBeForgotten) {
  HostDevice device;
  auto pool = BlockPool::create(device, 1, kShape, true);
  const PageId page = *pool->allocate();
  fill(*pool, page, 1);
  ASSERT_TRUE(done(pool->acquire(page)));
  ASSERT_TRUE(done(pool->free(page)));
  EXPECT_EQ(content(*pool, page), pattern(kPageBytes, 1));
  ASSERT_TRUE(done(pool->allocator().keep(page)));
  ASSERT_TRUE(done(pool->free(page)));  // cached now
  EXPECT_EQ(content(*pool, page), pattern(kPageBytes, 1));
  ASSERT_TRUE(done(pool->drop(page)));
  EXPECT_EQ(pool->free_count(), 1u);
  EXPECT_TRUE(all_zero(bytes_at(pool->address(page.index), kPageBytes)));
}

TEST(BlockPool, ADeviceThatRefusesToScrubDoesNotKeepAPageFromBeingFreed) {
  CountingDevice device;
  auto pool = BlockPool::create(device, 1, kShape, true);
  const PageId page = *pool->allocate();
  device.fail_after(0);
  EXPECT_TRUE(done(pool->free(page)));
  EXPECT_EQ(pool->free_count(), 1u);
  EXPECT_EQ(pool->scrub_failures(), 1u);
}

TEST(BlockPool, APageIsOneRunOfBytesThatNoOtherPageTouches) {
  HostDevice device;
  auto pool = BlockPool::create(device, 4, kShape);
  const auto pages = *pool->allocate(4u);
  for (unsigned i = 0; i < 4; ++i) fill(*pool, pages[i], i);
  for (unsigned i = 0; i < 4; ++i) EXPECT_EQ(content(*pool, pages[i]), pattern(kPageBytes, i));
  for (const PageId page : pages) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pool->address(page.index)) % kObjectAlignment, 0u);
  }
}

TEST(BlockPool, ALocationTimesTheUnitIsWhereThePageLies) {
  HostDevice device;
  auto alone = BlockPool::create(device, 3, kShape);
  for (std::uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(alone->location(i), i);
    EXPECT_EQ(alone->base() + alone->location(i) * alone->unit(), alone->address(i));
  }
  // In an arena whose slabs are not a whole number of pages.
  auto arena = Arena::create(device, 2 * kPageBytes + 320, 3);
  BlockPool shared(*arena, 0, kShape, false);
  EXPECT_EQ(shared.total_count(), 6u);
  for (std::uint32_t i = 0; i < 6; ++i) {
    EXPECT_EQ(shared.address(i), arena->base() + i / 2 * arena->slab_bytes() + i % 2 * kPageBytes);
    EXPECT_EQ(shared.base() + shared.location(i) * shared.unit(), shared.address(i));
  }
}

TEST(BlockPool, TheBytesOfAPageThatIsNotLiveAreRefused) {
  HostDevice device;
  auto pool = BlockPool::create(device, 1, kShape);
  EXPECT_TRUE(refused_at(pool->data(PageId{0, 0}), Code::InvalidPage, 0));
  EXPECT_TRUE(refused_at(pool->data(PageId{1, 0}), Code::InvalidPage, 1));
  const PageId page = *pool->allocate();
  EXPECT_TRUE(done(pool->data(page)));
  ASSERT_TRUE(done(pool->free(page)));
  EXPECT_TRUE(refused_at(pool->data(page), Code::StaleId, 0));
}

TEST(BlockPool, CopyingAPageIsOneCopyOfItsBytes) {
  CountingDevice device;
  auto pool = BlockPool::create(device, 3, kShape);
  const auto pages = *pool->allocate(3u);
  for (unsigned i = 0; i < 3; ++i) fill(*pool, pages[i], i);
  device.reset_counts();
  ASSERT_TRUE(done(pool->copy_page(pages[1].index, pages[0].index)));
  device.settle();
  EXPECT_EQ(device.counts().copies, 1u);
  EXPECT_EQ(device.counts().copied_bytes, kPageBytes);
  EXPECT_EQ(content(*pool, pages[1]), pattern(kPageBytes, 0));
  EXPECT_EQ(content(*pool, pages[2]), pattern(kPageBytes, 2));
}

TEST(BlockPool, ImpossibleShapesAndSizesAreRefused) {
  CountingDevice device;
  PageShape shape = kShape;
  shape.head_dim = 0;
  EXPECT_TRUE(refused(BlockPool::create(device, 1, shape), Code::InvalidArgument));
  EXPECT_TRUE(refused(BlockPool::create(device, kNoIndex, kShape), Code::InvalidArgument));
  shape = {.block_size = 1 << 14,
           .num_layers = 1 << 6,
           .num_kv_heads = 1 << 6,
           .head_dim = 1 << 12,
           .type = ElementType::I8};
  ASSERT_TRUE(done(shape.check()));
  EXPECT_TRUE(refused(BlockPool::create(device, kNoIndex - 1, shape), Code::InvalidArgument));
  EXPECT_EQ(device.counts().allocations, 0u);
}

TEST(BlockPool, APoolThatDoesNotFitFailsWhenItIsMade) {
  CountingDevice device;
  device.fail_after(0);
  EXPECT_TRUE(refused(BlockPool::create(device, 4, kShape), Code::DeviceFailure));
  EXPECT_EQ(device.counts().live_bytes, 0u);
}

}  // namespace
}  // namespace quire
