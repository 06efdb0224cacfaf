// launch_gemm() by kernel.
#pragma once

#include "quire/backend/cuda/product_kernels.h"

namespace quire::cuda {

cudaError_t prepare_gemm_mma();
void gemm_mma(cudaStream_t stream, const MatrixArgs& matrix, std::uint32_t tokens, const PreparedInput& in);

// Whether this program has the kernel for this device: it is compiled for 9.0a alone.
bool has_gemm_wgmma();
cudaError_t prepare_gemm_wgmma();
void gemm_wgmma(cudaStream_t stream, MatrixSet set, std::uint32_t tokens, const PreparedInput& in);

}  // namespace quire::cuda
