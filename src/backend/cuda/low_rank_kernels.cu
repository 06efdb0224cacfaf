#include <algorithm>

#include "quire/backend/cuda/low_rank_kernels.h"

namespace quire::cuda {
namespace {

constexpr std::uint32_t kThreads = 256;
constexpr std::uint32_t kLanes = 16;                 // rows of a tile
constexpr std::uint32_t kSlots = kThreads / kLanes;  // sums of an element of t

struct Place {
  const LowRankItem* item;
  std::uint32_t row, place, expert;
};

__device__ Place place_of(const LowRankSet& set, std::uint32_t index) {
  std::uint32_t i = 0;
  while (index >= set.first[i + 1]) ++i;
  const LowRankItem& item = set.item[i];
  const std::uint32_t at = index - set.first[i], row = item.rows[at / item.used], k = at % item.used;
  const std::uint32_t expert =
      item.numbers == nullptr ? 0 : static_cast<std::uint32_t>(item.numbers[row * item.numbers_stride + k]);
  return {&item, row, item.numbers == nullptr ? row : row * item.used + k, expert};
}

// A block computes t of one place. A thread has a row of the tile and every sixteenth column; neighbouring threads read
// neighbouring floats.
__global__ void __launch_bounds__(kThreads) low_rank_a(const __grid_constant__ LowRankSet set) {
  __shared__ float sums[kSlots][kLanes];
  const Place place = place_of(set, blockIdx.x);
  const LowRankItem& item = *place.item;
  const std::uint32_t lane = threadIdx.x % kLanes, slot = threadIdx.x / kLanes;
  const float* const x = item.x + (item.x_by_place ? place.place : place.row) * item.x_stride;
  const float* a = item.a + place.expert * item.a_stride;
  float* const t = item.t + std::uint64_t{place.place} * item.t_stride;
  for (std::uint32_t first = 0; first < item.rank; first += kLanes, a += std::uint64_t{item.cols} * kLanes) {
    float sum = 0;
    for (std::uint32_t k = slot; k < item.cols; k += kSlots) {
      sum = __fmaf_rn(a[std::uint64_t{k} * kLanes + lane], x[k], sum);
    }
    sums[slot][lane] = sum;
    __syncthreads();
    if (slot == 0) {
#pragma unroll
      for (std::uint32_t i = 1; i < kSlots; ++i) sum = __fadd_rn(sum, sums[i][lane]);
      t[first + lane] = sum;
    }
    __syncthreads();
  }
}

// A block computes kThreads outputs of one place.
__global__ void __launch_bounds__(kThreads) low_rank_b(const __grid_constant__ LowRankSet set) {
  const Place place = place_of(set, blockIdx.x);
  const LowRankItem& item = *place.item;
  const std::uint32_t n = blockIdx.y * kThreads + threadIdx.x;
  if (n >= item.outs) return;
  const float* const b =
      item.b + place.expert * item.b_stride + std::uint64_t{n / kLanes} * item.rank * kLanes + n % kLanes;
  const float* const t = item.t + std::uint64_t{place.place} * item.t_stride;
  float sum = 0;
  for (std::uint32_t r = 0; r < item.rank; ++r) sum = __fmaf_rn(b[std::uint64_t{r} * kLanes], t[r], sum);
  float* const out = item.out + place.place * item.out_stride + n;
  *out = __fmaf_rn(item.factor, sum, *out);
}

}  // namespace

void launch_low_rank_a(cudaStream_t stream, const LowRankSet& set) {
  if (set.first[set.count] == 0) return;
  low_rank_a<<<set.first[set.count], kThreads, 0, stream>>>(set);
}

void launch_low_rank_b(cudaStream_t stream, const LowRankSet& set) {
  if (set.first[set.count] == 0) return;
  std::uint32_t outs = 0;
  for (std::uint32_t i = 0; i < set.count; ++i) outs = std::max(outs, set.item[i].outs);
  low_rank_b<<<dim3(set.first[set.count], (outs + kThreads - 1) / kThreads), kThreads, 0, stream>>>(set);
}

}  // namespace quire::cuda
