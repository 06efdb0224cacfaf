// SequencePool: sequences that leave the pool and come back, and whether there would be room.
#include <vector>

#include <gtest/gtest.h>

#include "quire/state/pool_behaviour_testing.h"

namespace quire::testing {
namespace {

constexpr std::uint64_t kPage = 128;  // attention, block size 4

struct Kind {
  const char* name;
  ToyModel model;
};
class SavedSequences : public ::testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Models, SavedSequences,
                         ::testing::Values(Kind{"Attention", ToyModel::attention()},
                                           Kind{"Windowed", ToyModel::windowed(7)},
                                           Kind{"Recurrent", ToyModel::recurrent()}, Kind{"Hybrid", ToyModel::hybrid()},
                                           Kind{"Everything", ToyModel::everything(7)}),
                         [](const auto& kind) { return std::string(kind.param.name); });

TEST_P(SavedSequences, ComeBackWithEveryByteAfterAllWasForgotten) {
  for (const std::uint32_t length : {1u, 4u, 13u, 30u}) {
    CountingDevice device;
    ToyEngine engine(device, pool_of(GetParam().model, 1 << 16));
    SequencePool& pool = engine.pool();
    auto sequence = written(engine, counting(0, length));
    const auto saved = pool.save(sequence.id);
    ASSERT_TRUE(saved.has_value()) << saved.error().message();
    EXPECT_EQ(engine.verify(sequence), "") << "saving changes nothing";
    ASSERT_TRUE(done(pool.release(sequence.id)));
    pool.drop_cache();
    cached(engine, counting(100, 40));  // others write over it
    const auto id = pool.restore(*saved);
    ASSERT_TRUE(id.has_value()) << id.error().message();
    sequence.id = *id;
    EXPECT_EQ(engine.verify(sequence), "");
    ASSERT_TRUE(done(engine.append(sequence, {7, 8, 9})));
    EXPECT_EQ(engine.verify(sequence), "");
    EXPECT_TRUE(sound(pool));
    EXPECT_EQ(pool.save(SequenceId{}).error().code, PoolError::Code::InvalidSequence);
  }
}

TEST_P(SavedSequences, GoIntoAnotherPoolOfTheSameLayoutAndAreRefusedByOneOfAnother) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(GetParam().model, 1 << 16)), twin(device, pool_of(GetParam().model, 1 << 14));
  auto sequence = written(engine, counting(0, 21));
  const auto saved = engine.pool().save(sequence.id);
  sequence.id = twin.pool().restore(*saved).value();
  EXPECT_EQ(twin.verify(sequence), "");

  ToyModel wider = GetParam().model;
  for (LayerDesc& layer : wider.layers) layer.head_dim *= 2, layer.ssm_bytes *= 2;
  ToyEngine stranger(device, pool_of(wider, 1 << 16));
  EXPECT_EQ(stranger.pool().restore(*saved).error().code, PoolError::Code::ShapeMismatch);
  EXPECT_EQ(stranger.pool().stats().sequences, 0u);
  ToyModel more = GetParam().model;
  more.layers.push_back(LayerDesc::attention(3, 8));
  ToyEngine another(device, pool_of(more, 1 << 16));
  EXPECT_EQ(another.pool().restore(*saved).error().code, PoolError::Code::ShapeMismatch);
}

// The device of these tests reads and writes host memory at the fence and not before.
TEST_P(SavedSequences, AreWholeWhenSaveReturnsAndFreeWhenRestoreDoes) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(GetParam().model, 1 << 16));
  SequencePool& pool = engine.pool();
  auto sequence = written(engine, counting(0, 13));
  auto saved = pool.save(sequence.id);
  ASSERT_TRUE(done(saved));
  const std::vector<std::byte> bytes(saved->data.get(), saved->data.get() + saved->bytes);
  ASSERT_TRUE(done(device.fence()));
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), saved->data.get()));
  ASSERT_TRUE(done(pool.release(sequence.id)));
  pool.drop_cache();
  device.fail_after(1);  // also where it is refused half-way
  EXPECT_TRUE(refused(pool.restore(*saved), Code::DeviceFailure));
  device.never_fail();
  sequence.id = pool.restore(*saved).value();
  std::fill_n(saved->data.get(), saved->bytes, std::byte{0});
  ASSERT_TRUE(done(device.fence()));
  EXPECT_EQ(engine.verify(sequence), "");
}

TEST_P(SavedSequences, WhenTheDeviceFailsAtTheFenceAreNeitherSavedNorRestored) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(GetParam().model, 1 << 16));
  SequencePool& pool = engine.pool();
  auto sequence = written(engine, counting(0, 13));
  ASSERT_TRUE(done(device.fence()));
  device.fail_work_after(0);
  EXPECT_TRUE(refused(pool.save(sequence.id), Code::DeviceFailure));
  const auto saved = pool.save(sequence.id);
  ASSERT_TRUE(done(saved));
  ASSERT_TRUE(done(pool.release(sequence.id)));
  pool.drop_cache();
  ASSERT_TRUE(done(device.fence()));
  device.fail_work_after(0);
  EXPECT_TRUE(refused(pool.restore(*saved), Code::DeviceFailure));
  EXPECT_EQ(pool.stats().sequences, 0u);
  EXPECT_EQ(pool.stats().prefix_blocks, 0u);
  for (const ObjectCounts& pages : pool.stats().pages) EXPECT_EQ(pages.held + pages.cached, 0u);
  EXPECT_TRUE(sound(pool));
  sequence.id = pool.restore(*saved).value();
  EXPECT_EQ(engine.verify(sequence), "");
}

TEST(SavedSequences, SharePagesThatOthersStillHaveInsteadOfWritingThemAgain) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 16 * kPage));
  SequencePool& pool = engine.pool();
  const auto stays = written(engine, counting(0, 14));
  auto leaves = engine.fork(stays, 14).value();
  const auto saved = pool.save(leaves.id);
  EXPECT_EQ(saved->bytes, 4 * kPage);
  ASSERT_TRUE(done(pool.release(leaves.id)));
  device.reset_counts();
  leaves.id = pool.restore(*saved).value();
  EXPECT_EQ(pool.stats().pages[0].held, 5u) << "three whole pages are shared, each has its own last one";
  EXPECT_EQ(engine.verify(leaves), "");
  EXPECT_TRUE(sound(pool));
}

TEST(SavedSequences, AreRefusedWholeWhereThereIsNoRoom) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 8 * kPage));
  SequencePool& pool = engine.pool();
  const auto saved = pool.save(written(engine, counting(0, 16)).id);
  ASSERT_TRUE(done(pool.release({0, 0})));
  pool.drop_cache();
  const auto other = written(engine, counting(50, 20));
  EXPECT_EQ(pool.can_restore(*saved, 0, {}).error().code, PoolError::Code::Exhausted);
  EXPECT_EQ(pool.restore(*saved).error().code, PoolError::Code::Exhausted);
  EXPECT_EQ(pool.stats().pages[0].held, 5u);
  EXPECT_EQ(pool.stats().refusals, 1u);
  ASSERT_TRUE(done(pool.release(other.id)));
  EXPECT_TRUE(pool.can_restore(*saved, 16, {}).has_value());
  EXPECT_FALSE(pool.can_restore(*saved, 17, {}).has_value());
  EXPECT_TRUE(pool.restore(*saved).has_value());
  EXPECT_TRUE(sound(pool));
}

TEST(Holding, SaysWhatACopyTakesWhatGoesBackAndWhatOthersShare) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 16 * kPage));
  SequencePool& pool = engine.pool();
  const auto parent = written(engine, counting(0, 10));
  auto holding = pool.holding(parent.id).value();
  EXPECT_EQ(holding.saved_bytes, 3 * kPage);
  EXPECT_EQ(holding.own_bytes, 3 * kPage);
  EXPECT_EQ(holding.shared_tokens, 0u);
  auto child = engine.fork(parent, 10).value();
  ASSERT_TRUE(done(engine.append(child, counting(70, 5))));
  holding = pool.holding(child.id).value();
  EXPECT_EQ(holding.saved_bytes, 4 * kPage);
  EXPECT_EQ(holding.own_bytes, 2 * kPage);
  EXPECT_EQ(holding.shared_tokens, 8u);
}

TEST(CanAdmit, SaysWhetherAPromptAndWhatOthersNeedFitTogether) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 8 * kPage));
  SequencePool& pool = engine.pool();
  const auto running = written(engine, counting(0, 16));  // four pages
  const auto prompt = counting(50, 12);
  const auto fits = [&](std::uint32_t tokens, std::uint32_t more) {
    const SequencePool::Demand demand{running.id, more};
    return pool.can_admit({.prompt = prompt}, tokens, 64, std::span(&demand, 1)).has_value();
  };
  EXPECT_TRUE(fits(16, 0));
  EXPECT_FALSE(fits(17, 0));
  EXPECT_TRUE(fits(12, 4));
  EXPECT_FALSE(fits(12, 5));
  // What the prompt shares with others need not be there twice.
  const auto same = counting(0, 20);
  const SequencePool::Demand demand{running.id, 12};
  EXPECT_TRUE(pool.can_admit({.prompt = same}, 20, 64, std::span(&demand, 1)).has_value());
  EXPECT_FALSE(pool.can_admit({.prompt = same, .reuse = false}, 20, 64, std::span(&demand, 1)).has_value());
  EXPECT_TRUE(sound(pool));
}

}  // namespace
}  // namespace quire::testing
