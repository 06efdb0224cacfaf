#include "quire/backend/cuda/split_launch.h"

namespace quire::cuda {

bool has_split(Packing packing) {
  return packing == Packing::F16 || packing == Packing::Q4Min || packing == Packing::Q6x16 || packing == Packing::Q8;
}

cudaError_t prepare_split() {
  for (const auto prepare : {prepare_split_halves, prepare_split_4_bits, prepare_split_6_bits, prepare_split_8_bits}) {
    if (const cudaError_t error = prepare(); error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

void launch_split(cudaStream_t stream, Packing packing, MatrixSet set, std::uint32_t tokens, const PreparedInput& in) {
  switch (packing) {
    case Packing::Q4Min: return split_4_bits(stream, set, tokens, in);
    case Packing::Q6x16: return split_6_bits(stream, set, tokens, in);
    case Packing::Q8: return split_8_bits(stream, set, tokens, in);
    default: return split_halves(stream, set, tokens, in);
  }
}

}  // namespace quire::cuda
