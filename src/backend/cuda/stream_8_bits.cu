#include "quire/backend/cuda/stream_kernels.cuh"
#include "quire/backend/cuda/stream_launch.h"

namespace quire::cuda {

void stream_8_bits(cudaStream_t stream, Packing packing, MatrixSet& set, std::uint32_t tokens,
                   const PreparedInput& in) {
  switch (packing) {
    case Packing::Q6x16: return stream_by_tokens<Packing::Q6x16, true>(stream, set, tokens, in);
    case Packing::Q8x16: return stream_by_tokens<Packing::Q8x16, true>(stream, set, tokens, in);
    default: return stream_by_tokens<Packing::Q8, true>(stream, set, tokens, in);
  }
}

}  // namespace quire::cuda
