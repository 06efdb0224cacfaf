// SequencePool: content that comes from elsewhere, and what an observer is told.
#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include <gtest/gtest.h>

#include "quire/state/content_observer.h"
#include "quire/state/pool_behaviour_testing.h"

namespace quire::testing {
namespace {

struct Kind {
  const char* name;
  ToyModel model;
};
class Promotion : public ::testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Models, Promotion,
                         ::testing::Values(Kind{"Attention", ToyModel::attention()}, Kind{"Latent", ToyModel::latent()},
                                           Kind{"Windowed", ToyModel::windowed(7)},
                                           Kind{"Recurrent", ToyModel::recurrent()}, Kind{"Hybrid", ToyModel::hybrid()},
                                           Kind{"Everything", ToyModel::everything(7)}),
                         [](const auto& kind) { return std::string(kind.param.name); });

// Keeps a copy of everything that the pool stores, by block and class, as long as there is one sequence.
class Copies final : public ContentObserver {
 public:
  struct At {
    std::uint32_t block, cls;
    friend auto operator<=>(const At&, const At&) = default;
  };
  void watch(const SequencePool& pool, Device& device) { pool_ = &pool, device_ = &device; }

  void stored(std::uint32_t node, std::uint32_t cls) noexcept override {
    ++stored_;
    copy(copies_, node, cls);
  }
  void dropping(std::uint32_t node, std::uint32_t cls) noexcept override { copy(dropped_, node, cls); }
  void distrust() noexcept override { ++distrusted_; }

  const std::map<At, std::vector<std::byte>>& copies() const { return copies_; }
  const std::map<At, std::vector<std::byte>>& dropped() const { return dropped_; }
  int stored_ = 0, distrusted_ = 0;

 private:
  void copy(std::map<At, std::vector<std::byte>>& to, std::uint32_t node, std::uint32_t cls) {
    const auto object = pool_->cached_object(node, cls);
    ASSERT_NE(object.address, nullptr);
    auto& bytes = to[{pool_->prefix_index().node(node).block, cls}];
    bytes.resize(object.bytes);
    ASSERT_TRUE(device_->download(bytes.data(), object.address, object.bytes).has_value());
    ASSERT_TRUE(device_->fence().has_value());
  }

  const SequencePool* pool_ = nullptr;
  Device* device_ = nullptr;
  std::map<At, std::vector<std::byte>> copies_, dropped_;
};

// The objects that a sequence of so many blocks needs and that are not in `known` blocks of a pool.
std::vector<SequencePool::FetchedObject> objects_for(const SequencePool& pool, const Copies& from, std::uint32_t blocks,
                                                     std::uint32_t known = 0) {
  std::vector<SequencePool::FetchedObject> objects;
  const auto groups = static_cast<std::uint32_t>(pool.layout().groups.size());
  for (const auto& [at, bytes] : from.copies()) {
    if (at.cls == groups && at.block + 1 == blocks) objects.push_back({groups, 0, bytes.data()});
    const bool needed = at.cls < groups && at.block < blocks && at.block >= known &&
                        at.block >= pool.first_block_needed(at.cls, blocks * pool.layout().block_size);
    if (needed) objects.push_back({at.cls, at.block, bytes.data()});
  }
  return objects;
}

PoolConfig config_for(const ToyModel& model, std::uint64_t bytes, Copies* copies = nullptr) {
  PoolConfig config = pool_of(model, bytes);
  config.checkpoint_interval = model.block_size;
  config.observer = copies;
  return config;
}

// A pool that has computed `tokens`, and copies of all that it stored.
struct Source {
  Source(const ToyModel& model, const std::vector<Token>& tokens)
      : engine(device, config_for(model, 1 << 16, &copies)) {
    copies.watch(engine.pool(), device);
    sequence = engine.create(tokens).value();
    // One token at a time, so that a checkpoint can be kept at the end of every block.
    for (const Token token : std::vector(sequence.pending)) EXPECT_TRUE(done(engine.append(sequence, {token})));
  }
  CountingDevice device;
  Copies copies;
  ToyEngine engine;
  ToyEngine::Sequence sequence;
};

// What the toy engine must find in a sequence that it did not compute.
ToyEngine::Sequence as_reused(ToyEngine& engine, SequenceId id, std::span<const Token> tokens) {
  const Hit all{.tokens = static_cast<std::uint32_t>(tokens.size())};
  return engine.begin({tokens.begin(), tokens.end()}, 0, SequencePool::Created{id, all}).value();
}

TEST_P(Promotion, GivesEveryByteThatComputingWouldHaveGiven) {
  const auto tokens = counting(0, 33);
  const Source source(GetParam().model, tokens);
  for (const std::uint32_t blocks : {1u, 3u, 8u}) {
    CountingDevice device;
    ToyEngine engine(device, config_for(GetParam().model, 1 << 16));
    SequencePool& pool = engine.pool();
    const auto first = std::span(tokens).first(blocks * 4);
    const auto id = pool.promote(first, 0, objects_for(pool, source.copies, blocks));
    ASSERT_TRUE(id.has_value()) << id.error().message();
    const auto sequence = as_reused(engine, *id, first);
    EXPECT_EQ(engine.verify(sequence), "");
    ASSERT_TRUE(done(pool.commit(*id, {}, true)));
    ASSERT_TRUE(done(pool.release(*id)));
    EXPECT_TRUE(sound(pool));
    // Like a prefix that was computed here.
    EXPECT_EQ(pool.lookup(tokens).tokens, blocks * 4);
    auto next = engine.create(tokens).value();
    EXPECT_EQ(engine.last_hit().tokens, blocks * 4);
    ASSERT_TRUE(done(engine.append(next, {tokens.begin() + blocks * 4, tokens.end()})));
    EXPECT_EQ(engine.verify(next), "");
    EXPECT_TRUE(sound(pool));
  }
}

TEST_P(Promotion, TakesWhatIsKnownFromTheIndex) {
  const auto tokens = counting(0, 33);
  const Source source(GetParam().model, tokens);
  CountingDevice device;
  ToyEngine engine(device, config_for(GetParam().model, 1 << 16));
  SequencePool& pool = engine.pool();
  cached(engine, {tokens.begin(), tokens.begin() + 13});
  std::array<std::uint32_t, 16> path;
  const std::uint32_t known = pool.known_blocks(tokens, 0, path);
  ASSERT_EQ(pool.known_blocks(tokens, 1, path), 0u);
  const auto id = pool.promote(std::span(tokens).first(28), 0, objects_for(pool, source.copies, 7, known));
  ASSERT_TRUE(id.has_value()) << id.error().message();
  const auto sequence = as_reused(engine, *id, std::span(tokens).first(28));
  EXPECT_EQ(engine.verify(sequence), "");
  EXPECT_TRUE(sound(pool));
}

TEST_P(Promotion, ChangesNothingWhenItIsRefused) {
  const auto tokens = counting(0, 33);
  const Source source(GetParam().model, tokens);
  CountingDevice device;
  ToyEngine engine(device, config_for(GetParam().model, 1 << 16));
  SequencePool& pool = engine.pool();
  const auto code = [&](std::size_t length, const std::vector<SequencePool::FetchedObject>& objects) {
    const auto id = pool.promote(std::span(tokens).first(length), 0, objects);
    EXPECT_TRUE(sound(pool));
    EXPECT_EQ(pool.stats().sequences, 0u);
    EXPECT_EQ(pool.stats().prefix_blocks, 0u);
    return id ? "promoted" : name(id.error().code);
  };
  const auto all = objects_for(pool, source.copies, 8);
  EXPECT_STREQ(code(31, all), "InvalidArgument");
  EXPECT_STREQ(code(0, {}), "InvalidArgument");
  auto wrong = all;
  wrong.front().cls = 9;
  EXPECT_STREQ(code(32, wrong), "InvalidArgument");
  auto missing = all;
  missing.erase(missing.begin());
  EXPECT_STREQ(code(32, missing), pool.is_ssm() ? "InvalidArgument" : "PrefixGone");
}

TEST_P(Promotion, IsRefusedWhereThereIsNoRoom) {
  const auto tokens = counting(0, 33);
  const Source source(GetParam().model, tokens);
  CountingDevice device;
  PoolConfig config = config_for(GetParam().model, 1);
  config.budget_bytes = 2048;
  ToyEngine engine(device, config);
  SequencePool& pool = engine.pool();
  std::vector<ToyEngine::Sequence> held;
  for (int i = 1;; ++i) {  // until it is full
    auto next = engine.create(counting(1000 * i, 4));
    if (!next || !engine.append(*next, next->pending)) break;
    held.push_back(std::move(*next));
  }
  const auto refused = pool.promote(std::span(tokens).first(32), 0, objects_for(pool, source.copies, 8));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, PoolError::Code::Exhausted);
  for (auto& sequence : held) EXPECT_EQ(engine.verify(sequence), "");
  EXPECT_TRUE(sound(pool));
}

// Whatever leaves the index is told first, with the bytes that it had when it was stored.
TEST_P(Promotion, DroppedObjectsAreToldWithTheirBytes) {
  Source source(GetParam().model, counting(0, 33));
  SequencePool& pool = source.engine.pool();
  ASSERT_FALSE(source.copies.copies().empty());
  ASSERT_TRUE(done(pool.release(source.sequence.id)));
  pool.drop_cache();
  std::vector<Copies::At> seen;
  for (const auto& [at, bytes] : source.copies.dropped()) {
    ASSERT_TRUE(source.copies.copies().contains(at));
    EXPECT_EQ(source.copies.copies().at(at), bytes);
    seen.push_back(at);
  }
  EXPECT_EQ(seen.size(), source.copies.copies().size());
}

TEST(Observer, IsNotToldOfContentThatCannotBeTrusted) {
  Copies copies;
  CountingDevice device;
  ToyEngine engine(device, config_for(ToyModel::hybrid(), 1 << 16, &copies));
  copies.watch(engine.pool(), device);
  cached(engine, counting(0, 20));
  EXPECT_GT(copies.stored_, 0);
  ASSERT_TRUE(done(engine.pool().recover()));
  EXPECT_EQ(copies.distrusted_, 1);
  EXPECT_TRUE(copies.dropped().empty());
  EXPECT_EQ(engine.pool().stats().prefix_blocks, 0u);
}

}  // namespace
}  // namespace quire::testing
