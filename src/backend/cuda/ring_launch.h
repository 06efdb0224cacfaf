// Products of one to four tokens on compute capability 9.0a. Weights go through a ring in shared memory: as many bytes
// are in flight as a multiprocessor has shared memory, and there is no pause between one row tile and the next. The
// first weights (all of a small matrix) are copied while the kernels before still run.
#pragma once

#include "quire/backend/cuda/product_kernels.h"

namespace quire::cuda {

inline constexpr std::uint32_t kRingTokens = 4;
inline constexpr std::uint32_t kRingInputs = 64;  // pieces of all tokens together

// Packings with split_launch.h's kernels have this one too.
QUIRE_BOTH constexpr bool ring_takes(std::uint32_t tokens, std::uint32_t cols) {
  return tokens <= kRingTokens && tokens * pieces_of(cols) <= kRingInputs;
}

// Whether the kernel should do the work of launch_prepare() too. That is done as often as there are blocks, but saves a
// kernel: worth it for rows that the threads of a block hold in registers. No output may overlap the input then.
inline constexpr std::uint32_t kRingGroups = 7;  // of a norm
inline constexpr std::uint32_t kRingCols = 4096;
QUIRE_BOTH constexpr bool ring_makes_ready(std::uint32_t tokens, std::uint32_t cols, std::uint32_t groups) {
  return tokens == 1 && cols <= kRingCols && groups <= kRingGroups;
}

// Once, before the first launch; only where device_has_split(). `processors`: of the device.
cudaError_t prepare_ring(std::uint32_t* processors);
// All matrices have the same packing and columns. `raw`: the input of a single token, which every block makes ready by
// itself (ring_makes_ready()). Null: the rows of `in` are ready.
void launch_ring(cudaStream_t stream, Packing packing, const MatrixSet& set, std::uint32_t tokens,
                 const PreparedInput& in, const InputArgs* raw, std::uint32_t processors);

}  // namespace quire::cuda
