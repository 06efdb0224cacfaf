#include "quire/backend/cuda/expert_kernels.cuh"

namespace quire::cuda {

cudaError_t prepare_experts_4_bits() {
  return prepare_experts_of<Packing::Q4, Packing::Q4Min, Packing::Q4x16, Packing::Q4x16Min, Packing::E2M1>();
}

void experts_4_bits(cudaStream_t stream, Packing packing, ExpertSet& set, const ChoiceBlocks& blocks,
                    const PreparedInput& in) {
  switch (packing) {
    case Packing::Q4: return experts_of<Packing::Q4>(stream, set, blocks, in);
    case Packing::Q4Min: return experts_of<Packing::Q4Min>(stream, set, blocks, in);
    case Packing::Q4x16: return experts_of<Packing::Q4x16>(stream, set, blocks, in);
    case Packing::Q4x16Min: return experts_of<Packing::Q4x16Min>(stream, set, blocks, in);
    case Packing::E2M1: return experts_of<Packing::E2M1>(stream, set, blocks, in);
    default: return;
  }
}

}  // namespace quire::cuda
