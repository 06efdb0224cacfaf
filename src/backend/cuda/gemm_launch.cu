#include "quire/backend/cuda/gemm_launch.h"

namespace quire::cuda {

void launch_gemm(cudaStream_t stream, GemmKind kind, const MatrixArgs& matrix, std::uint32_t tokens,
                 const PreparedInput& in) {
  kind == GemmKind::Wgmma ? gemm_wgmma(stream, matrix, tokens, in) : gemm_mma(stream, matrix, tokens, in);
}

cudaError_t prepare_gemm(GemmKind* kind) {
  *kind = has_gemm_wgmma() ? GemmKind::Wgmma : GemmKind::Mma;
  const cudaError_t error = *kind == GemmKind::Wgmma ? prepare_gemm_wgmma() : cudaSuccess;
  return error == cudaSuccess ? prepare_gemm_mma() : error;
}

}  // namespace quire::cuda
