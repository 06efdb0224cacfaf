// What adapters (LoRA) add on a GPU: t = A x, then out += factor * (B t), for the rows that have an adapter.
//
// A and B are f32 in tiles of 16 rows (low_rank_tiles.h). An element of t is sixteen sums, of the columns k with
// k % 16 = 0, 1, ..., each from the first column on, which are then added in that order. An element of B t is one sum
// from the first column on. So the bits of a row depend on its input and its adapter alone.
//
// Launchers only launch: they check nothing, allocate nothing and never wait.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>

namespace quire::cuda {

// Rows with one adapter, and a matrix. With experts, each row has `used` places in t and out, and its experts' matrices
// are `a_stride` and `b_stride` floats apart.
struct LowRankItem {
  const float* a = nullptr;
  const float* b = nullptr;
  std::uint32_t rank = 0, cols = 0, outs = 0;
  float factor = 1;
  const float* x = nullptr;  // [row][cols], or [place][cols]
  std::uint64_t x_stride = 0;
  bool x_by_place = false;
  float* t = nullptr;  // [place][t_stride]
  std::uint32_t t_stride = 0;
  float* out = nullptr;  // [place][outs]
  std::uint64_t out_stride = 0;
  const std::uint32_t* rows = nullptr;  // [count]
  std::uint32_t count = 0;
  std::uint32_t used = 1;          // experts of a row
  const float* numbers = nullptr;  // [row][used]: of the experts; null: there are none
  std::uint64_t numbers_stride = 0;
  std::uint64_t a_stride = 0, b_stride = 0;
};

inline constexpr std::uint32_t kMostLowRanks = 8;
struct LowRankSet {
  LowRankItem item[kMostLowRanks];
  std::uint32_t first[kMostLowRanks + 1] = {};  // places before each item
  std::uint32_t count = 0;

  void add(const LowRankItem& next) {
    item[count] = next;
    first[count + 1] = first[count] + next.count * next.used;
    ++count;
  }
};

void launch_low_rank_a(cudaStream_t stream, const LowRankSet& set);
void launch_low_rank_b(cudaStream_t stream, const LowRankSet& set);

}  // namespace quire::cuda
