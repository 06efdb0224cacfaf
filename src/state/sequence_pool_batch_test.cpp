// A step as one batch: bound to the pool, committed, and what is left after a device error.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/state/pool_behaviour_testing.h"

namespace quire::testing {
namespace {

using Code = PoolError::Code;

TEST(Batches, BindSaysWhereEverySequenceOfTheStepLies) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::everything(8), 1 << 16));
  SequencePool& pool = engine.pool();
  const auto a = written(engine, counting(0, 6)), b = written(engine, counting(50, 9));
  Batch batch(64, 8, 2);
  const std::vector<Token> next = counting(6, 3);
  const Token one = 77;
  batch.add(a.id, next, Logits::All, true);
  batch.add(b.id, {&one, 1});
  EXPECT_TRUE(refused(pool.bind(batch), Code::NotReserved)) << "the room comes first";
  ASSERT_TRUE(done(pool.reserve(batch.entries())));
  device.reset_counts();
  ASSERT_TRUE(done(pool.bind(batch)));
  EXPECT_LE(device.counts().uploads, 1u) << "all groups and sequences in one call";
  device.settle();

  EXPECT_EQ(batch.rows(), 4u);
  EXPECT_THAT(batch.tokens(), ::testing::ElementsAre(6, 7, 8, 77));
  EXPECT_THAT(batch.positions(), ::testing::ElementsAre(6, 7, 8, 9));
  EXPECT_THAT(batch.wanted(), ::testing::ElementsAre(0, 1, 2, 3));
  ASSERT_EQ(batch.entries().size(), 2u);
  EXPECT_EQ(batch.entries()[1].first_row, 3u);
  for (const BatchEntry& entry : batch.entries()) {
    for (std::uint32_t g = 0; g < 2; ++g) {
      const KvView expected = *pool.kv_view(entry.sequence, g, 0);
      device.settle();
      const KvView seen = batch.kv()[g].sequence(entry.table, 0);
      for (std::uint32_t p = entry.position; p < entry.position + entry.rows; ++p) {
        EXPECT_EQ(seen.k(0, p), expected.k(0, p));
        EXPECT_EQ(seen.v(0, p), expected.v(0, p));
      }
    }
    EXPECT_EQ(batch.states().at(entry.state).base, pool.state_view(entry.sequence)->base);
  }
  ASSERT_TRUE(done(pool.commit(batch)));
  EXPECT_EQ(*pool.length(a.id), 9u);
  EXPECT_EQ(*pool.length(b.id), 10u);
}

TEST(Batches, OneSequenceThatIsNotAliveIsRefusedBeforeAnythingHappens) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 1 << 14));
  const auto a = written(engine, counting(0, 4));
  ASSERT_TRUE(done(engine.pool().release(a.id)));
  Batch batch(8, 2, 1);
  const Token token = 1;
  batch.add(a.id, {&token, 1});
  EXPECT_TRUE(refused(engine.pool().bind(batch), Code::InvalidSequence));
}

TEST(Admission, TakesTheSequenceAndItsRoomOrNeither) {
  CountingDevice device;
  // Eight pages of four tokens.
  ToyEngine engine(device, pool_of(ToyModel::attention(), 8 * ToyModel::attention().layout().groups[0].page_bytes()));
  SequencePool& pool = engine.pool();
  const auto running = written(engine, counting(0, 10));
  const BatchEntry others[] = {{.sequence = running.id, .rows = 6}};  // wants a fourth page
  const auto prompt = counting(100, 17);                              // wants five
  EXPECT_TRUE(refused(pool.admit({.prompt = prompt}, 17, 64, others), Code::Exhausted));
  EXPECT_EQ(pool.stats().sequences, 1u);
  const auto fits = counting(100, 16);
  const auto created = pool.admit({.prompt = fits}, 16, 64, others);
  ASSERT_TRUE(done(created));
  EXPECT_EQ(pool.pages(created->id, 0)->size(), 4u) << "all its room is reserved";
  EXPECT_TRUE(done(pool.can_reserve(others)));
  EXPECT_TRUE(refused(pool.admit({.prompt = fits}, 8, 64, {}), Code::TooLong)) << "fewer tokens than the prompt";
}

TEST(Admission, MatchesThePromptOnce) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 1 << 14));
  cached(engine, counting(0, 12));
  const std::uint64_t before = engine.pool().stats().lookups;
  const auto prompt = counting(0, 14);
  const auto created = engine.pool().admit({.prompt = prompt}, 14, 64, {});
  ASSERT_TRUE(done(created));
  EXPECT_EQ(created->hit.tokens, 12u);
  EXPECT_EQ(engine.pool().stats().lookups, before + 1);
}

TEST(Recovery, ForgetsAllThatWasCachedAndZeroesStatesAnew) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::hybrid(), 1 << 14));
  SequencePool& pool = engine.pool();
  auto live = written(engine, counting(0, 13));
  EXPECT_TRUE(refused(pool.recover(), Code::InvalidArgument)) << "somebody still holds something";
  ASSERT_TRUE(done(pool.release(live.id)));
  ASSERT_TRUE(done(pool.recover()));
  EXPECT_EQ(pool.lookup(counting(0, 13)).tokens, 0u);
  EXPECT_EQ(pool.stats().prefix_blocks, 0u);
  device.reset_counts();
  const auto fresh = engine.create({}).value();
  EXPECT_EQ(device.counts().zeroes, 1u) << "its state may have been written by work that failed";
  EXPECT_EQ(engine.verify(fresh), "");
  EXPECT_TRUE(pool.check_integrity().has_value());
}

}  // namespace
}  // namespace quire::testing
