#include "quire/backend/cuda/split_kernels.cuh"
#include "quire/backend/cuda/split_launch.h"

namespace quire::cuda {

cudaError_t prepare_split_5_bits() {
  const cudaError_t error = prepare_split_of<Packing::Q5>();
  return error != cudaSuccess ? error : prepare_split_of<Packing::Q5Min>();
}

void split_5_bits(cudaStream_t stream, Packing packing, MatrixSet& set, std::uint32_t tokens, const PreparedInput& in) {
  if (packing == Packing::Q5) return split_by_tokens<Packing::Q5>(stream, set, tokens, in);
  split_by_tokens<Packing::Q5Min>(stream, set, tokens, in);
}

}  // namespace quire::cuda
