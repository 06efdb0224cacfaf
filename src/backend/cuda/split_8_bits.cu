#include "quire/backend/cuda/split_kernels.cuh"
#include "quire/backend/cuda/split_launch.h"

namespace quire::cuda {

cudaError_t prepare_split_8_bits() { return prepare_split_of<Packing::Q8>(); }

void split_8_bits(cudaStream_t stream, Packing, MatrixSet& set, std::uint32_t tokens, const PreparedInput& in) {
  split_by_tokens<Packing::Q8>(stream, set, tokens, in);
}

}  // namespace quire::cuda
