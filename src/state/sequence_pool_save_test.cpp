// SequencePool: save and restore, and whether there would be room.
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
    cached(engine, counting(100, 40));  // others overwrite its pages
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
  EXPECT_EQ(stranger.pool().restore(*saved).error().code, PoolError::Code::Incompatible);
  EXPECT_EQ(stranger.pool().stats().sequences, 0u);
  ToyModel more = GetParam().model;
  more.layers.push_back(LayerDesc::attention(3, 8));
  ToyEngine another(device, pool_of(more, 1 << 16));
  EXPECT_EQ(another.pool().restore(*saved).error().code, PoolError::Code::Incompatible);
}

Fingerprint model_number(std::uint64_t number) { return {{number, 2, 3, 4}}; }

SavedSequence copy_of(const SavedSequence& saved) {
  SavedSequence copy{.version = saved.version,
                     .model = saved.model,
                     .layout = saved.layout,
                     .name_space = saved.name_space,
                     .tokens = saved.tokens,
                     .first_blocks = saved.first_blocks,
                     .bytes = saved.bytes,
                     .data = HostBytes::create(saved.data.size()).value(),
                     .checksum = saved.checksum};
  std::copy_n(saved.data.data(), saved.data.size(), copy.data.data());
  return copy;
}

// Restore is refused with this message, and the pool is unchanged: nothing held,
// nothing cached, nothing in the prefix index.
::testing::AssertionResult refused_without_a_trace(SequencePool& pool, const SavedSequence& saved, Code code,
                                                   const std::string& words) {
  const auto restored = pool.restore(saved);
  if (auto ok = refused(restored, code); !ok) return ok;
  if (restored.error().message().find(words) == std::string::npos) {
    return ::testing::AssertionFailure() << restored.error().message();
  }
  const PoolStats stats = pool.stats();
  if (stats.sequences != 0 || stats.prefix_blocks != 0 || stats.free_slabs != stats.slabs) {
    return ::testing::AssertionFailure() << "something is left in the pool";
  }
  return sound(pool);
}

TEST_P(SavedSequences, OfAnotherModelAreRefusedAlthoughEveryPageHasTheSameSize) {
  CountingDevice device;
  PoolConfig mine = pool_of(GetParam().model, 1 << 16), theirs = mine;
  mine.model = model_number(1), theirs.model = model_number(9);
  ToyEngine engine(device, mine), stranger(device, theirs), twin(device, mine);
  auto sequence = written(engine, counting(0, 21));
  const auto saved = engine.pool().save(sequence.id);
  ASSERT_TRUE(done(saved));
  EXPECT_TRUE(refused_without_a_trace(stranger.pool(), *saved, Code::Incompatible, "another model"));
  EXPECT_TRUE(refused(stranger.pool().can_restore(*saved, 0, 1, {}), Code::Incompatible));
  EXPECT_EQ(stranger.pool().lookup(counting(0, 21)).tokens, 0u);
  sequence.id = twin.pool().restore(*saved).value();
  EXPECT_EQ(twin.verify(sequence), "");
}

// The same bytes with another meaning: a window of another length, layers in another order.
TEST(SavedSequences, OfAnotherLayoutAreRefusedAlthoughEveryPageHasTheSameSize) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::windowed(7), 1 << 16));
  const auto saved = engine.pool().save(written(engine, counting(0, 5)).id);
  ToyModel swapped = ToyModel::windowed(7);
  std::swap(swapped.layers[0].window, swapped.layers[1].window);
  ToyModel halves = ToyModel::windowed(7);
  for (LayerDesc& layer : halves.layers) layer.type = ElementType::BF16;
  for (const ToyModel& other : {ToyModel::windowed(8), swapped, halves}) {
    ToyEngine stranger(device, pool_of(other, 1 << 16));
    EXPECT_TRUE(refused_without_a_trace(stranger.pool(), *saved, Code::Incompatible, "another layout"));
  }
}
TEST(SavedSequences, OfAnotherTypeOfStatesAreRefusedAlthoughTheyHaveTheSameSize) {
  CountingDevice device;
  const auto model_of = [](ElementType type) {
    ToyModel model = ToyModel::hybrid();
    for (LayerDesc& layer : model.layers) layer.state_type = type;
    return model;
  };
  ToyEngine engine(device, pool_of(model_of(ElementType::F16), 1 << 16));
  auto sequence = written(engine, counting(0, 5));
  EXPECT_EQ(engine.pool().state_view(sequence.id)->type, ElementType::F16);
  const auto saved = engine.pool().save(sequence.id);
  ASSERT_TRUE(done(saved));
  for (const ElementType type : {ElementType::F32, ElementType::BF16}) {
    ToyEngine stranger(device, pool_of(model_of(type), 1 << 16));
    EXPECT_TRUE(refused_without_a_trace(stranger.pool(), *saved, Code::Incompatible, "another layout"));
  }
  ToyEngine twin(device, pool_of(model_of(ElementType::F16), 1 << 16));
  sequence.id = twin.pool().restore(*saved).value();
  EXPECT_EQ(twin.verify(sequence), "");
}

TEST_P(SavedSequences, WithAFieldThatIsWrongAreRefusedAndSayWhich) {
  CountingDevice device;
  PoolConfig config = pool_of(GetParam().model, 1 << 16);
  config.model = model_number(1);
  ToyEngine engine(device, config), fresh(device, config);
  SequencePool& pool = fresh.pool();
  const auto saved = engine.pool().save(written(engine, counting(0, 13)).id);
  ASSERT_TRUE(done(saved));
  const auto with = [&](auto change) {
    SavedSequence wrong = copy_of(*saved);
    change(wrong);
    return wrong;
  };
  EXPECT_TRUE(refused_without_a_trace(pool, with([](auto& s) { s.version = 2; }), Code::Incompatible,
                                      "format version than this pool: 1 expected, 2 given"));
  EXPECT_TRUE(refused_without_a_trace(pool, with([](auto& s) { s.model.words[3] ^= 1; }), Code::Incompatible, "model"));
  EXPECT_TRUE(refused_without_a_trace(pool, with([](auto& s) { s.layout.high ^= 1; }), Code::Incompatible, "layout"));
  EXPECT_TRUE(refused_without_a_trace(pool, with([](auto& s) { s.name_space = 5; }), Code::Damaged, "checksum"));
  EXPECT_TRUE(refused_without_a_trace(pool, with([](auto& s) { s.tokens[3] ^= 1; }), Code::Damaged, "checksum"));
  EXPECT_TRUE(refused_without_a_trace(pool, with([](auto& s) { s.checksum.low ^= 1; }), Code::Damaged, "checksum"));
  EXPECT_TRUE(refused_without_a_trace(pool, with([](auto& s) { s.tokens.resize(65); }), Code::TooLong, "tokens"));
  EXPECT_TRUE(refused_without_a_trace(pool, with([](auto& s) { s.bytes += 1; }), Code::Damaged, "length in bytes"));
  EXPECT_TRUE(
      refused_without_a_trace(pool, with([](auto& s) { s.first_blocks.push_back(0); }), Code::Damaged, "groups"));
  if (pool.layout().has_attention()) {
    const auto none = with([](auto& s) { s.first_blocks.clear(); });
    EXPECT_TRUE(refused_without_a_trace(pool, none, Code::Damaged, "layer groups"));
    EXPECT_TRUE(refused(pool.can_restore(none, 0, 1, {}), Code::Damaged));
    EXPECT_TRUE(refused_without_a_trace(pool, with([](auto& s) { s.first_blocks[0] = UINT32_MAX; }), Code::Damaged,
                                        "first block"));
    EXPECT_TRUE(refused_without_a_trace(pool, with([](auto& s) { s.tokens.resize(2); }), Code::Damaged, "expected"));
  }
  for (const std::uint64_t size : {std::uint64_t{0}, saved->bytes - 1, saved->bytes + 1}) {
    const auto cut = with([&](auto& s) { s.data = HostBytes::create(size).value(); });
    EXPECT_TRUE(refused_without_a_trace(pool, cut, Code::Damaged, "bytes"));
    EXPECT_TRUE(refused(pool.can_restore(cut, 0, 1, {}), Code::Damaged));
  }
  for (std::uint64_t bit = 0; bit < saved->bytes * 8; bit += 97) {
    const auto flipped = with([&](auto& s) { s.data.data()[bit / 8] ^= static_cast<std::byte>(1 << bit % 8); });
    ASSERT_TRUE(refused_without_a_trace(pool, flipped, Code::Damaged, "checksum")) << bit;
  }
  EXPECT_TRUE(refused(pool.can_restore(*saved, UINT32_MAX, 1, {}), Code::TooLong));
  EXPECT_TRUE(done(pool.restore(copy_of(*saved))));
}

// The device of these tests reads and writes host memory at the fence and not before.
TEST_P(SavedSequences, AreWholeWhenSaveReturnsAndFreeWhenRestoreDoes) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(GetParam().model, 1 << 16));
  SequencePool& pool = engine.pool();
  auto sequence = written(engine, counting(0, 13));
  auto saved = pool.save(sequence.id);
  ASSERT_TRUE(done(saved));
  const std::vector<std::byte> bytes(saved->data.data(), saved->data.data() + saved->bytes);
  ASSERT_TRUE(done(device.fence()));
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), saved->data.data()));
  ASSERT_TRUE(done(pool.release(sequence.id)));
  pool.drop_cache();
  device.fail_after(1);                            // also if it is refused half-way
  EXPECT_FALSE(pool.restore(*saved).has_value());  // with a single call, that call is the fence
  device.never_fail();
  sequence.id = pool.restore(*saved).value();
  std::fill_n(saved->data.data(), saved->bytes, std::byte{0});
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
  EXPECT_TRUE(refused(pool.save(sequence.id), Code::WorkFailed));
  const auto saved = pool.save(sequence.id);
  ASSERT_TRUE(done(saved));
  ASSERT_TRUE(done(pool.release(sequence.id)));
  pool.drop_cache();
  ASSERT_TRUE(done(device.fence()));
  device.fail_work_after(0);
  EXPECT_TRUE(refused(pool.restore(*saved), Code::WorkFailed));
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
  EXPECT_EQ(pool.can_restore(*saved, 0, 1, {}).error().code, PoolError::Code::Exhausted);
  EXPECT_EQ(pool.restore(*saved).error().code, PoolError::Code::Exhausted);
  EXPECT_EQ(pool.stats().pages[0].held, 5u);
  EXPECT_EQ(pool.stats().refusals, 1u);
  ASSERT_TRUE(done(pool.release(other.id)));
  EXPECT_TRUE(pool.can_restore(*saved, 16, 1, {}).has_value());
  EXPECT_FALSE(pool.can_restore(*saved, 17, 1, {}).has_value());
  EXPECT_TRUE(pool.restore(*saved).has_value());
  EXPECT_TRUE(sound(pool));
}

// A view of a saved sequence's beginning, as a mapped file would give it.
struct Beginning {
  std::vector<std::uint32_t> first_blocks;
  std::vector<std::span<const std::byte>> pages;
  SavedView view;

  Beginning(const SequencePool& pool, const SavedSequence& saved, std::uint32_t tokens, const std::byte* state) {
    const std::uint32_t block = pool.layout().block_size;
    const std::uint32_t blocks = (tokens + block - 1) / block;
    const auto all = (static_cast<std::uint32_t>(saved.tokens.size()) + block - 1) / block;
    const std::byte* at = saved.data.data();
    for (std::uint32_t g = 0; g < pool.layout().groups.size(); ++g) {
      const std::uint64_t bytes = pool.layout().groups[g].page_bytes();
      first_blocks.push_back(saved.first_blocks[g]);
      pages.push_back({at, (blocks - saved.first_blocks[g]) * bytes});
      at += (all - saved.first_blocks[g]) * bytes;
    }
    const std::uint64_t state_bytes = pool.layout().has_recurrent() ? pool.layout().recurrent.bytes() : 0;
    view = {.model = saved.model,
            .layout = saved.layout,
            .name_space = saved.name_space,
            .tokens = std::span(saved.tokens).first(tokens),
            .first_blocks = first_blocks,
            .pages = pages,
            .state = {state != nullptr ? state : at, state_bytes}};
  }
};

TEST_P(SavedSequences, ComeBackFromAViewOfTheirBytes) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(GetParam().model, 1 << 16)), twin(device, pool_of(GetParam().model, 1 << 16));
  auto sequence = written(engine, counting(0, 30));
  const auto saved = engine.pool().save(sequence.id);
  ASSERT_TRUE(done(saved));
  const Beginning whole(engine.pool(), *saved, 30, nullptr);
  sequence.id = twin.pool().restore(whole.view).value();
  EXPECT_EQ(twin.verify(sequence), "");
  EXPECT_TRUE(sound(twin.pool()));
  ASSERT_TRUE(done(twin.pool().release(sequence.id)));

  SequencePool& pool = twin.pool();
  pool.drop_cache();
  const auto refuses = [&](auto change, Code code) {
    Beginning wrong(engine.pool(), *saved, 30, nullptr);
    change(wrong);
    return refused(pool.restore(wrong.view), code) && pool.stats().sequences == 0 && pool.stats().prefix_blocks == 0;
  };
  EXPECT_TRUE(refuses([](auto& b) { b.view.model.words[0] ^= 1; }, Code::Incompatible));
  EXPECT_TRUE(refuses([](auto& b) { b.view.layout.low ^= 1; }, Code::Incompatible));
  EXPECT_TRUE(refuses(
      [](auto& b) { b.view.state = b.view.state.empty() ? std::as_bytes(b.view.tokens) : b.view.state.first(1); },
      Code::Damaged));
  EXPECT_TRUE(refuses([](auto& b) { b.view.pages = {}, b.view.first_blocks = {}, b.view.state = {}; }, Code::Damaged));
  if (pool.layout().has_attention()) {
    EXPECT_TRUE(refuses([](auto& b) { b.pages[0] = b.pages[0].first(b.pages[0].size() - 1); }, Code::Damaged));
    EXPECT_TRUE(refuses([](auto& b) { b.first_blocks[0] = 8; }, Code::Damaged));
    EXPECT_TRUE(refuses([](auto& b) { b.view.tokens = b.view.tokens.first(2); }, Code::Damaged));
  }
}

// With blocks larger than the unit, most checkpoints lie inside a block.
TEST(SavedCheckpoints, ComeBackWhereTheyWereAndAPromptResumesFromEach) {
  for (const std::uint32_t block : {4u, 8u, 16u}) {
    CountingDevice device;
    PoolConfig config = pool_of(ToyModel::hybrid(block), 1 << 18);
    config.checkpoint_unit = 4, config.checkpoint_interval = 12;
    ToyEngine engine(device, config), twin(device, config);
    auto sequence = written(engine, counting(0, 42), 0, 4);
    const auto saved = engine.pool().save(sequence.id);
    const auto checkpoints = engine.pool().save_checkpoints(sequence.id);
    ASSERT_TRUE(done(saved));
    ASSERT_TRUE(done(checkpoints));
    std::vector<std::uint32_t> positions;
    for (const SavedCheckpoint& each : *checkpoints) positions.push_back(each.position);
    EXPECT_EQ(positions, (std::vector<std::uint32_t>{12, 24, 36})) << block;

    SequencePool& pool = twin.pool();
    for (const SavedCheckpoint& each : *checkpoints) {
      const Beginning beginning(engine.pool(), *saved, each.position, each.state.data());
      const auto id = pool.restore(beginning.view);
      ASSERT_TRUE(done(id));
      ASSERT_TRUE(done(pool.commit(*id, {}, true)));
      ASSERT_TRUE(done(pool.release(*id)));
    }
    EXPECT_TRUE(sound(pool));
    for (const std::uint32_t common : {13u, 25u, 40u}) {
      std::vector<Token> prompt = counting(0, common);
      prompt.push_back(1000);
      auto resumed = twin.create(prompt).value();
      EXPECT_EQ(twin.last_hit().tokens, common / 12 * 12) << block;
      EXPECT_EQ(twin.verify(resumed), "");
      ASSERT_TRUE(done(pool.release(resumed.id)));
    }
    EXPECT_TRUE(sound(pool));
  }
}

TEST(SavedCheckpoints, ThatTheSavedPagesOfAWindowDoNotReachAreLeftOut) {
  CountingDevice device;
  PoolConfig config = pool_of(ToyModel::everything(20), 1 << 18);
  config.checkpoint_interval = 4;
  ToyEngine engine(device, config);
  auto sequence = written(engine, counting(0, 30), 0, 4);
  EXPECT_EQ(engine.pool().stats().states.cached, 7u) << "at 4, 8, ... 28";
  const auto checkpoints = engine.pool().save_checkpoints(sequence.id);
  ASSERT_TRUE(done(checkpoints));
  // From 30 the window reaches back to 11, in block 2. From 28 it reaches back to 9, in the same block; from 24 to 5.
  ASSERT_EQ(checkpoints->size(), 1u);
  EXPECT_EQ(checkpoints->front().position, 28u);
  ToyEngine plain(device, pool_of(ToyModel::attention(), 1 << 16));
  auto other = written(plain, counting(0, 30));
  EXPECT_TRUE(plain.pool().save_checkpoints(other.id)->empty());
  EXPECT_TRUE(refused(plain.pool().save_checkpoints(SequenceId{}), Code::InvalidSequence));
}

TEST(CanAdmit, SaysWhetherAPromptAndWhatOthersNeedFitTogether) {
  CountingDevice device;
  ToyEngine engine(device, pool_of(ToyModel::attention(), 8 * kPage));
  SequencePool& pool = engine.pool();
  const auto running = written(engine, counting(0, 16));  // four pages
  const auto prompt = counting(50, 12);
  const auto fits = [&](std::uint32_t tokens, std::uint32_t more) {
    const BatchEntry demand{running.id, more};
    return pool.can_admit({.prompt = prompt}, tokens, 64, std::span(&demand, 1)).has_value();
  };
  EXPECT_TRUE(fits(16, 0));
  EXPECT_FALSE(fits(17, 0));
  EXPECT_TRUE(fits(12, 4));
  EXPECT_FALSE(fits(12, 5));
  // The prefix that the prompt shares with others is needed only once.
  const auto same = counting(0, 20);
  const BatchEntry demand{running.id, 12};
  EXPECT_TRUE(pool.can_admit({.prompt = same}, 20, 64, std::span(&demand, 1)).has_value());
  EXPECT_FALSE(pool.can_admit({.prompt = same, .reuse = false}, 20, 64, std::span(&demand, 1)).has_value());
  EXPECT_TRUE(sound(pool));
}

}  // namespace
}  // namespace quire::testing
