#include "quire/engine/pool_size.h"

#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "quire/state/sequence_pool.h"

namespace quire::engine {
namespace {

std::unique_ptr<SequencePool> pool_of(Device& device, const StateLayout& layout, std::uint64_t bytes,
                                      std::uint32_t tokens) {
  PoolConfig config{.layout = layout, .budget_bytes = bytes, .max_sequences = 1, .max_tokens = tokens};
  auto pool = SequencePool::create(device, config);
  EXPECT_TRUE(pool) << pool.error().message();
  return pool ? std::move(*pool) : nullptr;
}

TEST(PoolSize, OneSequenceFitsIntoWhatIsSaidAndTheMemoryIsNotWasted) {
  std::mt19937 random(3);
  HostDevice device;
  for (int round = 0; round < 200; ++round) {
    std::vector<LayerDesc> layers;
    const std::uint32_t kinds = 1 + random() % 7;  // bits: attention, window, recurrent; at least one
    const std::uint32_t count = 1 + random() % 4;
    for (std::uint32_t i = 0; i < count; ++i) {
      if (kinds & 1) layers.push_back(LayerDesc::attention(1 + random() % 4, 8 << random() % 3));
      if (kinds & 2) layers.push_back(LayerDesc::attention(2, 16, ElementType::F16, 16 + random() % 100));
      if (kinds & 4) layers.push_back(LayerDesc::recurrent(96, 4096));
    }
    const StateLayout layout = *StateLayout::from_layers(layers, 8u << random() % 3);
    const SequenceNeeds needs{.tokens = static_cast<std::uint32_t>(1 + random() % 3000),
                              .chunk = static_cast<std::uint32_t>(1 + random() % 256),
                              .checkpoints = static_cast<std::uint32_t>(random() % 4)};
    const auto bytes = bytes_for(layout, needs);
    ASSERT_TRUE(bytes) << bytes.error().message;
    const auto pool = pool_of(device, layout, *bytes, needs.tokens);
    ASSERT_TRUE(pool->can_ever_fit(needs.tokens, needs.chunk)) << round;
    EXPECT_GE(tokens_within(layout, *bytes, needs), needs.tokens);

    std::uint64_t sum = 0, largest = 0;
    for (const PageShape& group : layout.groups) {
      const std::uint64_t window = group.window + needs.chunk + 2 * group.block_size;
      const std::uint64_t tokens = group.window == 0 ? needs.tokens : std::min<std::uint64_t>(needs.tokens, window);
      sum += (tokens / group.block_size + 1) * group.page_bytes();
      largest = std::max(largest, group.page_bytes());
    }
    sum += (1 + needs.checkpoints) * layout.recurrent.bytes();
    largest = std::max(largest, layout.recurrent.bytes());
    EXPECT_LE(*bytes, sum + sum / 4 + 8 * largest) << round;
  }
}

TEST(PoolSize, TheLongestSequenceFitsAndALongerOneDoesNot) {
  std::mt19937 random(4);
  HostDevice device;
  int bounded = 0;
  for (int round = 0; round < 100; ++round) {
    std::vector<LayerDesc> layers = {LayerDesc::attention(2, 16)};
    if (round % 2 == 0) layers.push_back(LayerDesc::recurrent(96, 4096));
    const StateLayout layout = *StateLayout::from_layers(layers, 16);
    const std::uint64_t budget = 40'000 + random() % 1'000'000;
    const SequenceNeeds needs{.tokens = 4096, .chunk = 64};
    const std::uint32_t tokens = tokens_within(layout, budget, needs);
    if (tokens == 0) continue;
    const auto pool = pool_of(device, layout, budget, 8192);
    EXPECT_TRUE(pool->can_ever_fit(tokens, needs.chunk));
    if (tokens == needs.tokens) continue;
    ++bounded;
    EXPECT_FALSE(pool->can_ever_fit(tokens + 1, needs.chunk));
  }
  EXPECT_GT(bounded, 30);
}

// Like granite-4.0-h-350m: 4 attention layers, and 28 recurrent ones whose state takes 22 MB.
StateLayout granite_layout() {
  std::vector<LayerDesc> layers;
  for (int i = 0; i < 28; ++i) layers.push_back(LayerDesc::recurrent(4 * 3 * (1536 + 2 * 128), 4 * 1536 * 128));
  for (int i = 0; i < 4; ++i) layers.push_back(LayerDesc::attention(4, 64));
  return *StateLayout::from_layers(layers, 16);
}

TEST(PoolSize, CheckpointsAreACacheAndNoSequenceNeedsThem) {
  const StateLayout layout = granite_layout();
  const std::uint64_t state = layout.recurrent.bytes();
  ASSERT_GT(state, 22'000'000u);
  const SequenceNeeds needs{.chunk = 256, .checkpoints = 8};
  const PoolWish small{
      .context = 1024, .memory = 64 << 20, .device = {.free = std::uint64_t{8} << 30, .total = std::uint64_t{8} << 30}};
  const auto size = choose_pool_size(layout, 32768, small, needs);
  ASSERT_TRUE(size) << size.error().message;
  EXPECT_EQ(size->context, 1024u);
  HostDevice device;
  const auto pool = pool_of(device, layout, size->bytes, size->context);
  EXPECT_TRUE(pool->can_ever_fit(1024, 256));

  // Where the caller names no size, there is room for the checkpoints too.
  PoolWish any = small;
  any.memory = 0;
  const auto chosen = choose_pool_size(layout, 32768, any, needs);
  ASSERT_TRUE(chosen) << chosen.error().message;
  EXPECT_GE(chosen->bytes, 9 * state);
  // Unless the memory is short: then the sequence comes first.
  any.device.free = 80 << 20;
  const auto tight = choose_pool_size(layout, 32768, any, needs);
  ASSERT_TRUE(tight) << tight.error().message;
  EXPECT_EQ(tight->context, 1024u);
  EXPECT_LT(tight->bytes, 3 * state);
}

// A GPU's memory is the pool's, but for a reserve. A small model takes no more than its sequences could ever use.
TEST(PoolSize, MemoryOfADeviceOfItsOwnIsUsed) {
  const LayerDesc layers[] = {LayerDesc::attention(8, 128)};
  const StateLayout layout = *StateLayout::from_layers(layers, 16);
  constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
  const PoolWish wish{.device = {.free = 20 * kGiB, .total = 24 * kGiB}, .own_memory = true, .contexts = 16};
  const auto large = choose_pool_size(layout, 1 << 20, wish, {.chunk = 256});
  ASSERT_TRUE(large) << large.error().message;
  EXPECT_EQ(large->bytes, 19 * kGiB);
  EXPECT_EQ(large->context, std::uint32_t{1} << 20);
  const auto small = choose_pool_size(layout, 2048, wish, {.chunk = 256});
  ASSERT_TRUE(small) << small.error().message;
  EXPECT_LT(small->bytes, kGiB / 2);
  EXPECT_GE(small->bytes, 32 * *bytes_for(layout, {.tokens = 2048, .chunk = 256}));
}

TEST(PoolSize, ABudgetBelowOneObjectHoldsNoTokens) {
  const LayerDesc layers[] = {LayerDesc::attention(2, 16), LayerDesc::recurrent(96, 4096)};
  const StateLayout layout = *StateLayout::from_layers(layers, 16);
  EXPECT_EQ(tokens_within(layout, 100, {.tokens = 100}), 0u);
  EXPECT_EQ(tokens_within(layout, 5000, {.tokens = 100}), 0u) << "a state, and no page";
}

TEST(PoolSize, SizesThatOverflowAreRefused) {
  const LayerDesc layers[] = {LayerDesc::attention(1 << 14, 1 << 16, ElementType::F32)};
  const StateLayout layout = *StateLayout::from_layers(layers, 16);
  EXPECT_FALSE(bytes_for(layout, {.tokens = UINT32_MAX}));
}

}  // namespace
}  // namespace quire::engine
