// The fast attention kernel and its launches.
#pragma once

#include <atomic>

#include "quire/backend/cuda/attention_block.h"

namespace quire::cuda {

template <ElementType kType, int kHead, bool kSplit>
__global__ void __launch_bounds__(FastShape<kType, kHead, kSplit>::kThreads, FastShape<kType, kHead, kSplit>::kBlocks)
    attend_fast(const __grid_constant__ AttendCall call) {
  extern __shared__ __align__(128) std::byte shared_memory[];
  const std::uint32_t count = (kSplit ? call.plan.counts->narrow : call.plan.counts->wide) * call.kv_heads;
  if (blockIdx.x >= count) return wait_for_previous();  // a kernel that ends is one whose predecessors have ended
  FastBlock<FastShape<kType, kHead, kSplit>> block{{call, shared_memory}};
  if (call.head_dim < kHead) block.clear();
  const AttentionItem* const items = kSplit ? call.plan.narrow : call.plan.wide;
  // Long items come first. Every second round goes backwards, so that no block gets the longest of every round.
  for (std::uint32_t round = 0; round * gridDim.x < count; ++round) {
    const std::uint32_t i = round * gridDim.x + (round % 2 == 0 ? blockIdx.x : gridDim.x - 1 - blockIdx.x);
    if (i < count) block.run(items[i / call.kv_heads], i % call.kv_heads, round == 0);
  }
}

template <ElementType kType, int kHead, bool kSplit>
void launch_fast_kernel(cudaStream_t stream, const AttendCall& call, std::uint32_t multiprocessors) {
  using Shape = FastShape<kType, kHead, kSplit>;
  static std::atomic<std::uint64_t> ready{0};  // devices that know how much shared memory it takes
  int device = 0;
  cudaGetDevice(&device);
  const std::uint64_t bit = std::uint64_t{1} << (device % 64);
  if ((ready.load() & bit) == 0) {
    cudaFuncSetAttribute(attend_fast<kType, kHead, kSplit>, cudaFuncAttributeMaxDynamicSharedMemorySize, Shape::kBytes);
    want_shared_memory(attend_fast<kType, kHead, kSplit>);
    ready |= bit;
  }
  launch(call.overlap, stream, multiprocessors * Shape::kBlocks, Shape::kThreads, Shape::kBytes,
         attend_fast<kType, kHead, kSplit>, call);
}

template <ElementType kType>
void launch_fast(cudaStream_t stream, const AttendCall& call, std::uint32_t multiprocessors, bool wide) {
  const auto launch_for = [&]<int kHead>() {
    if (wide) {
      launch_fast_kernel<kType, kHead, false>(stream, call, multiprocessors);
    } else {
      launch_fast_kernel<kType, kHead, true>(stream, call, multiprocessors);
    }
  };
  if (call.head_dim <= 64) {
    launch_for.template operator()<64>();
  } else if (call.head_dim <= 128) {
    launch_for.template operator()<128>();
  } else {
    launch_for.template operator()<256>();
  }
}

}  // namespace quire::cuda
