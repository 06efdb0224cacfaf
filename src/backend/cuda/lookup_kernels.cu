#include "quire/backend/cuda/file_elements.h"
#include "quire/backend/cuda/lookup_kernels.h"

namespace quire::cuda {
namespace {

constexpr std::uint32_t kThreads = 256;
constexpr std::uint32_t kPerThread = 4;  // elements, kThreads apart

// A block of threads computes kThreads * kPerThread columns of one row.
template <gguf::Type kType>
__global__ void __launch_bounds__(kThreads)
    embed_kernel(float* out, std::uint64_t stride, std::uint32_t cols, const std::byte* table, std::uint64_t row_bytes,
                 float scale, const std::int32_t* tokens) {
  using E = Elements<kType>;
  const std::uint32_t row = blockIdx.x;
  const auto* from = reinterpret_cast<Block>(table) + static_cast<std::uint32_t>(tokens[row]) * row_bytes;
  const std::uint32_t first = blockIdx.y * kThreads * kPerThread + threadIdx.x;
#pragma unroll
  for (std::uint32_t i = 0; i < kPerThread; ++i) {
    const std::uint32_t col = first + i * kThreads;
    if (col >= cols) return;
    const float value = E::at(from + std::uint64_t{col / E::kSize} * E::kBytes, static_cast<int>(col % E::kSize));
    out[row * stride + col] = times(value, scale);
  }
}

template <gguf::Type kType>
__global__ void __launch_bounds__(kThreads)
    positions_kernel(float* x, std::uint64_t stride, std::uint32_t cols, const std::byte* table,
                     std::uint64_t row_bytes, const std::uint32_t* positions) {
  using E = Elements<kType>;
  const std::uint32_t row = blockIdx.x;
  const auto* from = reinterpret_cast<Block>(table) + positions[row] * row_bytes;
  const std::uint32_t first = blockIdx.y * kThreads * kPerThread + threadIdx.x;
#pragma unroll
  for (std::uint32_t i = 0; i < kPerThread; ++i) {
    const std::uint32_t col = first + i * kThreads;
    if (col >= cols) return;
    const float value = E::at(from + std::uint64_t{col / E::kSize} * E::kBytes, static_cast<int>(col % E::kSize));
    x[row * stride + col] = __fadd_rn(x[row * stride + col], value);
  }
}

dim3 grid_for(Tensor x) { return {x.rows, (x.cols + kThreads * kPerThread - 1) / (kThreads * kPerThread)}; }

}  // namespace

bool can_look_up(gguf::Type type) {
  return visit_elements(type, [&]<gguf::Type>() {});
}

void launch_embed(cudaStream_t stream, Tensor out, const FileTable& table, float scale, const DeviceBatch& batch) {
  if (out.rows == 0 || out.cols == 0) return;
  visit_elements(table.type, [&]<gguf::Type kType>() {
    embed_kernel<kType><<<grid_for(out), kThreads, 0, stream>>>(
        reinterpret_cast<float*>(out.data), out.stride, out.cols, table.data, table.row_bytes, scale, batch.tokens);
  });
}

void launch_add_positions(cudaStream_t stream, Tensor x, const FileTable& table, const DeviceBatch& batch) {
  if (x.rows == 0 || x.cols == 0) return;
  visit_elements(table.type, [&]<gguf::Type kType>() {
    positions_kernel<kType><<<grid_for(x), kThreads, 0, stream>>>(reinterpret_cast<float*>(x.data), x.stride, x.cols,
                                                                  table.data, table.row_bytes, batch.positions);
  });
}

}  // namespace quire::cuda
