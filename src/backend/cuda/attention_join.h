// Joins the parts of a query: the warp that completes the last of them does it, so that it takes no kernel of its own.
// Who that is varies; the order of the parts does not.
#pragma once

#include "quire/backend/cuda/attention_math.h"

namespace quire::cuda {

// Notes that `sections` parts of a query are written and visible to all. True: they were the last ones.
__device__ inline bool complete_parts(const AttendCall& call, const QueryPlace& place, std::uint32_t sections) {
  std::uint32_t* const done = call.plan.done + std::uint64_t{place.row} * call.heads + place.head;
  if (atomicAdd(done, sections) + sections != place.sections) return false;
  *done = 0;  // for the next layer
  return true;
}

// kEach: neighbouring elements of a lane, 1 or 4. Parts were written by other multiprocessors, so their loads go past
// the first cache.
template <int kEach>
__device__ inline void load_part(float (&to)[kEach], const float* from) {
  if constexpr (kEach == 4) {
    const float4 x = __ldcg(reinterpret_cast<const float4*>(from));
    to[0] = x.x, to[1] = x.y, to[2] = x.z, to[3] = x.w;
  } else {
    static_assert(kEach == 1);
    to[0] = __ldcg(from);
  }
}

// One warp. kAhead: parts whose loads overlap.
template <int kEach, std::uint32_t kAhead>
__device__ inline void join_parts(const AttendCall& call, const QueryPlace& place) {
  float* const to = reinterpret_cast<float*>(call.out.data) + place.row * call.out.stride + place.head * call.value_dim;
  for (std::uint32_t d = threadIdx.x % 32 * kEach; d < call.value_dim; d += 32 * kEach) {
    float sum[kEach] = {}, total = 0, highest = -INFINITY;
    for (std::uint32_t first = 0; first < place.sections; first += kAhead) {
      float sums[kAhead][kEach];
      float2 totals[kAhead];
#pragma unroll
      for (std::uint32_t i = 0; i < kAhead; ++i) {
        if (first + i >= place.sections) continue;
        const std::uint64_t part = std::uint64_t{place.first_part + first + i} * call.heads + place.head;
        totals[i] = __ldcg(call.part_totals + part);
        load_part(sums[i], call.part_sums + part * call.value_dim + d);
      }
#pragma unroll
      for (std::uint32_t i = 0; i < kAhead; ++i) {
        if (first + i >= place.sections) continue;
        const Joint joint = joint_of(highest, totals[i].x);
#pragma unroll
        for (int j = 0; j < kEach; ++j) sum[j] = join(joint, sum[j], sums[i][j]);
        total = join(joint, total, totals[i].y);
        highest = fmaxf(highest, totals[i].x);
      }
    }
    const float factor = factor_of(call, place.head, highest, total);
#pragma unroll
    for (int j = 0; j < kEach; ++j) to[d + j] = __fmul_rn(sum[j], factor);
  }
}

// The parts of an item are written and visible to all: joins those of the warp's queries that have all parts now. Those
// are at places[i * stride]. Not inlined: it is seldom at work, and the kernels that call it have no registers left.
template <int kQueries>
__device__ __noinline__ void join_complete(const AttendCall& call, const QueryPlace* places, std::uint32_t stride,
                                           std::uint32_t queries, std::uint32_t sections) {
  const std::uint32_t lane = threadIdx.x % 32;
  const bool complete =
      lane < kQueries && lane * stride < queries && complete_parts(call, places[lane * stride], sections);
  std::uint32_t left = __ballot_sync(0xFFFFFFFF, complete);
  if (left != 0) __threadfence();
  for (; left != 0; left &= left - 1) {
    const std::uint32_t next = static_cast<std::uint32_t>(__ffs(static_cast<int>(left))) - 1;
    join_parts<4, kQueries <= 4 ? 8 : 4>(call, places[next * stride]);
  }
}

}  // namespace quire::cuda
