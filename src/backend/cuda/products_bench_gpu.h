// For cuda_products_bench: device memory, and products on a stream of their own.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <thread>

#include <cuda_runtime_api.h>

#include "quire/backend/cuda/arrange.h"
#include "quire/backend/cuda/cuda_products.h"
#include "quire/backend/reference_testing.h"

namespace quire::cuda {

using reference::Matrix;
using Kernels = CudaProducts::Kernels;

inline constexpr Backend::Sizes kSizes{.rows = 2048, .cols = 14336};
inline constexpr std::uint64_t kArena = std::uint64_t{2} << 30;

inline void must(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::printf("%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

inline std::byte* allocated(std::uint64_t bytes) {
  void* memory = nullptr;
  must(cudaMalloc(&memory, bytes), "memory");
  return static_cast<std::byte*>(memory);
}

// Device memory that is handed out in order and all taken back at once.
class Gpu {
 public:
  Gpu() : team(std::max(1u, std::thread::hardware_concurrency())) {
    must(cudaStreamCreate(&stream), "stream");
    arena_ = allocated(kArena);
    std::byte* scratch = allocated(CudaProducts::scratch_bytes(kSizes));
    must(cudaMemset(scratch, 0xff, CudaProducts::scratch_bytes(kSizes)), "NaN in scratch memory");
    must(products.prepare(kSizes, scratch), "prepare");
  }
  void clear() { used_ = 0; }
  std::uint64_t left() const { return kArena - used_; }
  std::byte* take(std::uint64_t bytes) {
    std::byte* at = arena_ + used_;
    used_ += (bytes + 255) / 256 * 256;
    QUIRE_CHECK(used_ <= kArena, "the arena is large enough");
    return at;
  }
  Weight load(const FileMatrix& file) {
    std::vector<std::byte> staging(CudaProducts::weight_bytes(file, WeightUse::Product));
    CudaProducts::arrange(file, WeightUse::Product, team, staging.data());
    std::byte* at = take(staging.size());
    must(cudaMemcpy(at, staging.data(), staging.size(), cudaMemcpyHostToDevice), "upload");
    return CudaProducts::weight(file, WeightUse::Product, at);
  }
  // As columns of wider rows, `before` floats from their beginning.
  Tensor put(const Matrix& x, std::uint32_t before = 0) {
    if (x.values.empty()) return {};
    const std::uint64_t stride = x.cols + 2 * before;
    std::vector<float> wide(x.rows * stride, NAN);
    for (std::uint32_t i = 0; i < x.rows; ++i)
      std::ranges::copy(x.row(i), wide.begin() + std::ptrdiff_t(i * stride + before));
    std::byte* at = take(wide.size() * 4);
    must(cudaMemcpy(at, wide.data(), wide.size() * 4, cudaMemcpyHostToDevice), "upload");
    return {at + before * 4, x.rows, x.cols, stride};
  }
  Matrix get(const Tensor& x) {
    Matrix out(x.rows, x.cols);
    must(cudaMemcpy2D(out.values.data(), x.cols * 4, x.data, x.stride * 4, x.cols * 4, x.rows, cudaMemcpyDeviceToHost),
         "products");
    return out;
  }

  ThreadTeam team;
  CudaProducts products;
  cudaStream_t stream = nullptr;

 private:
  std::byte* arena_ = nullptr;
  std::uint64_t used_ = 0;
};

}  // namespace quire::cuda
