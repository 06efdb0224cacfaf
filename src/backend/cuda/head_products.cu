// A block has some rows of one head's matrix and up to kTokens tokens. Elements of the matrix become floats once, in
// shared memory. Four lanes share an output: each sums every fourth column in order, and then they are added. So the
// bits of an output do not depend on how many tokens there are.
#include "quire/backend/cuda/file_elements.h"
#include "quire/backend/cuda/head_products.h"
#include "quire/backend/cuda/overlap.cuh"

namespace quire::cuda {
namespace {

constexpr std::uint32_t kThreads = 256;
constexpr std::uint32_t kLanes = 4;                 // of an output
constexpr std::uint32_t kRows = kThreads / kLanes;  // of the matrix, in a block
constexpr std::uint32_t kCols = 32;                 // in shared memory at once
constexpr std::uint32_t kFew = 8, kMany = 32;       // tokens of a block

template <gguf::Type kType>
__device__ float weight_at(const std::byte* row, std::uint32_t col) {
  using E = Elements<kType>;
  const auto* block = reinterpret_cast<Block>(row) + std::uint64_t{col / E::kSize} * E::kBytes;
  return E::at(block, static_cast<int>(col % E::kSize));
}

template <gguf::Type kType, std::uint32_t kTokens>
__global__ void __launch_bounds__(kThreads) head_products(const __grid_constant__ HeadProductCall call) {
  __shared__ float weights[kRows][kCols + 1];  // one more, so that rows begin in different banks
  __shared__ float inputs[kTokens][kCols];
  const std::uint32_t head = blockIdx.x, first_row = blockIdx.y * kRows, first_token = blockIdx.z * kTokens;
  const std::uint32_t tokens = min(kTokens, call.tokens - first_token);
  const std::uint32_t row = threadIdx.x / kLanes, lane = threadIdx.x % kLanes;
  const std::uint32_t in = call.cols + call.copied, out = call.rows + call.copied;  // elements of a head
  const std::byte* const matrix = call.weights + head * call.head_bytes;
  const float* const x = call.x + first_token * call.x_stride + std::uint64_t{head} * in;
  float* const to = call.out + first_token * call.out_stride + std::uint64_t{head} * out;
  wait_for_previous();
  let_next_start();
  float sums[kTokens] = {};
  for (std::uint32_t first = 0; first < call.cols; first += kCols) {
    for (std::uint32_t i = threadIdx.x; i < kRows * kCols; i += kThreads) {
      const std::uint32_t r = i / kCols, c = i % kCols;
      const bool there = first_row + r < call.rows && first + c < call.cols;
      weights[r][c] = there ? weight_at<kType>(matrix + (first_row + r) * call.row_bytes, first + c) : 0.0f;
    }
    for (std::uint32_t i = threadIdx.x; i < kTokens * kCols; i += kThreads) {
      const std::uint32_t t = i / kCols, c = i % kCols;
      inputs[t][c] = t < tokens && first + c < call.cols ? x[t * call.x_stride + first + c] : 0.0f;
    }
    __syncthreads();
#pragma unroll
    for (std::uint32_t c = 0; c < kCols; c += kLanes) {
      const float weight = weights[row][c + lane];
#pragma unroll
      for (std::uint32_t t = 0; t < kTokens; ++t) sums[t] = __fmaf_rn(weight, inputs[t][c + lane], sums[t]);
    }
    __syncthreads();
  }
#pragma unroll
  for (std::uint32_t t = 0; t < kTokens; ++t) {
    sums[t] = __fadd_rn(sums[t], __shfl_xor_sync(0xFFFFFFFF, sums[t], 1));
    sums[t] = __fadd_rn(sums[t], __shfl_xor_sync(0xFFFFFFFF, sums[t], 2));
    if (lane == t % kLanes && t < tokens && first_row + row < call.rows) {
      to[t * call.out_stride + first_row + row] = sums[t];
    }
  }
  if (blockIdx.y != 0) return;
  for (std::uint32_t i = threadIdx.x; i < tokens * call.copied; i += kThreads) {
    const std::uint32_t t = i / call.copied, c = i % call.copied;
    to[t * call.out_stride + call.rows + c] = x[t * call.x_stride + call.cols + c];
  }
}

}  // namespace

void launch_head_products(cudaStream_t stream, gguf::Type type, const HeadProductCall& call, bool overlap) {
  if (call.tokens == 0) return;
  const bool many = call.tokens > kFew;
  const std::uint32_t each = many ? kMany : kFew;
  const dim3 grid(call.heads, (call.rows + kRows - 1) / kRows, (call.tokens + each - 1) / each);
  visit_elements(type, [&]<gguf::Type kType>() {
    launch(overlap, stream, grid, kThreads, 0, many ? head_products<kType, kMany> : head_products<kType, kFew>, call);
  });
}

}  // namespace quire::cuda
