// Products of very few tokens on compute capability 9.0a: as many bytes of weights on their way as a multiprocessor has
// shared memory, and no pause between one row tile and the next. While the kernels before still run, the first weights
// arrive already; small matrices come whole.
#pragma once

#include "quire/backend/cuda/product_kernels.h"

namespace quire::cuda {

inline constexpr std::uint32_t kRingTokens = 4;
inline constexpr std::uint32_t kRingInputs = 64;  // pieces of all tokens together

// Packings with split_launch.h's kernels have this one too.
QUIRE_BOTH constexpr bool ring_takes(std::uint32_t tokens, std::uint32_t cols) {
  return tokens <= kRingTokens && tokens * pieces_of(cols) <= kRingInputs;
}

// Once, before the first launch; only where device_has_split(). `processors`: of the device.
cudaError_t prepare_ring(std::uint32_t* processors);
// All matrices have the same packing and columns. Reads the input's rows.
void launch_ring(cudaStream_t stream, Packing packing, MatrixSet set, std::uint32_t tokens, const PreparedInput& in,
                 std::uint32_t processors);

}  // namespace quire::cuda
