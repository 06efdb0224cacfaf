#include "quire/backend/cuda/split_kernels.cuh"
#include "quire/backend/cuda/split_launch.h"

namespace quire::cuda {

cudaError_t prepare_split_4_bits_by_16() {
  const cudaError_t error = prepare_split_of<Packing::Q4x16>();
  return error != cudaSuccess ? error : prepare_split_of<Packing::Q4x16Min>();
}

void split_4_bits_by_16(cudaStream_t stream, Packing packing, MatrixSet& set, std::uint32_t tokens,
                        const PreparedInput& in) {
  if (packing == Packing::Q4x16) return split_by_tokens<Packing::Q4x16>(stream, set, tokens, in);
  split_by_tokens<Packing::Q4x16Min>(stream, set, tokens, in);
}

}  // namespace quire::cuda
