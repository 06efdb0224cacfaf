// Transfers between pinned host memory and device memory that one kernel does together. A transfer of its own costs the
// copy engine about 2.4 us beside its bytes, whatever its size. (H200: pages of 131 kB came at half the speed of one
// large transfer.) Plain C++20, for host code and kernels.
//
// The moves of a list have no order among them. So a list has one direction, and no byte is written twice.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__CUDACC__)
#define QUIRE_BOTH __host__ __device__
#else
#define QUIRE_BOTH
#endif

namespace quire::cuda {

inline constexpr std::uint32_t kMoveUnit = 16;         // bytes of one access; addresses and lengths are multiples
inline constexpr std::uint32_t kMoveChunk = 16 << 10;  // bytes that a block moves at a time
inline constexpr std::uint32_t kMostMoves = 160;       // of a list, which is a kernel's parameter: up to 4 KiB
inline constexpr std::size_t kMostMoved = std::size_t{1} << 20;  // bytes of a move; what is larger goes by itself

struct Move {
  void* to = nullptr;
  const void* from = nullptr;
  std::uint32_t bytes = 0;
  std::uint32_t first_chunk = 0;  // chunks of the moves before it
};

struct MoveList {
  Move moves[kMostMoves];
  std::uint32_t count = 0;
  std::uint32_t chunks = 0;

  static bool suits(const void* to, const void* from, std::size_t bytes) {
    const auto bits = reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from) | bytes;
    return bits % kMoveUnit == 0 && bytes > 0 && bytes <= kMostMoved;
  }
  // False: the list is full, or bytes would be written twice. The caller launches the list first.
  bool add(void* to, const void* from, std::size_t bytes) {
    if (count == kMostMoves) return false;
    const auto begin = reinterpret_cast<std::uintptr_t>(to);
    for (std::uint32_t i = 0; i < count; ++i) {
      const auto other = reinterpret_cast<std::uintptr_t>(moves[i].to);
      if (begin < other + moves[i].bytes && other < begin + bytes) return false;
    }
    moves[count++] = {to, from, static_cast<std::uint32_t>(bytes), chunks};
    chunks += static_cast<std::uint32_t>((bytes + kMoveChunk - 1) / kMoveChunk);
    return true;
  }
  // The move that a chunk belongs to.
  QUIRE_BOTH std::uint32_t move_of(std::uint32_t chunk) const {
    std::uint32_t first = 0, end = count;
    while (end - first > 1) {
      const std::uint32_t middle = (first + end) / 2;
      (moves[middle].first_chunk <= chunk ? first : end) = middle;
    }
    return first;
  }
};
static_assert(sizeof(MoveList) <= 4096);

}  // namespace quire::cuda
#undef QUIRE_BOTH
