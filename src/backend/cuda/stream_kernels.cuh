// Products of few tokens: weights go from memory to registers, once. A warp has 16 rows and one part of the columns, a
// block has all parts of its rows and adds them in order.
#pragma once

#include "quire/backend/cuda/fragments.cuh"
#include "quire/backend/cuda/overlap.cuh"

namespace quire::cuda {

inline constexpr std::uint32_t kStreamWarps = 8;
static_assert(kStreamWarps % kMostParts == 0);

// Blocks are divided among the matrices; a block has kStreamWarps / parts tiles.
__device__ inline std::uint32_t matrix_of_block(const MatrixSet& set) {
  std::uint32_t m = 0;
  while (m + 1 < set.count && blockIdx.x >= set.first_block[m + 1]) ++m;
  return m;
}

// The inputs of one step and tile of tokens; two words of a lane.
__device__ inline uint2 input_words(const std::uint32_t* at) { return {__ldg(at), __ldg(at + 32)}; }

template <Packing kPacking, int kTiles>
__global__ void __launch_bounds__(kStreamWarps * 32, 2)
    stream_kernel(__grid_constant__ const MatrixSet set, PreparedInput in, std::uint32_t tokens) {
  using Weights = Fragments<kPacking>;
  constexpr bool kBf16 = kPacking == Packing::BF16;
  constexpr std::uint32_t kStride = kTileRows + 4;  // floats of a column of sums: no two lanes share a bank
  __shared__ float sums[kStreamWarps][kTiles * kTokenTile][kStride];
  const MatrixArgs& m = set.matrix[matrix_of_block(set)];
  const std::uint32_t block = blockIdx.x - set.first_block[matrix_of_block(set)];
  const std::uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, tiles_here = kStreamWarps / m.parts;
  const std::uint32_t tile = block * tiles_here + warp / m.parts, part = warp % m.parts;
  const std::uint32_t pieces = pieces_of(m.cols), first_token = blockIdx.y * kTiles * kTokenTile;
  const bool has_tile = tile < tiles_of(m.rows);
  const std::uint32_t begin = part_begin(part, m.parts, pieces) * Weights::kPortions;
  const std::byte* weights =
      m.tiles + (std::uint64_t{tile} * pieces * Weights::kPortions + begin) * Weights::kPortionBytes;
  Weights next;
  let_next_start();
  if (has_tile) next.load(weights, lane);  // on their way while the input is made ready
  wait_for_previous();
  if (has_tile) {
    float own[kTiles][4] = {};
    const std::uint32_t end = part_begin(part + 1, m.parts, pieces) * Weights::kPortions;
    // Words of inputs: a step of all 32 tiles of a group is 2048 words.
    const std::uint64_t group = std::uint64_t{first_token / kTokenGroup} * pieces * kSteps;
    const std::uint64_t at =
        (group + begin * Weights::kPortionSteps) * 2048 + first_token % kTokenGroup / kTokenTile * 64 + lane;
    const auto* x = reinterpret_cast<const std::uint32_t*>(kBf16 ? in.high : in.halves) + at;
    const auto* rest = reinterpret_cast<const std::uint32_t*>(in.low) + at;
    // With few tokens the columns of the others are not worth reading.
    const bool wanted = kTiles > 1 || lane / 4 < tokens - first_token;
    for (std::uint32_t portion = begin; portion < end; ++portion) {
      const Weights now = next;
      weights += Weights::kPortionBytes;
      if (portion + 1 < end) next.load(weights, lane);
#pragma unroll
      for (int step = 0; step < Weights::kPortionSteps; ++step) {
        uint2 b[kTiles];
#pragma unroll
        for (int n = 0; n < kTiles; ++n) b[n] = wanted ? input_words(x + step * 2048 + n * 64) : uint2{0, 0};
        const uint4 a = now.step(step);
#pragma unroll
        for (int n = 0; n < kTiles; ++n) multiply<kBf16>(own[n], a, b[n]);
        if constexpr (kBf16) {
#pragma unroll
          for (int n = 0; n < kTiles; ++n) {
            multiply<kBf16>(own[n], a, wanted ? input_words(rest + step * 2048 + n * 64) : uint2{0, 0});
          }
        }
      }
      x += Weights::kPortionSteps * 2048;
      rest += Weights::kPortionSteps * 2048;
    }
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[warp][n * 8 + lane % 4 * 2 + i % 2][lane / 4 + i / 2 * 8] = own[n][i];
    }
  }
  __syncthreads();
  const std::uint32_t rows_here = tiles_here * kTileRows;
  for (std::uint32_t i = threadIdx.x; i < rows_here * kTiles * kTokenTile; i += kStreamWarps * 32) {
    const std::uint32_t r = i % rows_here, column = i / rows_here;
    const std::uint32_t row = block * rows_here + r, token = first_token + column;
    if (row >= m.rows || token >= tokens) continue;
    float total = 0;
    for (std::uint32_t p = 0; p < m.parts; ++p) {
      total = __fadd_rn(total, sums[r / kTileRows * m.parts + p][column][r % kTileRows]);
    }
    put(m, token, row, total, kBf16 ? 1.0f : in.inverses[token]);
  }
}

template <Packing kPacking, int kTiles>
void start_stream(cudaStream_t stream, MatrixSet& set, std::uint32_t tokens, const PreparedInput& in) {
  std::uint32_t blocks = 0;
  for (std::uint32_t i = 0; i < set.count; ++i) {
    set.first_block[i] = blocks;
    const std::uint32_t tiles_here = kStreamWarps / set.matrix[i].parts;
    blocks += (tiles_of(set.matrix[i].rows) + tiles_here - 1) / tiles_here;
  }
  set.first_block[set.count] = blocks;
  const dim3 grid(blocks, (tokens + kTiles * kTokenTile - 1) / (kTiles * kTokenTile));
  launch(in.overlap, stream, grid, kStreamWarps * 32, 0, stream_kernel<kPacking, kTiles>, set, in, tokens);
}

// kEvery: kernels for tiles of 8, 16, 32 and 64 tokens; otherwise for 8 and 32.
template <Packing kPacking, bool kEvery>
void stream_by_tokens(cudaStream_t stream, MatrixSet& set, std::uint32_t tokens, const PreparedInput& in) {
  if (tokens <= 8) return start_stream<kPacking, 1>(stream, set, tokens, in);
  if constexpr (kEvery) {
    if (tokens <= 16) return start_stream<kPacking, 2>(stream, set, tokens, in);
    if (tokens <= 32) return start_stream<kPacking, 4>(stream, set, tokens, in);
    return start_stream<kPacking, 8>(stream, set, tokens, in);
  } else {
    return start_stream<kPacking, 4>(stream, set, tokens, in);
  }
}

}  // namespace quire::cuda
