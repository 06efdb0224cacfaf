// Products with F32 weights, the expansion of quantised weights, and which kernel streams which packing.
#include "quire/backend/cuda/fragments.cuh"
#include "quire/backend/cuda/overlap.cuh"
#include "quire/backend/cuda/product_kernels.h"
#include "quire/backend/cuda/stream_launch.h"

namespace quire::cuda {

namespace {

constexpr std::uint32_t kWarps = 8;
constexpr std::uint32_t kFloatWarps = 4;

// Four columns of a row of F32 weights. Rows begin anywhere; beyond the last column there are zeros.
template <bool kAligned>
__device__ float4 weights_at(const float* row, std::uint32_t k, std::uint32_t cols) {
  if constexpr (kAligned) return __ldg(reinterpret_cast<const float4*>(row + k));
  const auto at = [&](std::uint32_t i) { return i < cols ? __ldg(row + i) : 0.0f; };
  return {at(k), at(k + 1), at(k + 2), at(k + 3)};
}

// One warp per row and kTokens tokens. A lane has every 32nd group of four columns and a sum for each of the four; then
// these are added, then lanes in a tree.
template <std::uint32_t kTokens, bool kAligned>
__global__ void __launch_bounds__(kFloatWarps * 32) float_kernel(MatrixArgs m, PreparedInput in, std::uint32_t tokens) {
  let_next_start();
  wait_for_previous();
  const std::uint32_t row = blockIdx.x * kFloatWarps + threadIdx.x / 32, lane = threadIdx.x % 32;
  const std::uint32_t first = blockIdx.y * kTokens, count = min(kTokens, tokens - first);
  if (row >= m.rows) return;
  const std::uint64_t stride = std::uint64_t{pieces_of(m.cols)} * kPieceCols;
  const float* weights = reinterpret_cast<const float*>(m.tiles) + std::uint64_t{row} * m.cols;
  const float* x = in.floats + first * stride;
  float4 sums[kTokens] = {};
  constexpr int kAhead = kTokens == 1 ? 8 : 2;
#pragma unroll kAhead
  for (std::uint32_t k = lane * 4; k < m.cols; k += 128) {
    const float4 w = weights_at<kAligned>(weights, k, m.cols);
#pragma unroll
    for (std::uint32_t n = 0; n < kTokens; ++n) {
      if (n >= count) continue;
      const float4 v = *reinterpret_cast<const float4*>(x + n * stride + k);
      sums[n] = {fmaf(w.x, v.x, sums[n].x), fmaf(w.y, v.y, sums[n].y), fmaf(w.z, v.z, sums[n].z),
                 fmaf(w.w, v.w, sums[n].w)};
    }
  }
#pragma unroll
  for (std::uint32_t n = 0; n < kTokens; ++n) {
    float sum = __fadd_rn(__fadd_rn(sums[n].x, sums[n].y), __fadd_rn(sums[n].z, sums[n].w));
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) sum = __fadd_rn(sum, __shfl_xor_sync(~0u, sum, distance));
    if (lane == n && n < count) put(m, first + n, row, sum, 1.0f);
  }
}

// A warp per piece: the same weights as those that stream_kernel() multiplies.
template <Packing kPacking>
__global__ void __launch_bounds__(kWarps * 32)
    expand_kernel(const std::byte* tiles, std::uint64_t pieces, std::byte* to) {
  const std::uint64_t piece = std::uint64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  const std::uint32_t lane = threadIdx.x % 32;
  if (piece >= pieces) return;
  constexpr std::uint32_t kBytes = packing_info(kPacking).piece_bytes(),
                          kHalfBytes = packing_info(Packing::F16).piece_bytes();
  Fragments<kPacking> weights;
  weights.load(tiles + piece * kBytes, lane);
#pragma unroll
  for (int step = 0; step < static_cast<int>(kSteps); ++step) {
    *reinterpret_cast<uint4*>(to + piece * kHalfBytes + half_at(step, lane, 0)) = weights.step(step);
  }
}

template <Packing kPacking>
void expand(cudaStream_t stream, const std::byte* tiles, std::uint64_t pieces, std::byte* to) {
  const auto blocks = static_cast<std::uint32_t>((pieces + kWarps - 1) / kWarps);
  expand_kernel<kPacking><<<blocks, kWarps * 32, 0, stream>>>(tiles, pieces, to);
}

template <std::uint32_t kTokens>
void start_floats(cudaStream_t stream, const MatrixArgs& m, std::uint32_t tokens, const PreparedInput& in) {
  const bool aligned = m.cols % 4 == 0 && reinterpret_cast<std::uintptr_t>(m.tiles) % 16 == 0;
  const dim3 grid((m.rows + kFloatWarps - 1) / kFloatWarps, (tokens + kTokens - 1) / kTokens);
  launch(in.overlap, stream, grid, kFloatWarps * 32, 0,
         aligned ? float_kernel<kTokens, true> : float_kernel<kTokens, false>, m, in, tokens);
}
void multiply_floats(cudaStream_t stream, const MatrixArgs& m, std::uint32_t tokens, const PreparedInput& in) {
  tokens == 1 ? start_floats<1>(stream, m, tokens, in) : start_floats<8>(stream, m, tokens, in);
}

}  // namespace

void launch_stream(cudaStream_t stream, Packing packing, MatrixSet set, std::uint32_t tokens, const PreparedInput& in) {
  switch (packing) {
    case Packing::F32:
      for (std::uint32_t i = 0; i < set.count; ++i) multiply_floats(stream, set.matrix[i], tokens, in);
      return;
    case Packing::F16:
    case Packing::BF16: return stream_halves(stream, packing, set, tokens, in);
    case Packing::Q4:
    case Packing::Q4Min:
    case Packing::Q4x16:
    case Packing::Q4x16Min:
    case Packing::E2M1: return stream_4_bits(stream, packing, set, tokens, in);
    case Packing::Q5:
    case Packing::Q5Min: return stream_5_bits(stream, packing, set, tokens, in);
    case Packing::Q6x16:
    case Packing::Q8:
    case Packing::Q8x16: return stream_8_bits(stream, packing, set, tokens, in);
  }
}

void launch_expand(cudaStream_t stream, Packing packing, const std::byte* tiles, std::uint32_t tile_count,
                   std::uint32_t pieces, std::byte* to) {
  const std::uint64_t all = std::uint64_t{tile_count} * pieces;
  switch (packing) {
    case Packing::F32:
    case Packing::F16:
    case Packing::BF16: return;
    case Packing::Q4: return expand<Packing::Q4>(stream, tiles, all, to);
    case Packing::Q4Min: return expand<Packing::Q4Min>(stream, tiles, all, to);
    case Packing::Q4x16: return expand<Packing::Q4x16>(stream, tiles, all, to);
    case Packing::Q4x16Min: return expand<Packing::Q4x16Min>(stream, tiles, all, to);
    case Packing::E2M1: return expand<Packing::E2M1>(stream, tiles, all, to);
    case Packing::Q5: return expand<Packing::Q5>(stream, tiles, all, to);
    case Packing::Q5Min: return expand<Packing::Q5Min>(stream, tiles, all, to);
    case Packing::Q6x16: return expand<Packing::Q6x16>(stream, tiles, all, to);
    case Packing::Q8: return expand<Packing::Q8>(stream, tiles, all, to);
    case Packing::Q8x16: return expand<Packing::Q8x16>(stream, tiles, all, to);
  }
}

}  // namespace quire::cuda
