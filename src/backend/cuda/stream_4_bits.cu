#include "quire/backend/cuda/stream_kernels.cuh"
#include "quire/backend/cuda/stream_launch.h"

namespace quire::cuda {

void stream_4_bits(cudaStream_t stream, Packing packing, MatrixSet& set, std::uint32_t tokens,
                   const PreparedInput& in) {
  switch (packing) {
    case Packing::Q4: return stream_by_tokens<Packing::Q4, false>(stream, set, tokens, in);
    case Packing::Q4x16: return stream_by_tokens<Packing::Q4x16, false>(stream, set, tokens, in);
    case Packing::Q4x16Min: return stream_by_tokens<Packing::Q4x16Min, false>(stream, set, tokens, in);
    case Packing::E2M1: return stream_by_tokens<Packing::E2M1, false>(stream, set, tokens, in);
    default: return stream_by_tokens<Packing::Q4Min, true>(stream, set, tokens, in);
  }
}

}  // namespace quire::cuda
