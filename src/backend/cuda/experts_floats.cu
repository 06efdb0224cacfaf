#include "quire/backend/cuda/expert_kernels.cuh"

namespace quire::cuda {

namespace {

// F32: one warp per row and 8 choices. A lane sums every 32nd column, in order; then lanes are added
// in a tree.
__global__ void __launch_bounds__(kExpertWarps * 32)
    expert_float_kernel(__grid_constant__ const ExpertSet experts, ChoiceBlocks blocks, PreparedInput in) {
  const std::uint32_t lane = threadIdx.x % 32, row = blockIdx.x * kExpertWarps + threadIdx.x / 32;
  const std::uint32_t expert = expert_of(blocks, blockIdx.y);
  if (expert == kNoChoice || row >= experts.set.matrix[blockIdx.z].rows) return;
  const MatrixArgs m = matrix_for(experts, blockIdx.z, expert);
  const std::uint64_t stride = std::uint64_t{pieces_of(m.cols)} * kPieceCols;
  const float* weights = reinterpret_cast<const float*>(m.tiles) + std::uint64_t{row} * m.cols;
  for (std::uint32_t first = 0; first < blocks.block; first += kTokenTile) {
    const float* x[kTokenTile];
    float sums[kTokenTile] = {};
#pragma unroll
    for (std::uint32_t n = 0; n < kTokenTile; ++n) {
      const std::uint32_t choice = choice_of(blocks, blockIdx.y, first + n);
      x[n] = choice == kNoChoice ? nullptr : in.floats + token_of(blocks, choice) * stride;
    }
#pragma unroll 4
    for (std::uint32_t k = lane; k < m.cols; k += 32) {
      const float w = weights[k];
#pragma unroll
      for (std::uint32_t n = 0; n < kTokenTile; ++n) {
        if (x[n] != nullptr) sums[n] = fmaf(w, x[n][k], sums[n]);
      }
    }
#pragma unroll
    for (std::uint32_t n = 0; n < kTokenTile; ++n) {
#pragma unroll
      for (int distance = 16; distance > 0; distance /= 2) {
        sums[n] = __fadd_rn(sums[n], __shfl_xor_sync(~0u, sums[n], distance));
      }
      if (lane == n && x[n] != nullptr) put(m, choice_of(blocks, blockIdx.y, first + n), row, sums[n], 1.0f);
    }
  }
}

}  // namespace

cudaError_t prepare_experts_floats() { return prepare_experts_of<Packing::F16, Packing::BF16>(); }

void experts_floats(cudaStream_t stream, Packing packing, ExpertSet& set, const ChoiceBlocks& blocks,
                    const PreparedInput& in) {
  if (packing == Packing::F16) return experts_of<Packing::F16>(stream, set, blocks, in);
  if (packing == Packing::BF16) return experts_of<Packing::BF16>(stream, set, blocks, in);
  std::uint32_t rows = 0;
  for (std::uint32_t i = 0; i < set.set.count; ++i) rows = max(rows, set.set.matrix[i].rows);
  const dim3 grid((rows + kExpertWarps - 1) / kExpertWarps, blocks.count, set.set.count);
  expert_float_kernel<<<grid, kExpertWarps * 32, 0, stream>>>(set, blocks, in);
}

cudaError_t prepare_experts() {
  for (const cudaError_t error :
       {prepare_routes(), prepare_experts_4_bits(), prepare_experts_8_bits(), prepare_experts_floats()}) {
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

void launch_experts(cudaStream_t stream, Packing packing, ExpertSet set, const ChoiceBlocks& blocks,
                    const PreparedInput& in) {
  switch (packing) {
    case Packing::F32:
    case Packing::F16:
    case Packing::BF16: return experts_floats(stream, packing, set, blocks, in);
    case Packing::Q4:
    case Packing::Q4Min:
    case Packing::Q4x16:
    case Packing::Q4x16Min:
    case Packing::E2M1: return experts_4_bits(stream, packing, set, blocks, in);
    case Packing::Q5:
    case Packing::Q5Min:
    case Packing::Q6x16:
    case Packing::Q8:
    case Packing::Q8x16: return experts_8_bits(stream, packing, set, blocks, in);
  }
}

}  // namespace quire::cuda
