// Tests of BlockAllocator: ids of physical pages and their reference counts.
#include "quire/state/block_allocator.h"

#include <array>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "quire/state/behaviour_testing.h"
#include "quire/state/counting_device_testing.h"

namespace quire {
namespace {

using testing::Code;
using testing::done;
using testing::refused_at;
using testing::sound;

using State = BlockAllocator::State;

// All counts, to show that nothing changed.
struct Counts {
  std::uint32_t total, free, held, cached;
  std::uint64_t allocations;
  explicit Counts(const BlockAllocator& a)
      : total(a.total_count()),
        free(a.free_count()),
        held(a.held_count()),
        cached(a.cached_count()),
        allocations(a.allocations()) {}
  friend bool operator==(const Counts&, const Counts&) = default;
};

TEST(BlockAllocator, AllocateGivesAPageOrNothing) {
  BlockAllocator allocator(2);
  const auto a = allocator.allocate(), b = allocator.allocate();
  ASSERT_TRUE(a && b);
  EXPECT_NE(a->index, b->index);
  EXPECT_EQ(allocator.allocate(), std::nullopt);
  EXPECT_EQ(allocator.free_count(), 0u);
  EXPECT_EQ(allocator.total_count(), 2u);
  EXPECT_TRUE(done(allocator.free(*a)));
  EXPECT_TRUE(allocator.allocate().has_value());
  EXPECT_TRUE(sound(allocator));
}

TEST(BlockAllocator, NoTwoHeldPagesAreTheSame) {
  BlockAllocator allocator(100);
  std::set<std::uint32_t> indices;
  for (int i = 0; i < 100; ++i) indices.insert(allocator.allocate()->index);
  EXPECT_EQ(indices.size(), 100u);
  EXPECT_EQ(*indices.rbegin(), 99u);
}

TEST(BlockAllocator, AllocatingSeveralTakesAllOrNothing) {
  BlockAllocator allocator(5);
  std::array<PageId, 3> three;
  ASSERT_TRUE(allocator.allocate(three));
  EXPECT_EQ(allocator.free_count(), 2u);
  const Counts before(allocator);
  std::array<PageId, 3> more;
  EXPECT_FALSE(allocator.allocate(more));
  EXPECT_EQ(Counts(allocator), before);
  EXPECT_FALSE(more[0].valid());
  EXPECT_TRUE(allocator.allocate(std::span(more).first(2)));
  EXPECT_EQ(allocator.free_count(), 0u);
  EXPECT_TRUE(allocator.allocate(std::span<PageId>()));
  EXPECT_TRUE(sound(allocator));
}

TEST(BlockAllocator, AcquireAddsAReferenceAndFreeDropsOne) {
  BlockAllocator allocator(1);
  const PageId page = *allocator.allocate();
  EXPECT_EQ(*allocator.references(page), 1u);
  EXPECT_TRUE(done(allocator.acquire(page)));
  EXPECT_TRUE(done(allocator.acquire(page)));
  EXPECT_EQ(*allocator.references(page), 3u);
  EXPECT_TRUE(done(allocator.free(page)));
  EXPECT_TRUE(done(allocator.free(page)));
  EXPECT_EQ(*allocator.references(page), 1u);
  EXPECT_EQ(allocator.free_count(), 0u);
  EXPECT_EQ(allocator.held_count(), 1u);
  EXPECT_TRUE(done(allocator.free(page)));
  EXPECT_EQ(allocator.free_count(), 1u);
  EXPECT_EQ(allocator.held_count(), 0u);
}

TEST(BlockAllocator, FreeingAFreePageIsAnErrorAndChangesNothing) {
  BlockAllocator allocator(2);
  const PageId page = *allocator.allocate();
  ASSERT_TRUE(done(allocator.free(page)));
  const Counts before(allocator);
  // With its former id, and with the id it would have now.
  EXPECT_TRUE(refused_at(allocator.free(page), Code::StaleId, page.index));
  EXPECT_TRUE(refused_at(allocator.free(allocator.id_of(page.index)), Code::InvalidPage, page.index));
  EXPECT_EQ(Counts(allocator), before);
  EXPECT_TRUE(sound(allocator));
  // The page must be in the free list only once.
  EXPECT_TRUE(allocator.allocate() && allocator.allocate());
  EXPECT_EQ(allocator.allocate(), std::nullopt);
}

TEST(BlockAllocator, APageThatWasNeverHandedOutCannotBeFreed) {
  BlockAllocator allocator(2);
  EXPECT_TRUE(refused_at(allocator.free(PageId{1, 0}), Code::InvalidPage, 1));
  EXPECT_EQ(allocator.free_count(), 2u);
}

TEST(BlockAllocator, APageOutOfRangeIsAnErrorAndChangesNothing) {
  BlockAllocator allocator(2);
  (void)allocator.allocate();
  const Counts before(allocator);
  for (const std::uint32_t index : {2u, 100u, kNoIndex}) {
    const PageId beyond{index, 0};
    EXPECT_TRUE(refused_at(allocator.free(beyond), Code::InvalidPage, index));
    EXPECT_TRUE(refused_at(allocator.acquire(beyond), Code::InvalidPage, index));
    EXPECT_TRUE(refused_at(allocator.keep(beyond), Code::InvalidPage, index));
    EXPECT_TRUE(refused_at(allocator.drop(beyond), Code::InvalidPage, index));
    EXPECT_TRUE(refused_at(allocator.pin(beyond), Code::InvalidPage, index));
    EXPECT_TRUE(refused_at(allocator.references(beyond), Code::InvalidPage, index));
    EXPECT_TRUE(refused_at(allocator.state(beyond), Code::InvalidPage, index));
    EXPECT_FALSE(allocator.is_live(beyond));
  }
  EXPECT_EQ(Counts(allocator), before);
  EXPECT_TRUE(sound(allocator));
}

TEST(BlockAllocator, AStaleIdIsAnErrorAndChangesNothing) {
  BlockAllocator allocator(1);
  const PageId old = *allocator.allocate();
  ASSERT_TRUE(done(allocator.free(old)));
  const PageId now = *allocator.allocate();
  ASSERT_EQ(now.index, old.index);
  ASSERT_NE(now, old);
  const Counts before(allocator);
  EXPECT_TRUE(refused_at(allocator.free(old), Code::StaleId, 0));
  EXPECT_TRUE(refused_at(allocator.acquire(old), Code::StaleId, 0));
  EXPECT_TRUE(refused_at(allocator.keep(old), Code::StaleId, 0));
  EXPECT_TRUE(refused_at(allocator.drop(old), Code::StaleId, 0));
  EXPECT_TRUE(refused_at(allocator.pin(old), Code::StaleId, 0));
  EXPECT_TRUE(refused_at(allocator.references(old), Code::StaleId, 0));
  EXPECT_TRUE(refused_at(allocator.state(old), Code::StaleId, 0));
  EXPECT_FALSE(allocator.is_live(old));
  EXPECT_EQ(Counts(allocator), before);
  EXPECT_EQ(*allocator.references(now), 1u);
}

TEST(BlockAllocator, ThePageFreedLastIsTheNextOneHandedOut) {
  BlockAllocator allocator(8);
  std::array<PageId, 8> pages;
  ASSERT_TRUE(allocator.allocate(pages));
  ASSERT_TRUE(done(allocator.free(pages[2])));
  ASSERT_TRUE(done(allocator.free(pages[6])));
  EXPECT_EQ(allocator.allocate()->index, pages[6].index);
  EXPECT_EQ(allocator.allocate()->index, pages[2].index);
}

TEST(BlockAllocator, UtilizationIsTheShareOfPagesThatAreNotFree) {
  BlockAllocator allocator(4);
  EXPECT_DOUBLE_EQ(allocator.utilization(), 0.0);
  std::array<PageId, 4> pages;
  ASSERT_TRUE(allocator.allocate(std::span(pages).first(3)));
  EXPECT_DOUBLE_EQ(allocator.utilization(), 0.75);
  ASSERT_TRUE(allocator.allocate(std::span(pages).last(1)));
  EXPECT_DOUBLE_EQ(allocator.utilization(), 1.0);
  ASSERT_TRUE(done(allocator.keep(pages[0])));
  ASSERT_TRUE(done(allocator.free(pages[0])));
  EXPECT_DOUBLE_EQ(allocator.utilization(), 1.0);  // cached is not free
}

TEST(BlockAllocator, APoolOfNoPagesIsExhaustedAndItsUtilizationIsZero) {
  BlockAllocator allocator(0);
  EXPECT_EQ(allocator.allocate(), std::nullopt);
  PageId page;
  EXPECT_FALSE(allocator.allocate(std::span(&page, 1)));
  EXPECT_EQ(allocator.total_count(), 0u);
  EXPECT_EQ(allocator.free_count(), 0u);
  EXPECT_EQ(allocator.utilization(), 0.0);
  EXPECT_TRUE(refused_at(allocator.free(PageId{0, 0}), Code::InvalidPage, 0));
  EXPECT_TRUE(sound(allocator));
}

TEST(BlockAllocator, AKeptPageIsCachedWhenItsLastHolderLeaves) {
  BlockAllocator allocator(2);
  const PageId page = *allocator.allocate();
  ASSERT_TRUE(done(allocator.keep(page)));
  EXPECT_EQ(*allocator.state(page), State::Held);
  ASSERT_TRUE(done(allocator.free(page)));
  EXPECT_EQ(*allocator.state(page), State::Cached);
  EXPECT_EQ(*allocator.references(page), 0u);
  EXPECT_EQ(allocator.cached_count(), 1u);
  EXPECT_EQ(allocator.held_count(), 0u);
  EXPECT_EQ(allocator.free_count(), 1u);
  EXPECT_TRUE(allocator.is_live(page));
  EXPECT_TRUE(sound(allocator));
}

TEST(BlockAllocator, ACachedPageIsNotHandedOut) {
  BlockAllocator allocator(1);
  const PageId page = *allocator.allocate();
  ASSERT_TRUE(done(allocator.keep(page)));
  ASSERT_TRUE(done(allocator.free(page)));
  EXPECT_EQ(allocator.allocate(), std::nullopt);
  PageId out;
  EXPECT_FALSE(allocator.allocate(std::span(&out, 1)));
}

TEST(BlockAllocator, AcquireRevivesACachedPageUnderItsOldId) {
  BlockAllocator allocator(1);
  const PageId page = *allocator.allocate();
  ASSERT_TRUE(done(allocator.keep(page)));
  ASSERT_TRUE(done(allocator.free(page)));
  ASSERT_TRUE(done(allocator.acquire(page)));
  EXPECT_EQ(*allocator.state(page), State::Held);
  EXPECT_EQ(*allocator.references(page), 1u);
  EXPECT_EQ(allocator.cached_count(), 0u);
  EXPECT_FALSE(allocator.oldest_cached().valid());
  ASSERT_TRUE(done(allocator.free(page)));
  EXPECT_EQ(*allocator.state(page), State::Cached);  // still marked
}

TEST(BlockAllocator, FreeingACachedPageIsAnErrorAndChangesNothing) {
  BlockAllocator allocator(1);
  const PageId page = *allocator.allocate();
  ASSERT_TRUE(done(allocator.keep(page)));
  ASSERT_TRUE(done(allocator.free(page)));
  EXPECT_TRUE(refused_at(allocator.free(page), Code::InvalidPage, page.index));
  EXPECT_EQ(*allocator.state(page), State::Cached);
  EXPECT_TRUE(sound(allocator));
}

TEST(BlockAllocator, CachedPagesStandTheLongestUnheldFirst) {
  BlockAllocator allocator(3);
  std::array<PageId, 3> pages;
  ASSERT_TRUE(allocator.allocate(pages));
  for (const PageId page : pages) ASSERT_TRUE(done(allocator.keep(page)));
  ASSERT_TRUE(done(allocator.free(pages[1])));
  ASSERT_TRUE(done(allocator.free(pages[0])));
  ASSERT_TRUE(done(allocator.free(pages[2])));
  EXPECT_EQ(allocator.oldest_cached(), pages[1]);
  ASSERT_TRUE(done(allocator.acquire(pages[1])));  // used again: now it is the most recent
  ASSERT_TRUE(done(allocator.free(pages[1])));
  EXPECT_EQ(allocator.oldest_cached(), pages[0]);
  ASSERT_TRUE(done(allocator.drop(pages[0])));
  EXPECT_EQ(allocator.oldest_cached(), pages[2]);
  ASSERT_TRUE(done(allocator.drop(pages[2])));
  EXPECT_EQ(allocator.oldest_cached(), pages[1]);
  EXPECT_TRUE(sound(allocator));
}

TEST(BlockAllocator, DroppingACachedPageFreesItAndAHeldOneWhenItsHolderLeaves) {
  BlockAllocator allocator(2);
  const PageId cached = *allocator.allocate(), held = *allocator.allocate();
  for (const PageId page : {cached, held}) ASSERT_TRUE(done(allocator.keep(page)));
  ASSERT_TRUE(done(allocator.free(cached)));
  ASSERT_TRUE(done(allocator.drop(cached)));
  EXPECT_EQ(allocator.free_count(), 1u);
  EXPECT_FALSE(allocator.is_live(cached));
  ASSERT_TRUE(done(allocator.drop(held)));
  EXPECT_EQ(*allocator.state(held), State::Held);
  ASSERT_TRUE(done(allocator.free(held)));
  EXPECT_EQ(allocator.free_count(), 2u);
  EXPECT_EQ(allocator.cached_count(), 0u);
  EXPECT_TRUE(sound(allocator));
}

TEST(BlockAllocator, OnlyAKeptPageCanBeDroppedAndOnlyAHeldOneKept) {
  BlockAllocator allocator(2);
  const PageId page = *allocator.allocate();
  EXPECT_TRUE(refused_at(allocator.drop(page), Code::InvalidPage, page.index));
  EXPECT_EQ(*allocator.references(page), 1u);
  EXPECT_TRUE(refused_at(allocator.keep(allocator.id_of(1)), Code::InvalidPage, 1));
  ASSERT_TRUE(done(allocator.keep(page)));
  ASSERT_TRUE(done(allocator.free(page)));
  EXPECT_TRUE(refused_at(allocator.keep(page), Code::InvalidPage, page.index));
}

TEST(BlockAllocator, FreeHeldAndCachedAlwaysAddUpToTheTotal) {
  BlockAllocator allocator(6);
  std::vector<PageId> pages;
  const auto adds_up = [&] {
    return allocator.free_count() + allocator.held_count() + allocator.cached_count() == 6 &&
           allocator.total_count() == 6 && allocator.check_integrity().has_value();
  };
  for (int i = 0; i < 6; ++i) {
    pages.push_back(*allocator.allocate());
    EXPECT_TRUE(adds_up());
  }
  for (int i = 0; i < 6; ++i) {
    if (i % 2 == 0) (void)allocator.keep(pages[i]);
    (void)allocator.free(pages[i]);
    EXPECT_TRUE(adds_up());
  }
  EXPECT_EQ(allocator.cached_count(), 3u);
  (void)allocator.acquire(pages[2]);
  EXPECT_TRUE(adds_up());
  (void)allocator.drop(pages[0]);
  EXPECT_TRUE(adds_up());
  EXPECT_EQ(allocator.free_count(), 4u);
}

TEST(BlockAllocator, RemembersHowManyPagesWereInUseAtOnce) {
  BlockAllocator allocator(4);
  const PageId a = *allocator.allocate(), b = *allocator.allocate();
  ASSERT_TRUE(done(allocator.keep(a)));
  ASSERT_TRUE(done(allocator.free(a)));  // cached counts
  const PageId c = *allocator.allocate();
  ASSERT_TRUE(done(allocator.free(b)));
  ASSERT_TRUE(done(allocator.free(c)));
  EXPECT_EQ(allocator.high_water(), 3u);
  EXPECT_EQ(allocator.allocations(), 3u);
}

TEST(BlockAllocator, TellsTheLogWhatHappensToPages) {
  EventLog events(16);
  BlockAllocator allocator(1, &events);
  const PageId page = *allocator.allocate();
  (void)allocator.acquire(page);
  (void)allocator.keep(page);
  (void)allocator.free(page);
  (void)allocator.free(page);
  (void)allocator.acquire(page);
  (void)allocator.free(page);
  (void)allocator.drop(page);
  const PageId again = *allocator.allocate();
  (void)allocator.free(again);
  std::array<PoolEvent, 16> out;
  const auto read = events.read(0, out);
  using Kind = PoolEvent::Kind;
  const std::vector<Kind> expected{Kind::PageTaken,  Kind::PageShared,  Kind::PageCached, Kind::PageRevived,
                                   Kind::PageCached, Kind::PageEvicted, Kind::PageTaken,  Kind::PageFreed};
  ASSERT_EQ(read.count, expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(out[i].kind, expected[i]) << i;
    EXPECT_EQ(out[i].object, page.index);
  }
  EXPECT_EQ(out[1].detail, 2u);  // holders
}

// --- sharing an arena

class BlockAllocatorInAnArena : public ::testing::Test {
 protected:
  HostDevice device_;
  Arena arena_ = *Arena::create(device_, 256, 3);
  BlockAllocator small_{arena_, 0, 4};  // four pages to a slab
  BlockAllocator large_{arena_, 1, 1};  // one
};

TEST_F(BlockAllocatorInAnArena, AnAllocatorTakesASlabWhenItNeedsOneAndGivesItBackWithItsLastPage) {
  EXPECT_EQ(small_.total_count(), 12u);
  EXPECT_EQ(arena_.free_slabs(), 3u);
  std::array<PageId, 5> pages;
  ASSERT_TRUE(small_.allocate(pages));
  EXPECT_EQ(arena_.free_slabs(), 1u);
  EXPECT_EQ(small_.attached_free_count(), 3u);
  ASSERT_TRUE(done(small_.free(pages[4])));
  EXPECT_EQ(arena_.free_slabs(), 2u);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(done(small_.free(pages[i])));
  EXPECT_EQ(arena_.free_slabs(), 3u);
  EXPECT_TRUE(sound(small_));
}

TEST_F(BlockAllocatorInAnArena, ClassesCompeteForSlabsAndTheirTotalsSayWhatTheyCouldHaveNow) {
  const PageId big = *large_.allocate();
  EXPECT_EQ(small_.total_count(), 8u);
  EXPECT_EQ(large_.total_count(), 3u);
  std::array<PageId, 8> pages;
  ASSERT_TRUE(small_.allocate(pages));
  EXPECT_EQ(small_.allocate(), std::nullopt);
  EXPECT_EQ(large_.allocate(), std::nullopt);
  EXPECT_EQ(large_.total_count(), 1u);
  ASSERT_TRUE(done(large_.free(big)));
  std::array<PageId, 4> more;
  EXPECT_TRUE(small_.allocate(more));
  EXPECT_EQ(small_.total_count(), 12u);
  EXPECT_EQ(large_.total_count(), 0u);
  EXPECT_TRUE(sound(small_));
  EXPECT_TRUE(sound(large_));
}

TEST_F(BlockAllocatorInAnArena, AllOrNothingCountsTheSlabsThatAreFree) {
  (void)large_.allocate();
  std::array<PageId, 9> nine;
  EXPECT_FALSE(small_.allocate(nine));
  EXPECT_EQ(small_.held_count(), 0u);
  EXPECT_EQ(arena_.free_slabs(), 2u);
}

TEST_F(BlockAllocatorInAnArena, IdsStayStaleWhileASlabIsAway) {
  const PageId old = *small_.allocate();
  ASSERT_TRUE(done(small_.free(old)));
  const PageId big = *large_.allocate();  // the same slab
  EXPECT_TRUE(refused_at(small_.free(old), Code::StaleId, old.index));
  ASSERT_TRUE(done(large_.free(big)));
  const PageId now = *small_.allocate();
  EXPECT_EQ(now.index, old.index);
  EXPECT_NE(now.generation, old.generation);
}

TEST_F(BlockAllocatorInAnArena, MovingAPageKeepsItsReferencesAndMarkUnderANewId) {
  std::array<PageId, 5> pages;
  ASSERT_TRUE(small_.allocate(pages));
  ASSERT_TRUE(done(small_.free(pages[1])));
  const PageId from = pages[4];
  ASSERT_TRUE(done(small_.acquire(from)));
  ASSERT_TRUE(done(small_.keep(from)));
  small_.close(from.index / 4);
  ASSERT_EQ(small_.next_free(), pages[1].index);
  const PageId to = small_.move(from);
  EXPECT_EQ(to.index, pages[1].index);
  EXPECT_EQ(*small_.references(to), 2u);
  EXPECT_TRUE(small_.is_kept(to.index));
  EXPECT_TRUE(refused_at(small_.references(from), Code::StaleId, from.index));
  EXPECT_EQ(arena_.free_slabs(), 2u);  // its slab became empty
  EXPECT_TRUE(sound(small_));
}

TEST_F(BlockAllocatorInAnArena, AMovedCachedPageKeepsItsPlaceInTheList) {
  std::array<PageId, 6> pages;
  ASSERT_TRUE(small_.allocate(pages));
  for (const int i : {3, 4, 5}) {
    ASSERT_TRUE(done(small_.keep(pages[i])));
    ASSERT_TRUE(done(small_.free(pages[i])));
  }
  ASSERT_TRUE(done(small_.free(pages[0])));
  small_.close(1);
  const PageId moved = small_.move(pages[4]);
  EXPECT_EQ(*small_.state(moved), State::Cached);
  EXPECT_EQ(small_.oldest_cached(), pages[3]);
  ASSERT_TRUE(done(small_.drop(pages[3])));
  EXPECT_EQ(small_.oldest_cached(), moved);
  ASSERT_TRUE(done(small_.drop(moved)));
  EXPECT_EQ(small_.oldest_cached(), pages[5]);
  EXPECT_TRUE(sound(small_));
}

TEST_F(BlockAllocatorInAnArena, ASlabWithAPinnedPageIsNotOfferedForMoving) {
  std::array<PageId, 5> pages;
  ASSERT_TRUE(small_.allocate(pages));
  EXPECT_EQ(small_.emptiest_movable_slab(), 1u);
  ASSERT_TRUE(done(small_.pin(pages[4])));
  EXPECT_EQ(small_.pinned_slabs(), 1u);
  EXPECT_EQ(small_.emptiest_movable_slab(), 0u);
  ASSERT_TRUE(done(small_.pin(pages[0])));
  EXPECT_EQ(small_.emptiest_movable_slab(), std::nullopt);
  ASSERT_TRUE(done(small_.free(pages[4])));
  EXPECT_EQ(small_.pinned_slabs(), 1u);
  EXPECT_TRUE(sound(small_));
}

TEST_F(BlockAllocatorInAnArena, AClosedSlabHandsOutNothingUntilItIsReopened) {
  std::array<PageId, 2> pages;
  ASSERT_TRUE(small_.allocate(pages));
  small_.close(0);
  EXPECT_EQ(small_.next_free(), kNoIndex);
  EXPECT_EQ(small_.allocate()->index / 4, 1u);
  small_.reopen(0);
  EXPECT_EQ(small_.allocate()->index / 4, 0u);
  EXPECT_TRUE(sound(small_));
}

TEST_F(BlockAllocatorInAnArena, ThePagesOfASlabCanBeWalked) {
  std::array<PageId, 4> pages;
  ASSERT_TRUE(small_.allocate(pages));
  ASSERT_TRUE(done(small_.free(pages[0])));
  ASSERT_TRUE(done(small_.free(pages[2])));
  EXPECT_EQ(small_.next_in_slab(0, 0), pages[1]);
  EXPECT_EQ(small_.next_in_slab(0, 2), pages[3]);
  EXPECT_FALSE(small_.next_in_slab(0, 4).valid());
}

}  // namespace
}  // namespace quire
