// The hot path allocates nothing: every allocation of this program is counted while a pool works.

#include <algorithm>

#include <gtest/gtest.h>

#include "quire/base/counted_heap_testing.h"
#include "quire/state/sequence_pool.h"

namespace quire {
namespace {

using quire::testing::allocations;

struct Life {
  HostDevice device;
  std::unique_ptr<SequencePool> pool;
  std::unique_ptr<HostArena> host_arena;
  std::vector<Token> prompt = std::vector<Token>(96);
  std::uint32_t round = 0;
  std::uint64_t done = 0, resumed = 0;
  std::vector<Token> tokens_then = std::vector<Token>(512);  // of a suspended sequence

  Life(std::span<const LayerDesc> layers, std::uint32_t block_size) {
    PoolConfig config{.layout = *StateLayout::from_layers(layers, block_size), .max_sequences = 8, .max_tokens = 512};
    config.checkpoint_interval = 32;
    config.checkpoint_unit = 16;
    config.max_recompute = 128;
    for (const PageShape& shape : config.layout.groups) config.budget_bytes += 40 * shape.page_bytes();
    if (config.layout.has_recurrent()) config.budget_bytes += 8 * config.layout.recurrent.bytes();
    pool = *SequencePool::create(device, config);
    host_arena = *pool->create_host_arena(config.budget_bytes);
  }

  // Create, prefill, decode, fork, write on both sides, suspend, resume, rewind, release; and refusals too.
  void live() {
    for (std::size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<Token>(i < 40 ? i : i * 7 + round % 50);
    ++round;
    const auto created = pool->create({.prompt = prompt});
    if (!created) return;
    for (auto rest = std::span(prompt).subspan(created->hit.tokens); !rest.empty();) {
      std::size_t chunk = rest.size();
      if (const auto due = pool->next_checkpoint(created->id)) {
        chunk = std::min<std::size_t>(chunk, *due - *pool->length(created->id));
      }
      if (!pool->reserve(created->id, static_cast<std::uint32_t>(chunk))) break;
      done += pool->commit(created->id, rest.first(chunk)).has_value();
      rest = rest.subspan(chunk);
    }
    for (Token token = 0; token < 50; ++token) {
      if (!pool->reserve(created->id, 1)) break;
      if (pool->layout().has_attention()) (void)pool->kv_view(created->id, 0, 0);
      done += pool->commit(created->id, std::span(&token, 1)).has_value();
    }
    const auto forked = pool->fork(created->id, *pool->length(created->id));
    if (forked) {
      const BatchEntry both[] = {{created->id, 3}, {forked->id, 5}};
      const Token tokens[] = {1, 2, 3, 4, 5};
      if (pool->reserve(both)) {
        done += pool->commit(created->id, std::span(tokens).first(3)).has_value();
        done += pool->commit(forked->id, tokens).has_value();
      }
      auto id = forked->id;
      const auto tokens_of_it = *pool->tokens(id);
      std::ranges::copy(tokens_of_it, tokens_then.begin());
      const auto known = std::span(tokens_then).first(tokens_of_it.size());
      if (const auto suspended = pool->suspend(id, *host_arena)) {
        const auto back = pool->resume(*suspended, known);
        resumed += back.has_value();
        if (back) id = *back;
      }
      done += pool->rewind(id, 20).has_value();
      done += pool->release(id).has_value();
    }
    (void)pool->reserve(created->id, 100000);  // refused
    done += pool->release(created->id).has_value();
  }
};

void expect_no_allocation(std::span<const LayerDesc> layers, std::uint32_t block_size = 16) {
  Life life(layers, block_size);
  for (int i = 0; i < 3; ++i) life.live();
  const std::uint64_t before = allocations;
  const std::uint64_t done = life.done;
  for (int i = 0; i < 200; ++i) life.live();
  const std::uint64_t after = allocations;
  EXPECT_EQ(after - before, 0u);
  EXPECT_GT(life.done - done, 200u * 50) << "the lives were refused, nothing was measured";
  EXPECT_GT(life.resumed, 100u);
  EXPECT_GT(life.pool->stats().hit_tokens, 0u);
  EXPECT_GT(life.pool->stats().blocks_evicted, 0u);
  EXPECT_EQ(life.pool->stats().parts_stored > 100, block_size > 16);
}

TEST(Heap, NothingIsAllocatedByALivePoolOfAttentionLayers) {
  const LayerDesc layers[] = {LayerDesc::attention(2, 16), LayerDesc::attention(2, 16)};
  expect_no_allocation(layers);
}

TEST(Heap, NothingIsAllocatedByALivePoolWithSlidingWindows) {
  const LayerDesc layers[] = {LayerDesc::attention(2, 16), LayerDesc::attention(2, 16, ElementType::F16, 40)};
  expect_no_allocation(layers);
}

TEST(Heap, NothingIsAllocatedByALivePoolOfAHybrid) {
  const LayerDesc layers[] = {LayerDesc::attention(2, 16), LayerDesc::recurrent(512, 4096),
                              LayerDesc::recurrent(512, 4096)};
  expect_no_allocation(layers);
}

// With blocks larger than the checkpoint unit, prefixes that end inside a block are kept.
TEST(Heap, NothingIsAllocatedByALivePoolWithLargeBlocks) {
  const LayerDesc layers[] = {LayerDesc::attention(2, 16), LayerDesc::attention(2, 16, ElementType::F16, 40),
                              LayerDesc::recurrent(512, 4096)};
  expect_no_allocation(layers, 64);
  expect_no_allocation(std::span(layers).first(2), 64);
}

TEST(Heap, TheCounterCounts) {
  const std::uint64_t before = allocations;
  auto something = std::make_unique<int>(1);
  EXPECT_EQ(*something, 1);
  EXPECT_EQ(allocations - before, 1u);
}

}  // namespace
}  // namespace quire
