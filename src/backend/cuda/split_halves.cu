#include "quire/backend/cuda/split_kernels.cuh"
#include "quire/backend/cuda/split_launch.h"

namespace quire::cuda {

cudaError_t prepare_split_halves() { return prepare_split_of<Packing::F16>(); }

void split_halves(cudaStream_t stream, Packing, MatrixSet& set, std::uint32_t tokens, const PreparedInput& in) {
  split_by_tokens<Packing::F16>(stream, set, tokens, in);
}

}  // namespace quire::cuda
