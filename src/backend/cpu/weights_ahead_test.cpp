#include "quire/backend/cpu/weights_ahead.h"

#include <vector>

#include <gtest/gtest.h>

namespace quire::cpu {
namespace {

// How many turns a thread prefetches of a call.
std::uint32_t turns(const WeightsAhead::Call& call, std::uint32_t thread, std::uint32_t threads) {
  std::uint32_t turn = 0;
  while (WeightsAhead::prefetch_share(&call, thread, threads, turn)) ++turn;
  return turn;
}

constexpr std::uint64_t kTile = 1024;  // bytes: two turns
Weight matrix(const std::vector<std::byte>& memory, std::uint32_t tiles) {
  return {gguf::Type::Q8_0, tiles * 16, 32, memory.data(), kTile, true};
}

TEST(WeightsAhead, TheNextCallIsKnownFromTheStepBefore) {
  const std::vector<std::byte> memory(64 * kTile);
  const Weight first = matrix(memory, 8), second = matrix(memory, 16);
  const Product products[] = {{.out = {}, .weight = &first}, {.out = {}, .weight = &second}};
  WeightsAhead ahead;
  ahead.begin();
  EXPECT_EQ(turns(ahead.note({&products[0], 1}), 0, 1), 16u) << "the only call is the next one too";
  ahead.note({&products[1], 1});
  ahead.begin();
  EXPECT_EQ(turns(ahead.note({&products[0], 1}), 0, 1), 32u) << "the second call is next";
  EXPECT_EQ(turns(ahead.note({&products[1], 1}), 0, 1), 16u) << "after the last call comes the first";
}

TEST(WeightsAhead, AThreadPrefetchesFromTheBeginningOfItsShareToTheEndOfTheMatrix) {
  const std::vector<std::byte> memory(64 * kTile);
  const Weight large = matrix(memory, 12), small = matrix(memory, 4);
  const Product products[] = {{.out = {}, .weight = &large}, {.out = {}, .weight = &small}};
  WeightsAhead ahead;
  ahead.begin();
  const WeightsAhead::Call& call = ahead.note(products);
  // 16 tiles for 4 threads: the last one has the small matrix.
  EXPECT_EQ(turns(call, 0, 4), 24u);
  EXPECT_EQ(turns(call, 2, 4), 8u);
  EXPECT_EQ(turns(call, 3, 4), 8u);
}

TEST(WeightsAhead, MoreCallsOrProductsThanThereIsRoomForAreHarmless) {
  const std::vector<std::byte> memory(16 * kTile);
  const Weight one = matrix(memory, 2);
  const std::vector<Product> many(9, Product{.out = {}, .weight = &one});
  WeightsAhead ahead;
  for (int step = 0; step < 2; ++step) {
    ahead.begin();
    for (int i = 0; i < 5000; ++i) (void)turns(ahead.note(many), 1, 2);
  }
  Weight in_file = one;
  in_file.arranged = false;  // not in tiles
  const Product product{.out = {}, .weight = &in_file};
  WeightsAhead other;
  other.begin();
  EXPECT_EQ(turns(other.note({&product, 1}), 0, 1), 0u);
}

}  // namespace
}  // namespace quire::cpu
