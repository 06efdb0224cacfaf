#include "quire/backend/cuda/stream_kernels.cuh"
#include "quire/backend/cuda/stream_launch.h"

namespace quire::cuda {

void stream_5_bits(cudaStream_t stream, Packing packing, MatrixSet& set, std::uint32_t tokens,
                   const PreparedInput& in) {
  switch (packing) {
    case Packing::Q5: return stream_by_tokens<Packing::Q5, false>(stream, set, tokens, in);
    default: return stream_by_tokens<Packing::Q5Min, false>(stream, set, tokens, in);
  }
}

}  // namespace quire::cuda
