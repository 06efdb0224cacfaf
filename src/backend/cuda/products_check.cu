#include "quire/backend/cuda/products_check.h"

namespace quire::cuda {
namespace {

__global__ void differing_kernel(Tensor a, Tensor b, unsigned long long* differing) {
  const auto* from = reinterpret_cast<const std::uint32_t*>(a.data) + blockIdx.x * a.stride;
  const auto* other = reinterpret_cast<const std::uint32_t*>(b.data) + blockIdx.x * b.stride;
  int count = 0;
  for (std::uint32_t c = threadIdx.x; c < a.cols; c += blockDim.x) count += from[c] != other[c];
  if (count > 0) atomicAdd(differing, static_cast<unsigned long long>(count));
}

}  // namespace

void count_differing(cudaStream_t stream, const Tensor& a, const Tensor& b, std::uint64_t* differing) {
  if (a.rows == 0) return;
  differing_kernel<<<a.rows, 128, 0, stream>>>(a, b, reinterpret_cast<unsigned long long*>(differing));
}

}  // namespace quire::cuda
