#include "quire/backend/cuda/split_kernels.cuh"
#include "quire/backend/cuda/split_launch.h"

namespace quire::cuda {

cudaError_t prepare_split_4_bits() {
  const cudaError_t error = prepare_split_of<Packing::Q4Min>();
  return error != cudaSuccess ? error : prepare_split_of<Packing::Q4>();
}

void split_4_bits(cudaStream_t stream, Packing packing, MatrixSet& set, std::uint32_t tokens, const PreparedInput& in) {
  if (packing == Packing::Q4Min) return split_by_tokens<Packing::Q4Min>(stream, set, tokens, in);
  split_by_tokens<Packing::Q4>(stream, set, tokens, in);
}

}  // namespace quire::cuda
