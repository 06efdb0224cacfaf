// launch_stream() by packing: each in a file of its own, so that they compile side by side.
#pragma once

#include "quire/backend/cuda/product_kernels.h"

namespace quire::cuda {

void stream_halves(cudaStream_t stream, Packing packing, MatrixSet& set, std::uint32_t tokens, const PreparedInput& in);
void stream_4_bits(cudaStream_t stream, Packing packing, MatrixSet& set, std::uint32_t tokens, const PreparedInput& in);
void stream_5_bits(cudaStream_t stream, Packing packing, MatrixSet& set, std::uint32_t tokens, const PreparedInput& in);
void stream_8_bits(cudaStream_t stream, Packing packing, MatrixSet& set, std::uint32_t tokens, const PreparedInput& in);

}  // namespace quire::cuda
