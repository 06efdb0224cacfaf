#include <cuda_runtime.h>

#include "quire/backend/cuda/move_kernels.h"

namespace quire::cuda {
namespace {

constexpr std::uint32_t kThreads = 256;
constexpr std::uint32_t kEach = kMoveChunk / kMoveUnit / kThreads;  // accesses of a thread for a chunk
constexpr std::uint32_t kBlocks = 4;                                // of a multiprocessor

// All loads of a chunk are under way before the first store: a load from host memory takes a microsecond and more.
__global__ void __launch_bounds__(kThreads) move_kernel(const __grid_constant__ MoveList list) {
  for (std::uint32_t chunk = blockIdx.x; chunk < list.chunks; chunk += gridDim.x) {
    const Move& move = list.moves[list.move_of(chunk)];
    const std::uint32_t begin = (chunk - move.first_chunk) * kMoveChunk;
    const std::uint32_t count = min(move.bytes - begin, kMoveChunk) / kMoveUnit;
    const uint4* const from = reinterpret_cast<const uint4*>(static_cast<const std::byte*>(move.from) + begin);
    uint4* const to = reinterpret_cast<uint4*>(static_cast<std::byte*>(move.to) + begin);
    uint4 words[kEach];
#pragma unroll
    for (std::uint32_t i = 0; i < kEach; ++i) {
      const std::uint32_t at = i * kThreads + threadIdx.x;
      if (at < count) words[i] = __ldcs(from + at);
    }
#pragma unroll
    for (std::uint32_t i = 0; i < kEach; ++i) {
      const std::uint32_t at = i * kThreads + threadIdx.x;
      if (at < count) __stcs(to + at, words[i]);
    }
  }
}

}  // namespace

void launch_moves(cudaStream_t stream, const MoveList& list, std::uint32_t multiprocessors) {
  if (list.count == 0) return;
  const std::uint32_t most = kBlocks * multiprocessors, blocks = list.chunks < most ? list.chunks : most;
  move_kernel<<<blocks, kThreads, 0, stream>>>(list);
}

}  // namespace quire::cuda
