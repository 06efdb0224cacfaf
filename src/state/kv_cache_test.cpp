// K and V of one layer of one sequence, contiguous or paged.
#include "quire/state/kv_cache.h"

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
using testing::refused_at;
using testing::refused_with;

// 2 heads x 8 halves: a token has 32 bytes of K and as many of V.
constexpr std::uint32_t kHeads = 2, kDim = 8;
constexpr std::size_t kRow = kDim * 2, kToken = kHeads * kRow;
constexpr PageShape kShape{
    .block_size = 4, .num_layers = 2, .num_kv_heads = kHeads, .head_dim = kDim, .type = ElementType::F16};

struct Rows {
  std::vector<std::byte> k, v;
  friend bool operator==(const Rows&, const Rows&) = default;
};
Rows rows(std::uint32_t count, unsigned salt) {
  return {pattern(count * kToken, salt), pattern(count * kToken, salt + 100)};
}

PoolResult<Rows> read(const KvCache& cache, std::uint32_t position, std::uint32_t count) {
  Rows out{std::vector<std::byte>(count * kToken), std::vector<std::byte>(count * kToken)};
  if (auto ok = cache.read(position, count, out.k, out.v); !ok) return std::unexpected(ok.error());
  return out;
}
PoolResult<void> write(KvCache& cache, std::uint32_t position, const Rows& data) {
  return cache.write(position, data.k, data.v);
}

class KvCacheTest : public ::testing::Test {
 protected:
  KvCache contiguous(std::uint32_t capacity = 16) {
    return std::move(*KvCache::contiguous(device_, kHeads, capacity, kDim, ElementType::F16));
  }

  CountingDevice device_;
  BlockPool pool_ = *BlockPool::create(device_, 8, kShape);
  PagedSeqState sequence_ = *PagedSeqState::create(pool_, 8);
};

TEST_F(KvCacheTest, AContiguousCacheHasNoTableAndABlockSizeOfZero) {
  const KvCache cache = contiguous();
  EXPECT_EQ(cache.block_size(), 0u);
  EXPECT_EQ(cache.view()->table, nullptr);
  EXPECT_EQ(cache.view()->block_size, 0u);
  EXPECT_EQ(cache.capacity(), 16u);
  EXPECT_EQ(cache.length(), 0u);
}

TEST_F(KvCacheTest, TheContiguousLayoutIsHeadsThenPositionsThenElements) {
  KvCache cache = contiguous();
  const Rows data = rows(5, 1);
  ASSERT_TRUE(done(write(cache, 0, data)));
  const KvView view = cache.view().value();
  EXPECT_EQ(view.length, 5u);
  for (std::uint32_t head = 0; head < kHeads; ++head) {
    for (std::uint32_t p = 0; p < 5; ++p) {
      // [kv_heads, capacity, head_dim], K before V
      const std::byte* k = view.base + (head * 16 + p) * kRow;
      const std::byte* v = view.base + ((kHeads + head) * 16 + p) * kRow;
      EXPECT_EQ(view.k(head, p), k);
      EXPECT_EQ(view.v(head, p), v);
      const std::size_t at = p * kToken + head * kRow;
      EXPECT_EQ(bytes_at(k, kRow), bytes_at(data.k.data() + at, kRow));
      EXPECT_EQ(bytes_at(v, kRow), bytes_at(data.v.data() + at, kRow));
    }
  }
}

TEST_F(KvCacheTest, ThePagedLayoutIsPagesThenHeadsThenPositionsThenElements) {
  ASSERT_TRUE(done(sequence_.ensure_capacity(10)));
  auto cache = KvCache::paged(sequence_, 1);
  ASSERT_TRUE(done(cache));
  EXPECT_EQ(cache->block_size(), 4u);
  EXPECT_EQ(cache->capacity(), 12u);
  const Rows data = rows(10, 1);
  ASSERT_TRUE(done(write(*cache, 0, data)));
  for (std::uint32_t head = 0; head < kHeads; ++head) {
    for (std::uint32_t p = 0; p < 10; ++p) {
      const auto place = sequence_.table().place(p);
      // Within a page: [kv_heads, block_size, head_dim], at this layer's K and V.
      const std::byte* k = *pool_.data(place.page) + kShape.layer_bytes() + (head * 4 + place.slot) * kRow;
      const std::byte* v = k + kShape.plane_bytes();
      const std::size_t at = p * kToken + head * kRow;
      EXPECT_EQ(bytes_at(k, kRow), bytes_at(data.k.data() + at, kRow)) << p;
      EXPECT_EQ(bytes_at(v, kRow), bytes_at(data.v.data() + at, kRow)) << p;
      EXPECT_EQ(cache->view()->k(head, p), k);
      EXPECT_EQ(cache->view()->v(head, p), v);
    }
  }
}

TEST_F(KvCacheTest, BothLayoutsGiveTheSameBytesForTheSameTokens) {
  ASSERT_TRUE(done(sequence_.ensure_capacity(16)));
  KvCache whole = contiguous(), paged = *KvCache::paged(sequence_, 0);
  std::uint32_t position = 0;
  for (const std::uint32_t count : {1u, 5u, 2u, 8u}) {  // runs that cross pages
    const Rows data = rows(count, count);
    ASSERT_TRUE(done(write(whole, position, data)));
    ASSERT_TRUE(done(write(paged, position, data)));
    position += count;
  }
  for (std::uint32_t from = 0; from <= 16; ++from) {
    for (std::uint32_t count = 0; from + count <= 16; ++count) {
      ASSERT_EQ(*read(whole, from, count), *read(paged, from, count)) << from << " " << count;
    }
  }
  EXPECT_EQ(*read(paged, 1, 5), rows(5, 5));
}

TEST_F(KvCacheTest, WithOnePlaneKeysAreWrittenAndReadAlone) {
  PageShape shape = kShape;
  shape.planes = 1;
  BlockPool pool = *BlockPool::create(device_, 8, shape);
  PagedSeqState sequence = *PagedSeqState::create(pool, 8);
  ASSERT_TRUE(done(sequence.ensure_capacity(6)));
  KvCache cache = *KvCache::paged(sequence, 1);
  const Rows data = rows(6, 1);
  EXPECT_TRUE(refused(cache.write(0, data.k, data.v), Code::ShapeMismatch));
  ASSERT_TRUE(done(cache.write(0, data.k, {})));
  ASSERT_TRUE(done(cache.write(2, std::span(data.k).first(2 * kToken), {})));  // and again
  std::vector<std::byte> all(6 * kToken);
  ASSERT_TRUE(done(cache.read(0, 6, all, {})));
  EXPECT_TRUE(std::equal(all.begin(), all.begin() + 2 * kToken, data.k.begin()));
  EXPECT_TRUE(std::equal(all.begin() + 2 * kToken, all.begin() + 4 * kToken, data.k.begin()));
  EXPECT_TRUE(std::equal(all.begin() + 4 * kToken, all.end(), data.k.begin() + 4 * kToken));
  const KvView view = *cache.view();
  EXPECT_EQ(view.k(1, 3), view.v(1, 3));
}

TEST_F(KvCacheTest, APositionMayBeWrittenAgain) {
  ASSERT_TRUE(done(sequence_.ensure_capacity(8)));
  KvCache whole = contiguous(), paged = *KvCache::paged(sequence_, 0);
  for (KvCache* cache : {&whole, &paged}) {
    ASSERT_TRUE(done(write(*cache, 0, rows(6, 1))));
    ASSERT_TRUE(done(write(*cache, 2, rows(2, 2))));
    EXPECT_EQ(cache->length(), 6u);
    EXPECT_EQ(*read(*cache, 2, 2), rows(2, 2));
    Rows first = rows(6, 1);
    first.k.resize(2 * kToken), first.v.resize(2 * kToken);
    EXPECT_EQ(*read(*cache, 0, 2), first);
  }
}

TEST_F(KvCacheTest, LayersOfAGroupDoNotTouchEachOther) {
  ASSERT_TRUE(done(sequence_.ensure_capacity(8)));
  KvCache first = *KvCache::paged(sequence_, 0), second = *KvCache::paged(sequence_, 1);
  ASSERT_TRUE(done(write(first, 0, rows(8, 1))));
  EXPECT_TRUE(refused_at(read(second, 0, 1), Code::NotWritten, 0));
  ASSERT_TRUE(done(write(second, 0, rows(8, 2))));
  EXPECT_EQ(*read(first, 0, 8), rows(8, 1));
  EXPECT_EQ(*read(second, 0, 8), rows(8, 2));
}

TEST_F(KvCacheTest, AReadOfWhatWasNeverWrittenIsRefused) {
  ASSERT_TRUE(done(sequence_.ensure_capacity(8)));
  KvCache whole = contiguous(8), paged = *KvCache::paged(sequence_, 0);
  for (KvCache* cache : {&whole, &paged}) {
    EXPECT_TRUE(refused_at(read(*cache, 0, 1), Code::NotWritten, 0));
    ASSERT_TRUE(done(write(*cache, 0, rows(3, 1))));
    EXPECT_TRUE(done(read(*cache, 0, 3)));
    EXPECT_TRUE(refused_at(read(*cache, 0, 4), Code::NotWritten, 3));
    EXPECT_TRUE(refused_at(read(*cache, 5, 1), Code::NotWritten, 5));
    EXPECT_TRUE(refused(read(*cache, UINT32_MAX, 1), Code::NotWritten));
  }
}

TEST_F(KvCacheTest, AReadNeverShowsTheBytesOfTheSequenceThatHadThePageBefore) {
  PagedSeqState before = *PagedSeqState::create(pool_, 8);
  ASSERT_TRUE(done(before.ensure_capacity(8)));
  KvCache theirs = *KvCache::paged(before, 0);
  ASSERT_TRUE(done(write(theirs, 0, rows(8, 1))));
  const PageId page = before.table().page(0);
  before.release();
  EXPECT_TRUE(refused(read(theirs, 0, 1), Code::StaleId));

  ASSERT_TRUE(done(sequence_.ensure_capacity(8)));
  ASSERT_TRUE(sequence_.table().page(0).index == page.index || sequence_.table().page(1).index == page.index);
  KvCache mine = *KvCache::paged(sequence_, 0);
  EXPECT_TRUE(refused_at(read(mine, 0, 8), Code::NotWritten, 0));
  ASSERT_TRUE(done(write(mine, 0, rows(2, 2))));
  EXPECT_TRUE(refused_at(read(mine, 0, 8), Code::NotWritten, 2));  // the rest of the page has foreign bytes
  EXPECT_EQ(*read(mine, 0, 2), rows(2, 2));
}

TEST_F(KvCacheTest, WhatWasTakenBackByATruncationCannotBeReadAgain) {
  ASSERT_TRUE(done(sequence_.ensure_capacity(8)));
  KvCache cache = *KvCache::paged(sequence_, 0);
  ASSERT_TRUE(done(write(cache, 0, rows(8, 1))));
  sequence_.truncate(3);
  EXPECT_TRUE(done(read(cache, 0, 3)));
  EXPECT_TRUE(refused_at(read(cache, 0, 4), Code::NotWritten, 3));
}

TEST_F(KvCacheTest, AnInheritedPrefixCanBeReadAndASharedPageNotWritten) {
  ASSERT_TRUE(done(sequence_.ensure_capacity(6)));
  KvCache parent = *KvCache::paged(sequence_, 0);
  ASSERT_TRUE(done(write(parent, 0, rows(6, 1))));
  ASSERT_TRUE(done(sequence_.sync_context_len(6)));
  PagedSeqState fork = *PagedSeqState::create(pool_, 8);
  fork.share(sequence_, 6);
  KvCache child = *KvCache::paged(fork, 0);
  EXPECT_EQ(*read(child, 0, 6), rows(6, 1));
  const std::uint32_t shared = fork.table().page(1).index;
  EXPECT_TRUE(refused_at(write(child, 6, rows(1, 2)), Code::SharedPage, shared));
  EXPECT_TRUE(refused_at(write(parent, 6, rows(1, 2)), Code::SharedPage, shared));
  EXPECT_TRUE(refused_at(write(child, 0, rows(1, 2)), Code::SharedPage, fork.table().page(0).index));

  ASSERT_TRUE(done(fork.ensure_capacity(7)));  // copies the half-full page
  ASSERT_TRUE(done(write(child, 6, rows(1, 2))));
  EXPECT_EQ(*read(child, 6, 1), rows(1, 2));
  EXPECT_EQ(*read(parent, 0, 6), rows(6, 1));
  Rows inherited = rows(6, 1);
  EXPECT_EQ(*read(child, 0, 6), inherited);
}

TEST_F(KvCacheTest, APositionThatFellOutOfTheWindowCanBeNeitherReadNorWritten) {
  ASSERT_TRUE(done(sequence_.ensure_capacity(12)));
  KvCache cache = *KvCache::paged(sequence_, 0);
  ASSERT_TRUE(done(write(cache, 0, rows(12, 1))));
  sequence_.give_back_before(6);
  EXPECT_TRUE(refused_at(read(cache, 3, 2), Code::NotWritten, 3));
  EXPECT_TRUE(refused(write(cache, 0, rows(1, 2)), Code::NotReserved));
  EXPECT_TRUE(done(read(cache, 4, 8)));
}

TEST_F(KvCacheTest, WritesBeyondTheRoomOrWithAHoleAreRefusedAndChangeNothing) {
  ASSERT_TRUE(done(sequence_.ensure_capacity(8)));
  KvCache whole = contiguous(8), paged = *KvCache::paged(sequence_, 0);
  for (KvCache* cache : {&whole, &paged}) {
    ASSERT_TRUE(done(write(*cache, 0, rows(4, 1))));
    device_.reset_counts();
    EXPECT_TRUE(refused_with(write(*cache, 4, rows(5, 2)), Code::NotReserved, 9, 8));
    EXPECT_TRUE(refused_at(write(*cache, 5, rows(1, 2)), Code::NotWritten, 4));
    EXPECT_TRUE(refused(write(*cache, UINT32_MAX, rows(1, 2)), Code::NotReserved));
    EXPECT_EQ(device_.counts().uploads, 0u);
    EXPECT_EQ(cache->length(), 4u);
    EXPECT_EQ(*read(*cache, 0, 4), rows(4, 1));
  }
}

TEST_F(KvCacheTest, RowsOfAnotherShapeAreRefused) {
  KvCache cache = contiguous();
  const auto one = pattern(kToken, 1), half = pattern(kToken / 2, 1), two = pattern(2 * kToken, 1);
  EXPECT_TRUE(refused(cache.write(0, one, two), Code::ShapeMismatch));
  EXPECT_TRUE(refused(cache.write(0, half, half), Code::ShapeMismatch));
  ASSERT_TRUE(done(cache.write(0, two, two)));
  std::vector<std::byte> k(kToken), v(kToken);
  EXPECT_TRUE(refused(cache.read(0, 2, k, v), Code::ShapeMismatch));
  EXPECT_TRUE(done(cache.read(0, 1, k, v)));
}

TEST_F(KvCacheTest, ImpossibleCachesAreRefused) {
  EXPECT_TRUE(refused(KvCache::paged(sequence_, 2), Code::InvalidArgument));
  EXPECT_TRUE(refused(KvCache::contiguous(device_, 0, 8, 8, ElementType::F16), Code::InvalidArgument));
  EXPECT_TRUE(refused(KvCache::contiguous(device_, 1, 8, 0, ElementType::F16), Code::InvalidArgument));
}

TEST_F(KvCacheTest, AContiguousCacheOfNoRoomRefusesEveryWrite) {
  KvCache cache = contiguous(0);
  EXPECT_TRUE(refused_with(write(cache, 0, rows(1, 1)), Code::NotReserved, 1, 0));
}

TEST_F(KvCacheTest, AFailedRewriteLeavesWhatCouldBeReadAsItWas) {
  ASSERT_TRUE(done(sequence_.ensure_capacity(8)));
  KvCache whole = contiguous(8), paged = *KvCache::paged(sequence_, 0);
  for (KvCache* cache : {&whole, &paged}) {
    ASSERT_TRUE(done(write(*cache, 0, rows(4, 1))));
    device_.fail_after(3);
    EXPECT_TRUE(refused(write(*cache, 0, rows(4, 2)), Code::DeviceFailure));
    EXPECT_EQ(*read(*cache, 0, 4), rows(4, 1));
  }
}

TEST_F(KvCacheTest, TheBuffersOfAReadAndAWriteAreTheCallersWhenTheyReturn) {
  ASSERT_TRUE(done(sequence_.ensure_capacity(8)));
  KvCache whole = contiguous(8), paged = *KvCache::paged(sequence_, 0);
  for (KvCache* cache : {&whole, &paged}) {
    Rows data = rows(4, 1);
    ASSERT_TRUE(done(write(*cache, 0, data)));
    data = rows(4, 2);
    ASSERT_TRUE(done(device_.fence()));
    EXPECT_EQ(*read(*cache, 0, 4), rows(4, 1));
    device_.fail_after(3);
    data = rows(4, 3);
    EXPECT_TRUE(refused(write(*cache, 2, data), Code::DeviceFailure));
    data = rows(4, 4);
    device_.never_fail();
    ASSERT_TRUE(done(device_.fence()));
  }
}

TEST_F(KvCacheTest, AWriteThatFailsAtTheFenceCannotBeRead) {
  ASSERT_TRUE(done(sequence_.ensure_capacity(8)));
  KvCache whole = contiguous(8), paged = *KvCache::paged(sequence_, 0);
  for (KvCache* cache : {&whole, &paged}) {
    ASSERT_TRUE(done(write(*cache, 0, rows(2, 1))));
    device_.fail_work_after(1);
    EXPECT_TRUE(refused(write(*cache, 2, rows(4, 2)), Code::WorkFailed));
    EXPECT_EQ(*read(*cache, 0, 2), rows(2, 1));
    EXPECT_TRUE(refused_at(read(*cache, 0, 3), Code::NotWritten, 2));
    device_.fail_work_after(0);
    EXPECT_TRUE(refused(read(*cache, 0, 1), Code::WorkFailed));
    EXPECT_EQ(*read(*cache, 0, 2), rows(2, 1));
  }
}

TEST_F(KvCacheTest, ACacheThatOutlivedItsSequenceShowsNothingOfTheNextOne) {
  ASSERT_TRUE(done(sequence_.ensure_capacity(8)));
  KvCache old = *KvCache::paged(sequence_, 0);
  ASSERT_TRUE(done(write(old, 0, rows(5, 1))));
  EXPECT_EQ(old.length().value(), 5u);
  sequence_.release();
  ASSERT_TRUE(done(sequence_.ensure_capacity(12)));  // the same object, reused after release()
  KvCache now = *KvCache::paged(sequence_, 0);
  ASSERT_TRUE(done(write(now, 0, rows(3, 2))));
  EXPECT_TRUE(refused(old.view(), Code::StaleId));
  EXPECT_TRUE(refused(old.length(), Code::StaleId));
  EXPECT_TRUE(refused(old.capacity(), Code::StaleId));
  EXPECT_EQ(now.length().value(), 3u);
  EXPECT_EQ(now.capacity().value(), 12u);
  EXPECT_TRUE(done(now.view()));
}

TEST_F(KvCacheTest, AViewHasATableInStepAfterAPageWasMoved) {
  ASSERT_TRUE(done(sequence_.ensure_capacity(8)));
  KvCache cache = *KvCache::paged(sequence_, 0);
  ASSERT_TRUE(done(write(cache, 0, rows(8, 1))));
  // As make_room() does: the bytes move to another page, the table names it, the mirror is marked.
  const PageId from = sequence_.table().page(1), to = *pool_.allocate();
  ASSERT_TRUE(done(pool_.copy_page(to.index, from.index)));
  sequence_.replace(1, to);
  ASSERT_TRUE(done(pool_.free(from)));
  const auto view = cache.view();
  ASSERT_TRUE(done(view));
  device_.settle();
  EXPECT_EQ(view->table[1], pool_.location(to.index));
  EXPECT_EQ(*read(cache, 0, 8), rows(8, 1));
  sequence_.replace(1, to);
  device_.fail_after(0);
  EXPECT_TRUE(refused(cache.view(), Code::DeviceFailure)) << "no view rather than an old one";
}

}  // namespace
}  // namespace quire
