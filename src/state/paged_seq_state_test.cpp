// One sequence's pages: the table on the host, its mirror on the device, and the length.
#include "quire/state/paged_seq_state.h"

#include <algorithm>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "quire/state/behaviour_testing.h"
#include "quire/state/counting_device_testing.h"

namespace quire {
namespace {

using testing::bytes_at;
using testing::Code;
using testing::done;
using testing::pattern;
using testing::refused;
using testing::refused_with;
using testing::sound;

// Pages of 2 layers x (K, V) x 2 heads x 4 tokens x 8 floats.
constexpr PageShape kShape{
    .block_size = 4, .num_layers = 2, .num_kv_heads = 2, .head_dim = 8, .type = ElementType::F32};
constexpr std::size_t kPageBytes = 1024;

class PagedSeqStateTest : public ::testing::Test {
 protected:
  explicit PagedSeqStateTest(std::uint32_t pages = 8) : pool_(*BlockPool::create(device_, pages, kShape)) {}

  PagedSeqState make(std::uint32_t max_blocks = 6) { return *PagedSeqState::create(pool_, max_blocks); }
  // What a kernel would find in the device's table.
  std::vector<std::uint32_t> mirror(const PagedSeqState& state) {
    device_.settle();
    return {state.device_table(), state.device_table() + state.table().size()};
  }
  std::uint32_t device_length(const PagedSeqState& state) {
    device_.settle();
    return *state.device_length();
  }
  static std::vector<std::uint32_t> indices(const PagedSeqState& state) {
    std::vector<std::uint32_t> result;
    for (const PageId page : state.table().pages()) result.push_back(page.index);
    return result;
  }
  void fill(PageId page, unsigned salt) {
    const auto bytes = pattern(kPageBytes, salt);
    std::copy(bytes.begin(), bytes.end(), *pool_.data(page));
  }
  std::vector<std::byte> content(PageId page) {
    device_.settle();
    return bytes_at(*pool_.data(page), kPageBytes);
  }

  CountingDevice device_;
  BlockPool pool_;
};

TEST_F(PagedSeqStateTest, IsCreatedWithoutTouchingTheAllocator) {
  device_.reset_counts();
  const PagedSeqState state = make(6);
  EXPECT_EQ(pool_.free_count(), 8u);
  EXPECT_EQ(pool_.allocator().allocations(), 0u);
  EXPECT_EQ(device_.counts().uploads, 0u);
  EXPECT_EQ(state.length(), 0u);
  EXPECT_EQ(state.capacity(), 0u);
  EXPECT_EQ(state.table().size(), 0u);
}

TEST_F(PagedSeqStateTest, EnsureCapacityTakesTheMissingPagesAndNoMore) {
  PagedSeqState state = make();
  ASSERT_TRUE(done(state.ensure_capacity(5)));
  EXPECT_EQ(state.table().size(), 2u);
  EXPECT_EQ(state.capacity(), 8u);
  EXPECT_EQ(pool_.free_count(), 6u);
  EXPECT_EQ(state.length(), 0u);  // room is not length
  ASSERT_TRUE(done(state.ensure_capacity(9)));
  EXPECT_EQ(state.table().size(), 3u);
  EXPECT_EQ(pool_.free_count(), 5u);
  for (const PageId page : state.table().pages()) EXPECT_EQ(*pool_.allocator().references(page), 1u);
}

TEST_F(PagedSeqStateTest, EnsureCapacityUploadsOnlyTheChangedPartOfTheTable) {
  PagedSeqState state = make();
  device_.reset_counts();
  ASSERT_TRUE(done(state.ensure_capacity(12)));
  EXPECT_EQ(device_.counts().uploads, 1u);
  EXPECT_EQ(device_.counts().uploaded_bytes, 3 * sizeof(std::uint32_t));
  device_.reset_counts();
  ASSERT_TRUE(done(state.ensure_capacity(13)));
  EXPECT_EQ(device_.counts().uploads, 1u);
  EXPECT_EQ(device_.counts().uploaded_bytes, 1 * sizeof(std::uint32_t));
  EXPECT_EQ(mirror(state), indices(state));
}

TEST_F(PagedSeqStateTest, ASecondCallForTheSameLengthAllocatesAndUploadsNothing) {
  PagedSeqState state = make();
  ASSERT_TRUE(done(state.ensure_capacity(10)));
  device_.reset_counts();
  const auto allocations = pool_.allocator().allocations();
  EXPECT_TRUE(done(state.ensure_capacity(10)));
  EXPECT_TRUE(done(state.ensure_capacity(12)));  // the same page
  EXPECT_TRUE(done(state.ensure_capacity(3)));
  EXPECT_TRUE(done(state.ensure_capacity(0)));
  EXPECT_EQ(pool_.allocator().allocations(), allocations);
  EXPECT_EQ(device_.counts().uploads, 0u);
  EXPECT_EQ(device_.counts().copies, 0u);
  EXPECT_EQ(state.table().size(), 3u);
}

TEST_F(PagedSeqStateTest, EnsureCapacityTakesAllPagesOrNone) {
  PagedSeqState state = make(), other = make();
  ASSERT_TRUE(done(other.ensure_capacity(20)));  // five of eight
  ASSERT_TRUE(done(state.ensure_capacity(4)));
  device_.reset_counts();
  const auto before = indices(state);
  EXPECT_TRUE(refused_with(state.ensure_capacity(16), Code::Exhausted, 3, 2));
  EXPECT_EQ(indices(state), before);
  EXPECT_EQ(mirror(state), before);
  EXPECT_EQ(pool_.free_count(), 2u);
  EXPECT_EQ(device_.counts().uploads, 0u);
  EXPECT_TRUE(done(state.ensure_capacity(12)));
  EXPECT_EQ(pool_.free_count(), 0u);
}

TEST_F(PagedSeqStateTest, BeyondTheMostBlocksASequenceMayHaveIsAnErrorThatSaysSo) {
  PagedSeqState state = make(3);
  ASSERT_TRUE(done(state.ensure_capacity(12)));
  const auto result = state.ensure_capacity(13);
  ASSERT_TRUE(refused_with(result, Code::TooLong, 4, 3));
  EXPECT_EQ(result.error().message(), "a sequence may have 3 blocks, 4 were wanted");
  EXPECT_TRUE(refused(state.ensure_capacity(UINT32_MAX), Code::TooLong));
  EXPECT_EQ(state.table().size(), 3u);
  EXPECT_EQ(pool_.free_count(), 5u);
}

TEST_F(PagedSeqStateTest, SyncContextLenMirrorsTheLength) {
  PagedSeqState state = make();
  EXPECT_EQ(device_length(state), 0u);
  ASSERT_TRUE(done(state.ensure_capacity(8)));
  device_.reset_counts();
  ASSERT_TRUE(done(state.sync_context_len(5)));
  EXPECT_EQ(state.length(), 5u);
  EXPECT_EQ(device_length(state), 5u);
  EXPECT_EQ(device_.counts().uploads, 1u);
  EXPECT_EQ(device_.counts().uploaded_bytes, sizeof(std::uint32_t));
}

// An asynchronous device may read host memory at any time before the fence, while the pool changes its tables. The
// device of these tests stops the program if a buffer was changed before the fence.
TEST_F(PagedSeqStateTest, TablesAndLengthsAreUploadedFromMemoryThatStaysAsItIs) {
  PagedSeqState state = make();
  ASSERT_TRUE(done(state.ensure_capacity(12)));
  ASSERT_TRUE(done(state.sync_context_len(9)));
  state.truncate(3);
  ASSERT_TRUE(done(state.ensure_capacity(24)));
  ASSERT_TRUE(done(state.sync_context_len(5)));
  ASSERT_TRUE(done(device_.fence()));
  EXPECT_EQ(mirror(state), indices(state));
  EXPECT_EQ(*state.device_length(), 5u);
}

TEST_F(PagedSeqStateTest, ALengthBeyondTheCapacityIsRefused) {
  PagedSeqState state = make();
  ASSERT_TRUE(done(state.ensure_capacity(8)));
  ASSERT_TRUE(done(state.sync_context_len(2)));
  EXPECT_TRUE(refused_with(state.sync_context_len(9), Code::NotReserved, 9, 8));
  EXPECT_EQ(state.length(), 2u);
  EXPECT_EQ(device_length(state), 2u);
}

TEST_F(PagedSeqStateTest, ReleaseGivesEveryPageBackKeepsTheBuffersAndSetsTheLengthToZero) {
  PagedSeqState state = make();
  ASSERT_TRUE(done(state.ensure_capacity(10)));
  ASSERT_TRUE(done(state.sync_context_len(10)));
  const auto* table = state.device_table();
  const auto live = device_.counts().live_bytes;
  device_.reset_counts();
  state.release();
  EXPECT_EQ(pool_.free_count(), 8u);
  EXPECT_EQ(state.length(), 0u);
  EXPECT_EQ(state.capacity(), 0u);
  EXPECT_EQ(state.device_table(), table);
  EXPECT_EQ(device_.counts().live_bytes, live);
  state.release();  // nothing is left to give back
  EXPECT_EQ(pool_.free_count(), 8u);
  EXPECT_TRUE(sound(pool_.allocator()));

  // It can be used again without a device allocation.
  ASSERT_TRUE(done(state.ensure_capacity(6)));
  EXPECT_EQ(device_.counts().allocations, 0u);
  EXPECT_EQ(mirror(state), indices(state));
}

TEST_F(PagedSeqStateTest, PagesGoBackWhenTheStateDies) {
  {
    PagedSeqState state = make();
    ASSERT_TRUE(done(state.ensure_capacity(10)));
    EXPECT_EQ(pool_.free_count(), 5u);
  }
  EXPECT_EQ(pool_.free_count(), 8u);
}

TEST_F(PagedSeqStateTest, AMovedStateHasThePagesAndTheOldOneHasNone) {
  PagedSeqState state = make();
  ASSERT_TRUE(done(state.ensure_capacity(10)));
  ASSERT_TRUE(done(state.sync_context_len(7)));
  {
    const PagedSeqState moved = std::move(state);
    EXPECT_EQ(moved.length(), 7u);
    EXPECT_EQ(moved.table().size(), 3u);
    EXPECT_EQ(mirror(moved), indices(moved));
    EXPECT_EQ(state.table().size(), 0u);
    EXPECT_EQ(pool_.free_count(), 5u);
  }
  EXPECT_EQ(pool_.free_count(), 8u);
}

TEST_F(PagedSeqStateTest, OneTableServesAllLayersOfAGroup) {
  PagedSeqState state = make();
  ASSERT_TRUE(done(state.ensure_capacity(8)));
  const KvView first = state.view(0), second = state.view(1);
  device_.settle();
  EXPECT_EQ(first.table, second.table);
  EXPECT_EQ(first.base, second.base);
  for (std::uint32_t position = 0; position < 8; ++position) {
    for (std::uint32_t head = 0; head < 2; ++head) {
      EXPECT_EQ(second.k(head, position) - first.k(head, position), static_cast<long>(kShape.layer_bytes()));
      EXPECT_EQ(second.v(head, position) - first.v(head, position), static_cast<long>(kShape.layer_bytes()));
    }
  }
}

TEST_F(PagedSeqStateTest, KernelsFindEveryPositionOfEveryHeadWhereTheLayoutSays) {
  PagedSeqState state = make();
  ASSERT_TRUE(done(state.ensure_capacity(12)));
  const KvView view = state.view(1);
  device_.settle();
  EXPECT_EQ(view.block_size, 4u);
  EXPECT_EQ(view.num_kv_heads, 2u);
  EXPECT_EQ(view.head_dim, 8u);
  EXPECT_EQ(view.type, ElementType::F32);
  EXPECT_EQ(view.capacity, 12u);
  for (std::uint32_t position = 0; position < 12; ++position) {
    const auto place = state.table().place(position);
    for (std::uint32_t head = 0; head < 2; ++head) {
      // [num_layers][K, V][num_kv_heads][block_size][head_dim]
      const std::uint64_t k = ((std::uint64_t{1 * 2 + 0} * 2 + head) * 4 + place.slot) * 8 * 4;
      const std::uint64_t v = ((std::uint64_t{1 * 2 + 1} * 2 + head) * 4 + place.slot) * 8 * 4;
      EXPECT_EQ(view.k(head, position), *pool_.data(place.page) + k);
      EXPECT_EQ(view.v(head, position), *pool_.data(place.page) + v);
    }
  }
}

TEST_F(PagedSeqStateTest, SharingTakesReferencesAndNoPages) {
  PagedSeqState parent = make(), child = make();
  ASSERT_TRUE(done(parent.ensure_capacity(10)));
  ASSERT_TRUE(done(parent.sync_context_len(10)));
  device_.reset_counts();
  child.share(parent, 10);
  EXPECT_EQ(pool_.free_count(), 5u);
  EXPECT_EQ(device_.counts().copies, 0u);
  EXPECT_EQ(child.length(), 10u);
  EXPECT_EQ(indices(child), indices(parent));
  for (const PageId page : child.table().pages()) EXPECT_EQ(*pool_.allocator().references(page), 2u);
  ASSERT_TRUE(done(child.sync()));
  EXPECT_EQ(device_.counts().uploaded_bytes, 3 * sizeof(std::uint32_t));
  EXPECT_EQ(mirror(child), indices(parent));
}

TEST_F(PagedSeqStateTest, TheFirstWriteToASharedHalfFullPageCopiesThatPageOnly) {
  PagedSeqState parent = make(), child = make();
  ASSERT_TRUE(done(parent.ensure_capacity(10)));
  ASSERT_TRUE(done(parent.sync_context_len(10)));
  for (std::uint32_t b = 0; b < 3; ++b) fill(parent.table().page(b), b);
  child.share(parent, 10);
  ASSERT_TRUE(done(child.sync()));
  const auto before = indices(parent);
  device_.reset_counts();
  ASSERT_TRUE(done(child.ensure_capacity(11)));
  EXPECT_EQ(device_.counts().copies, 1u);
  EXPECT_EQ(device_.counts().copied_bytes, kPageBytes);
  EXPECT_EQ(device_.counts().uploaded_bytes, sizeof(std::uint32_t));  // one entry of the table
  EXPECT_EQ(indices(parent), before);
  EXPECT_EQ(child.table().page(0), parent.table().page(0));
  EXPECT_EQ(child.table().page(1), parent.table().page(1));
  EXPECT_NE(child.table().page(2), parent.table().page(2));
  EXPECT_EQ(content(child.table().page(2)), pattern(kPageBytes, 2));
  EXPECT_EQ(mirror(child), indices(child));
  EXPECT_EQ(*pool_.allocator().references(parent.table().page(2)), 1u);

  // The last holder of the page writes without a copy.
  device_.reset_counts();
  ASSERT_TRUE(done(parent.ensure_capacity(11)));
  EXPECT_EQ(device_.counts().copies, 0u);
  EXPECT_EQ(pool_.free_count(), 4u);
}

TEST_F(PagedSeqStateTest, WritingBehindFullSharedPagesCopiesNothing) {
  PagedSeqState parent = make(), child = make();
  ASSERT_TRUE(done(parent.ensure_capacity(8)));
  ASSERT_TRUE(done(parent.sync_context_len(8)));
  child.share(parent, 8);
  device_.reset_counts();
  ASSERT_TRUE(done(child.ensure_capacity(9)));
  EXPECT_EQ(device_.counts().copies, 0u);
  EXPECT_EQ(child.table().page(1), parent.table().page(1));
  EXPECT_EQ(child.table().size(), 3u);
}

TEST_F(PagedSeqStateTest, APageThatTheIndexKnowsIsCopiedBeforeItIsWritten) {
  PagedSeqState state = make();
  ASSERT_TRUE(done(state.ensure_capacity(4)));
  ASSERT_TRUE(done(state.sync_context_len(4)));
  const PageId published = state.table().page(0);
  ASSERT_TRUE(done(pool_.allocator().keep(published)));
  state.truncate(2);  // back into a published page
  device_.reset_counts();
  EXPECT_EQ(state.pages_needed(3), 1u);
  EXPECT_FALSE(state.must_copy(false));  // only the index shares it
  ASSERT_TRUE(done(state.ensure_capacity(3)));
  EXPECT_EQ(device_.counts().copies, 1u);
  EXPECT_NE(state.table().page(0), published);
  EXPECT_EQ(*pool_.allocator().state(published), BlockAllocator::State::Cached);
}

TEST_F(PagedSeqStateTest, ACopyThatFindsNoPageLeavesEverythingShared) {
  PagedSeqState parent = make(), child = make(), rest = make();
  ASSERT_TRUE(done(parent.ensure_capacity(10)));
  ASSERT_TRUE(done(parent.sync_context_len(10)));
  child.share(parent, 10);
  ASSERT_TRUE(done(rest.ensure_capacity(20)));
  EXPECT_TRUE(refused_with(child.ensure_capacity(11), Code::Exhausted, 1, 0));
  EXPECT_EQ(indices(child), indices(parent));
  EXPECT_EQ(*pool_.allocator().references(parent.table().page(2)), 2u);
}

TEST_F(PagedSeqStateTest, ARefusedUploadTakesNothingAndTheNextCallMendsTheMirror) {
  PagedSeqState state = make();
  ASSERT_TRUE(done(state.ensure_capacity(4)));
  device_.fail_after(0);
  EXPECT_TRUE(refused(state.ensure_capacity(12), Code::DeviceFailure));
  EXPECT_EQ(state.table().size(), 1u);
  EXPECT_EQ(pool_.free_count(), 7u);
  ASSERT_TRUE(done(state.ensure_capacity(12)));
  EXPECT_EQ(mirror(state), indices(state));
}

TEST_F(PagedSeqStateTest, UndoingAGrowthPutsEverythingBack) {
  PagedSeqState parent = make(), child = make();
  ASSERT_TRUE(done(parent.ensure_capacity(6)));
  ASSERT_TRUE(done(parent.sync_context_len(6)));
  child.share(parent, 6);
  const auto before = indices(child);
  const auto growth = child.grow(13);
  ASSERT_TRUE(done(growth));
  EXPECT_EQ(pool_.free_count(), 3u);
  child.undo(*growth);
  EXPECT_EQ(indices(child), before);
  EXPECT_EQ(pool_.free_count(), 6u);
  EXPECT_EQ(*pool_.allocator().references(parent.table().page(1)), 2u);
  ASSERT_TRUE(done(child.sync()));
  EXPECT_EQ(mirror(child), before);
  EXPECT_TRUE(sound(pool_.allocator()));
}

TEST_F(PagedSeqStateTest, TruncatingKeepsThePagesOfTheFirstPositions) {
  PagedSeqState state = make();
  ASSERT_TRUE(done(state.ensure_capacity(16)));
  ASSERT_TRUE(done(state.sync_context_len(14)));
  const auto before = indices(state);
  state.truncate(5);
  EXPECT_EQ(state.length(), 5u);
  EXPECT_EQ(indices(state), std::vector(before.begin(), before.begin() + 2));
  EXPECT_EQ(pool_.free_count(), 6u);
}

TEST_F(PagedSeqStateTest, PagesThatLieWhollyBeforeAPositionCanBeGivenBack) {
  PagedSeqState state = make();
  ASSERT_TRUE(done(state.ensure_capacity(16)));
  ASSERT_TRUE(done(state.sync_context_len(14)));
  state.give_back_before(11);  // two blocks and a part of the third
  EXPECT_EQ(state.table().first(), 2u);
  EXPECT_EQ(state.table().size(), 4u);
  EXPECT_EQ(pool_.free_count(), 6u);
  EXPECT_EQ(state.view(0).first, 8u);
  EXPECT_EQ(state.length(), 14u);
  state.release();
  EXPECT_EQ(pool_.free_count(), 8u);
  EXPECT_TRUE(sound(pool_.allocator()));
}

TEST_F(PagedSeqStateTest, ABlockThatWasGivenBackCanBeTakenBack) {
  PagedSeqState state = make();
  ASSERT_TRUE(done(state.ensure_capacity(12)));
  ASSERT_TRUE(done(state.sync_context_len(12)));
  state.give_back_before(8);
  const PageId page = *pool_.allocate();
  state.take_back(page);
  EXPECT_EQ(state.table().first(), 1u);
  EXPECT_EQ(state.table().page(1), page);
  ASSERT_TRUE(done(state.sync()));
  device_.settle();
  EXPECT_EQ(state.device_table()[1], page.index);
}

}  // namespace
}  // namespace quire
