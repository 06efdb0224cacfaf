#include "quire/backend/cuda/split_launch.h"

namespace quire::cuda {

// Files with 4-bit floats have them in their experts only, which have kernels of their own. Q8x16 is for two types that
// are seldom met; its weights become halves before a GEMM.
bool has_split(Packing packing) {
  return packing != Packing::F32 && packing != Packing::BF16 && packing != Packing::E2M1 && packing != Packing::Q8x16;
}

bool device_has_split() { return device_has_split_halves(); }

cudaError_t prepare_split() {
  for (const auto prepare : {prepare_split_halves, prepare_split_4_bits, prepare_split_4_bits_by_16,
                             prepare_split_5_bits, prepare_split_6_bits, prepare_split_8_bits}) {
    if (const cudaError_t error = prepare(); error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

void launch_split(cudaStream_t stream, Packing packing, MatrixSet set, std::uint32_t tokens, const PreparedInput& in) {
  switch (packing) {
    case Packing::F32:
    case Packing::BF16:
    case Packing::E2M1:
    case Packing::Q8x16: return;
    case Packing::F16: return split_halves(stream, packing, set, tokens, in);
    case Packing::Q4:
    case Packing::Q4Min: return split_4_bits(stream, packing, set, tokens, in);
    case Packing::Q4x16:
    case Packing::Q4x16Min: return split_4_bits_by_16(stream, packing, set, tokens, in);
    case Packing::Q5:
    case Packing::Q5Min: return split_5_bits(stream, packing, set, tokens, in);
    case Packing::Q6x16: return split_6_bits(stream, packing, set, tokens, in);
    case Packing::Q8: return split_8_bits(stream, packing, set, tokens, in);
  }
}

}  // namespace quire::cuda
