#include "quire/backend/cuda/moves.h"

#include <algorithm>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

namespace quire::cuda {
namespace {

// What the kernel does with a chunk.
void move_chunk(const MoveList& list, std::uint32_t chunk) {
  const Move& move = list.moves[list.move_of(chunk)];
  const std::uint32_t begin = (chunk - move.first_chunk) * kMoveChunk;
  ASSERT_LT(begin, move.bytes);
  const std::uint32_t end = std::min(move.bytes, begin + kMoveChunk);
  const auto* const from = static_cast<const std::byte*>(move.from);
  std::copy(from + begin, from + end, static_cast<std::byte*>(move.to) + begin);
}

TEST(CudaMoves, EveryByteIsMovedByTheChunksOfItsMove) {
  std::vector<std::uint32_t> sizes;
  for (std::uint32_t i = 0; i < kMostMoves; ++i) sizes.push_back(kMoveUnit * (1 + i * i * 7 % 5000));
  sizes[3] = kMoveChunk, sizes[4] = 2 * kMoveChunk, sizes[5] = kMoveChunk + kMoveUnit, sizes[6] = kMoveUnit;
  std::size_t total = 0;
  for (const std::uint32_t size : sizes) total += size;
  std::vector<std::byte> from(total), to(total);
  for (std::size_t i = 0; i < total; ++i) from[i] = static_cast<std::byte>(i * 31 >> 3);
  const auto list = std::make_unique<MoveList>();
  std::size_t at = 0;
  for (const std::uint32_t size : sizes) {
    ASSERT_TRUE(list->add(to.data() + at, from.data() + at, size));
    at += size;
  }
  EXPECT_FALSE(list->add(to.data() + total, from.data(), kMoveUnit)) << "it is full";
  for (std::uint32_t chunk = list->chunks; chunk > 0; --chunk) move_chunk(*list, chunk - 1);
  EXPECT_EQ(to, from);
}

TEST(CudaMoves, NoByteIsWrittenTwiceInAList) {
  std::vector<std::byte> memory(1024);
  std::byte* const to = memory.data();
  MoveList list;
  ASSERT_TRUE(list.add(to + 256, to, 256));
  EXPECT_TRUE(list.add(to + 512, to, 64)) << "behind it";
  EXPECT_TRUE(list.add(to + 240, to, 16)) << "in front of it";
  EXPECT_FALSE(list.add(to + 256, to, 256));
  EXPECT_FALSE(list.add(to + 496, to, 32));
  EXPECT_FALSE(list.add(to + 128, to, 128 + 16));
  EXPECT_FALSE(list.add(to, to, 1024));
  EXPECT_EQ(list.count, 3u);
}

TEST(CudaMoves, WhatIsNotAlignedOrLargeGoesByItself) {
  alignas(kMoveUnit) std::byte memory[64];
  EXPECT_TRUE(MoveList::suits(memory, memory + 16, 16));
  EXPECT_TRUE(MoveList::suits(memory, memory + 16, kMostMoved));
  EXPECT_FALSE(MoveList::suits(memory + 8, memory + 16, 16));
  EXPECT_FALSE(MoveList::suits(memory, memory + 4, 16));
  EXPECT_FALSE(MoveList::suits(memory, memory + 16, 24));
  EXPECT_FALSE(MoveList::suits(memory, memory + 16, 0));
  EXPECT_FALSE(MoveList::suits(memory, memory + 16, kMostMoved + kMoveUnit));
}

}  // namespace
}  // namespace quire::cuda
