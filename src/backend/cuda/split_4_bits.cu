#include "quire/backend/cuda/split_kernels.cuh"
#include "quire/backend/cuda/split_launch.h"

namespace quire::cuda {

cudaError_t prepare_split_4_bits() { return prepare_split_of<Packing::Q4Min>(); }

void split_4_bits(cudaStream_t stream, MatrixSet& set, std::uint32_t tokens, const PreparedInput& in) {
  split_by_tokens<Packing::Q4Min>(stream, set, tokens, in);
}

}  // namespace quire::cuda
