// Products on compute capability 9.0a: weights of a kind as they are packed, any number of tokens. The parts of the
// columns are computed by different blocks of a cluster, so small matrices and few tokens fill the GPU too.
#pragma once

#include "quire/backend/cuda/product_kernels.h"

namespace quire::cuda {

// Whether launch_split() has kernels for this packing: all that multiply halves.
bool has_split(Packing packing);
// Lets the kernels use their shared memory. Only where has_gemm_wgmma().
cudaError_t prepare_split();
// All matrices have the same packing and columns.
void launch_split(cudaStream_t stream, Packing packing, MatrixSet set, std::uint32_t tokens, const PreparedInput& in);

// By packing: each in a file of its own, so that they compile side by side.
cudaError_t prepare_split_halves();
cudaError_t prepare_split_4_bits();
cudaError_t prepare_split_4_bits_by_16();
cudaError_t prepare_split_5_bits();
cudaError_t prepare_split_6_bits();
cudaError_t prepare_split_8_bits();
void split_halves(cudaStream_t stream, Packing packing, MatrixSet& set, std::uint32_t tokens, const PreparedInput& in);
void split_4_bits(cudaStream_t stream, Packing packing, MatrixSet& set, std::uint32_t tokens, const PreparedInput& in);
void split_4_bits_by_16(cudaStream_t stream, Packing packing, MatrixSet& set, std::uint32_t tokens,
                        const PreparedInput& in);
void split_5_bits(cudaStream_t stream, Packing packing, MatrixSet& set, std::uint32_t tokens, const PreparedInput& in);
void split_6_bits(cudaStream_t stream, Packing packing, MatrixSet& set, std::uint32_t tokens, const PreparedInput& in);
void split_8_bits(cudaStream_t stream, Packing packing, MatrixSet& set, std::uint32_t tokens, const PreparedInput& in);

}  // namespace quire::cuda
