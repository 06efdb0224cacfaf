// SequencePool: sliding windows. Pages outside the window are given back while the sequence lives.
#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "quire/state/pool_behaviour_testing.h"

namespace quire::testing {
namespace {

// The windowed toy model: group 0 has full attention (pages of 64 bytes), group 1 a window of 8 tokens (pages of 128
// bytes). Blocks of 4 tokens. A slab holds two pages of group 0 or one of group 1.
constexpr std::uint64_t kSlab = 128;
constexpr std::uint32_t kWindow = 8;

PoolConfig windowed(std::uint64_t slabs, bool prefix_cache = true) {
  PoolConfig config = pool_of(ToyModel::windowed(kWindow), slabs * kSlab);
  config.prefix_cache = prefix_cache;
  return config;
}

// Pages of a window group at this length: the next token sees itself and the seven before it.
std::uint32_t window_pages(std::uint32_t length) {
  const std::uint32_t first = length + 1 > kWindow ? (length + 1 - kWindow) / 4 : 0;
  return (length + 3) / 4 - first;
}

TEST(SlidingWindow, PagesOutsideTheWindowAreGivenBackWhileTheSequenceLives) {
  CountingDevice device;
  ToyEngine engine(device, windowed(64, false));
  SequencePool& pool = engine.pool();
  auto sequence = engine.create({}).value();
  for (std::uint32_t length = 1; length <= 40; ++length) {
    ASSERT_TRUE(done(engine.append(sequence, {static_cast<Token>(length)})));
    const PoolStats stats = pool.stats();
    EXPECT_EQ(stats.pages[0].held, (length + 3) / 4);  // full attention keeps all
    EXPECT_EQ(stats.pages[1].held, window_pages(length)) << length;
    EXPECT_LE(stats.pages[1].held, 3u);
    EXPECT_EQ(stats.pages[1].cached, 0u);
    EXPECT_EQ(engine.verify(sequence), "");
    EXPECT_TRUE(sound(pool));
  }
}

TEST(SlidingWindow, PagesThatWereGivenBackStayCachedForOthersUntilTheyAreNeeded) {
  CountingDevice device;
  ToyEngine engine(device, windowed(64));
  const auto sequence = written(engine, counting(0, 24), 0, 1);
  EXPECT_EQ(engine.pool().stats().pages[1].held, 2u);
  EXPECT_EQ(engine.pool().stats().pages[1].cached, 4u);
  EXPECT_EQ(engine.pool().stats().pages[0].held, 6u);
  EXPECT_TRUE(sound(engine.pool()));
}

// Found by the reference model: where the windows of two groups were gone, the reason was NoCheckpoint.
TEST(SlidingWindow, AMissOfTwoGoneWindowsIsNotOneOfACheckpoint) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::windows_only(8), 24 * kSlab));
  const auto first = written(engine, counting(0, 24), 0, 1);  // held: only its last windows are safe
  auto other = engine.create({}).value();
  std::uint32_t gone = 0;
  for (Token token = 1000; token < 1060; ++token) {
    ASSERT_TRUE(done(engine.append(other, {token})));
    for (const std::uint32_t length : {9, 13, 17}) {
      const Hit hit = engine.pool().lookup(counting(0, length));
      EXPECT_NE(hit.end, HitEnd::NoCheckpoint) << "a model without recurrent layers has no checkpoints";
      gone += hit.end == HitEnd::WindowGone;
    }
  }
  EXPECT_GT(gone, 0u);
  EXPECT_EQ(engine.verify(first), "");
}

TEST(SlidingWindow, ASequenceFitsThatWouldNotIfItKeptAllItsPages) {
  CountingDevice device;
  // Ten pages of group 0 (5 slabs) and three of group 1; all ten of group 1 would need 10 slabs.
  for (const bool prefix_cache : {false, true}) {
    ToyEngine engine(device, windowed(8, prefix_cache));
    EXPECT_TRUE(done(engine.pool().can_ever_fit(40, 1)));
    auto sequence = written(engine, counting(0, 40), 0, 1);
    EXPECT_EQ(engine.pool().stats().pages[0].held, 10u);
    EXPECT_EQ(engine.verify(sequence), "");
    EXPECT_TRUE(sound(engine.pool()));
  }
}

TEST(SlidingWindow, AViewSaysWhereTheWindowBegins) {
  CountingDevice device;
  ToyEngine engine(device, windowed(64));
  const auto sequence = written(engine, counting(0, 18));
  const KvView all = engine.pool().kv_view(sequence.id, 0, 0).value();
  const KvView window = engine.pool().kv_view(sequence.id, 1, 0).value();
  EXPECT_EQ(all.first, 0u);
  EXPECT_EQ(window.first, 8u);  // position 18 sees 11 and later: block 2 on
  EXPECT_EQ(window.length, 18u);
  const auto pages = pages_of(engine.pool(), sequence.id, 1);
  ASSERT_EQ(pages.size(), 5u);
  EXPECT_FALSE(pages[1].valid());
  EXPECT_TRUE(pages[2].valid());
}

TEST(SlidingWindow, APositionThatFellOutCannotBeRead) {
  CountingDevice device;
  ToyEngine engine(device, windowed(64));
  const auto sequence = written(engine, counting(0, 18));
  const KvCache cache = engine.pool().kv_cache(sequence.id, 1, 0).value();
  std::vector<std::byte> k(cache.token_bytes()), v(k.size());
  EXPECT_TRUE(refused_at(cache.read(7, 1, k, v), Code::NotWritten, 7));
  EXPECT_TRUE(done(cache.read(8, 1, k, v)));
}

TEST(SlidingWindow, AHitTakesOnlyThePagesOfTheWindow) {
  CountingDevice device;
  ToyEngine engine(device, windowed(64));
  cached(engine, counting(0, 24));
  auto sequence = engine.create(counting(0, 25)).value();
  EXPECT_EQ(engine.last_hit().tokens, 24u);
  EXPECT_EQ(engine.pool().stats().pages[0].held, 6u);
  EXPECT_EQ(engine.pool().stats().pages[1].held, 2u);
  EXPECT_EQ(engine.verify(sequence), "");
  ASSERT_TRUE(done(engine.append(sequence, counting(24, 9))));
  EXPECT_EQ(engine.verify(sequence), "");
  EXPECT_TRUE(sound(engine.pool()));
}

// Sixteen slabs. A path of eight blocks takes four for group 0 and eight for group 1, so the fifth plain page is the
// first that needs an eviction.
class SlidingWindowThatIsShort : public ::testing::Test {
 protected:
  SlidingWindowThatIsShort() : engine_(device_, windowed(16)) {}

  void evict(std::uint32_t pages) {
    while (engine_.pool().stats().free_slabs > 0) ASSERT_TRUE(done(engine_.pool().alloc_kv(1)));
    const auto before = engine_.pool().stats().pages[1].cached;
    for (std::uint32_t i = 0; i < pages; ++i) ASSERT_TRUE(done(engine_.pool().alloc_kv(1)));
    ASSERT_EQ(engine_.pool().stats().pages[1].cached, before - pages);
  }

  CountingDevice device_;
  ToyEngine engine_;
};

TEST_F(SlidingWindowThatIsShort, LosesItsOldestPagesAndKeepsThePrefix) {
  cached(engine_, counting(0, 32));
  evict(6);  // blocks 0 to 5; position 32 sees blocks 6 and 7
  EXPECT_EQ(engine_.pool().stats().window_pages_evicted, 6u);
  EXPECT_EQ(engine_.pool().stats().pages[0].cached, 8u);
  EXPECT_EQ(engine_.pool().lookup(counting(0, 33)).tokens, 32u);
  auto sequence = engine_.create(counting(0, 33)).value();
  EXPECT_EQ(engine_.verify(sequence), "");
  EXPECT_TRUE(sound(engine_.pool()));
}

TEST_F(SlidingWindowThatIsShort, SaysSoWhereAPrefixCannotBeGoneOnFrom) {
  cached(engine_, counting(0, 32));
  evict(4);  // blocks 0 to 3
  const Hit hit = engine_.pool().lookup(joined(counting(0, 16), counting(90, 4)));
  EXPECT_EQ(hit.tokens, 0u);
  EXPECT_EQ(hit.matched, 16u);
  EXPECT_EQ(hit.end, HitEnd::WindowGone);
  // After the gap the window is complete again.
  EXPECT_EQ(engine_.pool().lookup(joined(counting(0, 24), counting(90, 4))).tokens, 24u);
}

TEST_F(SlidingWindowThatIsShort, APathThatNobodyCanGoOnFromDoesNotLinger) {
  cached(engine_, counting(0, 32));
  evict(6);
  ASSERT_TRUE(done(engine_.pool().alloc_kv(1)));  // one more: the end of the path has lost its window
  EXPECT_EQ(engine_.pool().stats().prefix_blocks, 0u);
  EXPECT_EQ(engine_.pool().stats().pages[0].cached, 0u);
  EXPECT_EQ(engine_.pool().stats().pages[1].cached, 0u);
  EXPECT_TRUE(sound(engine_.pool()));
}

TEST_F(SlidingWindowThatIsShort, ALivingSequenceIsNotTouched) {
  auto living = written(engine_, counting(0, 32));
  evict(6);
  EXPECT_EQ(engine_.pool().stats().pages[1].cached, 0u);
  EXPECT_EQ(engine_.verify(living), "");
  EXPECT_TRUE(refused(engine_.pool().alloc_kv(1), Code::Exhausted));
  EXPECT_TRUE(sound(engine_.pool()));
}

TEST_F(SlidingWindowThatIsShort, AForkIntoThePastStandsWhereTheWindowIsStillWhole) {
  const auto parent = written(engine_, counting(0, 32));
  {
    auto child = engine_.fork(parent, 18).value();
    EXPECT_EQ(*engine_.pool().length(child.id), 16u);
    EXPECT_EQ(child.pending, counting(16, 2));
    EXPECT_EQ(engine_.verify(child), "");
    ASSERT_TRUE(done(engine_.pool().release(child.id)));
  }
  evict(6);  // all that are cached
  auto child = engine_.fork(parent, 18).value();
  EXPECT_EQ(*engine_.pool().length(child.id), 0u);
  EXPECT_EQ(child.pending, counting(0, 18));
  EXPECT_TRUE(sound(engine_.pool()));
}

TEST(SlidingWindow, AForkWithinTheWindowStandsAtAnyPosition) {
  CountingDevice device;
  ToyEngine engine(device, windowed(64));
  const auto parent = written(engine, counting(0, 26));  // has positions 16 and later of group 1
  for (std::uint32_t position = 23; position <= 26; ++position) {
    auto child = engine.fork(parent, position).value();
    EXPECT_EQ(*engine.pool().length(child.id), position);
    ASSERT_TRUE(done(engine.append(child, counting(70, 5))));
    EXPECT_EQ(engine.verify(child), "");
    EXPECT_EQ(engine.verify(parent), "");
    EXPECT_TRUE(sound(engine.pool()));
    ASSERT_TRUE(done(engine.pool().release(child.id)));
  }
}

TEST(SlidingWindow, ARewindTakesThePagesOfTheOldWindowBack) {
  CountingDevice device;
  ToyEngine engine(device, windowed(64));
  auto sequence = written(engine, counting(0, 32));
  ASSERT_TRUE(done(engine.rewind(sequence, 16)));
  EXPECT_EQ(*engine.pool().length(sequence.id), 16u);
  EXPECT_EQ(engine.pool().stats().pages[1].held, 2u);
  EXPECT_EQ(engine.verify(sequence), "");
  ASSERT_TRUE(done(engine.append(sequence, counting(80, 7))));
  EXPECT_EQ(engine.verify(sequence), "");
  EXPECT_TRUE(sound(engine.pool()));
}

TEST(SlidingWindow, WithoutAnIndexARewindOutOfTheWindowStartsOver) {
  CountingDevice device;
  ToyEngine engine(device, windowed(64, false));
  auto sequence = written(engine, counting(0, 32));
  EXPECT_EQ(*engine.pool().rewind(sequence.id, 16), 0u);
  EXPECT_EQ(engine.pool().stats().pages[0].held, 0u);
  EXPECT_EQ(engine.pool().stats().pages[1].held, 0u);
  EXPECT_TRUE(sound(engine.pool()));
}

TEST(SlidingWindow, EveryWindowHasAGroupOfItsOwn) {
  CountingDevice device;
  const ToyModel model{
      {LayerDesc::attention(1, 4, ElementType::F16, 4), LayerDesc::attention(1, 4, ElementType::F16, 12)}, 4};
  PoolConfig config = pool_of(model, 4096);
  config.prefix_cache = false;
  ToyEngine engine(device, config);
  const auto sequence = written(engine, counting(0, 32));
  EXPECT_EQ(engine.pool().stats().pages[0].held, 1u);  // sees 29 and later
  EXPECT_EQ(engine.pool().stats().pages[1].held, 3u);  // sees 21 and later
  EXPECT_EQ(engine.verify(sequence), "");
}

TEST(SlidingWindow, AChunkLongerThanTheWindowIsWrittenWhole) {
  CountingDevice device;
  ToyEngine engine(device, windowed(64, false));
  SequencePool& pool = engine.pool();
  auto sequence = engine.create({}).value();
  ASSERT_TRUE(done(pool.reserve(sequence.id, 32)));
  EXPECT_EQ(pool.stats().pages[1].held, 8u);  // every position of the chunk sees its own window
  ASSERT_TRUE(done(engine.write_and_commit(sequence, counting(0, 32))));
  EXPECT_EQ(pool.stats().pages[1].held, 2u);
  EXPECT_EQ(engine.verify(sequence), "");
}

}  // namespace
}  // namespace quire::testing
