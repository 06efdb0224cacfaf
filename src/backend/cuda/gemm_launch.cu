#include "quire/backend/cuda/gemm_launch.h"
#include "quire/backend/cuda/split_launch.h"

namespace quire::cuda {

void launch_gemm(cudaStream_t stream, GemmKind kind, const MatrixSet& set, std::uint32_t tokens,
                 const PreparedInput& in) {
  if (kind == GemmKind::Wgmma) return gemm_wgmma(stream, set, tokens, in);
  for (std::uint32_t i = 0; i < set.count; ++i) gemm_mma(stream, set.matrix[i], tokens, in);
}

cudaError_t prepare_gemm(GemmKind* kind) {
  *kind = has_gemm_wgmma() ? GemmKind::Wgmma : GemmKind::Mma;
  cudaError_t error = *kind == GemmKind::Wgmma ? prepare_gemm_wgmma() : cudaSuccess;
  if (*kind == GemmKind::Wgmma && error == cudaSuccess) error = prepare_split();
  return error == cudaSuccess ? prepare_gemm_mma() : error;
}

}  // namespace quire::cuda
