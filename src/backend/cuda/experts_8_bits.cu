#include "quire/backend/cuda/expert_kernels.cuh"

namespace quire::cuda {

cudaError_t prepare_experts_8_bits() {
  return prepare_experts_of<Packing::Q5, Packing::Q5Min, Packing::Q6x16, Packing::Q8, Packing::Q8x16>();
}

void experts_8_bits(cudaStream_t stream, Packing packing, ExpertSet& set, const ChoiceBlocks& blocks,
                    const PreparedInput& in) {
  switch (packing) {
    case Packing::Q5: return experts_of<Packing::Q5>(stream, set, blocks, in);
    case Packing::Q5Min: return experts_of<Packing::Q5Min>(stream, set, blocks, in);
    case Packing::Q6x16: return experts_of<Packing::Q6x16>(stream, set, blocks, in);
    case Packing::Q8: return experts_of<Packing::Q8>(stream, set, blocks, in);
    case Packing::Q8x16: return experts_of<Packing::Q8x16>(stream, set, blocks, in);
    default: return;
  }
}

}  // namespace quire::cuda
