// Products with the matrices of experts. As stream_kernels.cuh: a warp has 16 rows and one part of the columns, a block
// has all parts of its rows and adds them in order. The tokens of a block are choices of one expert, wherever their
// inputs are. An element's bits do not depend on the block that computes it, nor on how many choices there are.
#pragma once

#include "quire/backend/cuda/expert_kernels.h"
#include "quire/backend/cuda/fragments.cuh"
#include "quire/backend/cuda/overlap.cuh"

namespace quire::cuda {

inline constexpr std::uint32_t kExpertWarps = 8;
static_assert(kExpertWarps % kMostParts == 0);

__device__ inline std::uint32_t expert_of(const ChoiceBlocks& blocks, std::uint32_t block) {
  if (blocks.experts != nullptr) return blocks.experts[block];
  return static_cast<std::uint32_t>(blocks.numbers[block / blocks.used * blocks.stride + block % blocks.used]);
}
__device__ inline std::uint32_t choice_of(const ChoiceBlocks& blocks, std::uint32_t block, std::uint32_t i) {
  if (blocks.experts != nullptr) return blocks.choices[block * blocks.block + i];
  return i == 0 ? block : kNoChoice;
}
// The number of a choice's input.
__device__ inline std::uint32_t token_of(const ChoiceBlocks& blocks, std::uint32_t choice) {
  return blocks.by_row ? choice / blocks.used : choice;
}

__device__ inline std::uint32_t matrix_of(const MatrixSet& set) {
  std::uint32_t m = 0;
  while (m + 1 < set.count && blockIdx.x >= set.first_block[m + 1]) ++m;
  return m;
}
// The matrix of an expert.
__device__ inline MatrixArgs matrix_for(const ExpertSet& experts, std::uint32_t number, std::uint32_t expert) {
  MatrixArgs m = experts.set.matrix[number];
  const std::uint64_t bytes = experts.stride[number] * expert;
  m.tiles += bytes;
  if (m.inverses != nullptr) m.inverses += bytes / sizeof(float);
  if (m.bias != nullptr) m.bias += std::uint64_t{expert} * m.rows;
  return m;
}

template <Packing kPacking, int kTiles>
__global__ void __launch_bounds__(kExpertWarps * 32, 2)
    expert_kernel(__grid_constant__ const ExpertSet experts, ChoiceBlocks blocks, PreparedInput in) {
  using Weights = Fragments<kPacking>;
  constexpr bool kBf16 = kPacking == Packing::BF16;
  constexpr std::uint32_t kStride = kTileRows + 4;  // floats of a column of sums: no two lanes share a bank
  __shared__ float sums[kExpertWarps][kTiles * kTokenTile][kStride];
  let_next_start();
  wait_for_previous();
  const std::uint32_t expert = expert_of(blocks, blockIdx.y);
  if (expert == kNoChoice) return;
  const std::uint32_t number = matrix_of(experts.set);
  const MatrixArgs m = matrix_for(experts, number, expert);
  const std::uint32_t block = blockIdx.x - experts.set.first_block[number];
  const std::uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, tiles_here = kExpertWarps / m.parts;
  const std::uint32_t tile = block * tiles_here + warp / m.parts, part = warp % m.parts;
  const std::uint32_t pieces = pieces_of(m.cols);
  if (tile < tiles_of(m.rows)) {
    const std::uint32_t begin = part_begin(part, m.parts, pieces) * Weights::kPortions;
    const std::uint32_t end = part_begin(part + 1, m.parts, pieces) * Weights::kPortions;
    const std::byte* weights =
        m.tiles + (std::uint64_t{tile} * pieces * Weights::kPortions + begin) * Weights::kPortionBytes;
    Weights next;
    next.load(weights, lane);
    // Each lane reads the words of its own token (input_at()). A step of all 32 tiles of a group is 2048 words. Columns
    // without a choice are multiplied too, with the first token's input, and not written. A single tile of tokens may
    // have one choice only: then the others are not worth reading.
    std::uint32_t at[kTiles];
    bool wanted = true;
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      const std::uint32_t choice = choice_of(blocks, blockIdx.y, n * kTokenTile + lane / 4);
      if (kTiles == 1) wanted = choice != kNoChoice;
      const std::uint32_t token = choice == kNoChoice ? 0 : token_of(blocks, choice);
      at[n] = (token / kTokenGroup * pieces * kSteps + begin * Weights::kPortionSteps) * 2048 +
              token % kTokenGroup / kTokenTile * 64 + token % kTokenTile * 4 + lane % 4;
    }
    const auto* x = reinterpret_cast<const std::uint32_t*>(kBf16 ? in.high : in.halves);
    const auto* rest = reinterpret_cast<const std::uint32_t*>(in.low);
    const auto words = [&](const std::uint32_t* from, int n) {
      return wanted ? uint2{__ldg(from + at[n]), __ldg(from + at[n] + 32)} : uint2{0, 0};
    };
    float own[kTiles][4] = {};
    for (std::uint32_t portion = begin; portion < end; ++portion) {
      const Weights now = next;
      weights += Weights::kPortionBytes;
      if (portion + 1 < end) next.load(weights, lane);
#pragma unroll
      for (int step = 0; step < Weights::kPortionSteps; ++step) {
        uint2 b[kTiles];
#pragma unroll
        for (int n = 0; n < kTiles; ++n) b[n] = words(x + step * 2048, n);
        const uint4 a = now.step(step);
#pragma unroll
        for (int n = 0; n < kTiles; ++n) multiply<kBf16>(own[n], a, b[n]);
        if constexpr (kBf16) {
#pragma unroll
          for (int n = 0; n < kTiles; ++n) multiply<kBf16>(own[n], a, words(rest + step * 2048, n));
        }
      }
#pragma unroll
      for (int n = 0; n < kTiles; ++n) at[n] += Weights::kPortionSteps * 2048;
    }
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[warp][n * 8 + lane % 4 * 2 + i % 2][lane / 4 + i / 2 * 8] = own[n][i];
    }
  }
  __syncthreads();
  const std::uint32_t rows_here = tiles_here * kTileRows;
  for (std::uint32_t i = threadIdx.x; i < rows_here * kTiles * kTokenTile; i += kExpertWarps * 32) {
    const std::uint32_t r = i % rows_here, column = i / rows_here;
    const std::uint32_t row = block * rows_here + r, choice = choice_of(blocks, blockIdx.y, column);
    if (row >= m.rows || choice == kNoChoice) continue;
    float total = 0;
    for (std::uint32_t p = 0; p < m.parts; ++p) {
      total = __fadd_rn(total, sums[r / kTileRows * m.parts + p][column][r % kTileRows]);
    }
    put(m, choice, row, total, kBf16 ? 1.0f : in.inverses[token_of(blocks, choice)]);
  }
}

template <Packing kPacking, int kTiles>
void start_experts(cudaStream_t stream, ExpertSet& experts, const ChoiceBlocks& blocks, const PreparedInput& in) {
  MatrixSet& set = experts.set;
  std::uint32_t count = 0;
  for (std::uint32_t i = 0; i < set.count; ++i) {
    set.first_block[i] = count;
    const std::uint32_t tiles_here = kExpertWarps / set.matrix[i].parts;
    count += (tiles_of(set.matrix[i].rows) + tiles_here - 1) / tiles_here;
  }
  set.first_block[set.count] = count;
  launch(in.overlap, stream, dim3(count, blocks.count), kExpertWarps * 32, 0, expert_kernel<kPacking, kTiles>, experts,
         blocks, in);
}

// Blocks of many choices read their inputs again and again.
template <Packing... kPackings>
cudaError_t prepare_experts_of() {
  for (const cudaError_t error :
       {want_shared_memory(expert_kernel<kPackings, 1>)..., want_cache(expert_kernel<kPackings, 4>)...}) {
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

template <Packing kPacking>
void experts_of(cudaStream_t stream, ExpertSet& experts, const ChoiceBlocks& blocks, const PreparedInput& in) {
  if (blocks.block == kTokenTile) return start_experts<kPacking, 1>(stream, experts, blocks, in);
  start_experts<kPacking, 4>(stream, experts, blocks, in);
}

}  // namespace quire::cuda
