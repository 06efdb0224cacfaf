#include "quire/backend/cuda/stream_kernels.cuh"
#include "quire/backend/cuda/stream_launch.h"

namespace quire::cuda {

void stream_halves(cudaStream_t stream, Packing packing, MatrixSet& set, std::uint32_t tokens,
                   const PreparedInput& in) {
  switch (packing) {
    case Packing::BF16: return stream_by_tokens<Packing::BF16, false>(stream, set, tokens, in);
    default: return stream_by_tokens<Packing::F16, true>(stream, set, tokens, in);
  }
}

}  // namespace quire::cuda
