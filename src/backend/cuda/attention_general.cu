// Attention for every other kind of keys and head: plain f32 arithmetic, a warp per query.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "quire/backend/cuda/attention_join.h"
#include "quire/backend/cuda/attention_shape.h"
#include "quire/backend/cuda/overlap.cuh"

namespace quire::cuda {
namespace {

constexpr std::uint32_t kWarps = 8;
constexpr std::uint32_t kMostHead = 1024;
constexpr std::uint32_t kBlocks = 4;  // of a multiprocessor

template <ElementType kType>
__device__ float element(const std::byte* row, std::uint32_t d, std::uint32_t dim) {
  if constexpr (kType == ElementType::F32) {
    return reinterpret_cast<const float*>(row)[d];
  } else if constexpr (kType == ElementType::F16) {
    return __half2float(reinterpret_cast<const __half*>(row)[d]);
  } else if constexpr (kType == ElementType::BF16) {
    return __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(row)[d]);
  } else {
    const __half scale = *reinterpret_cast<const __half*>(row + scales_offset(dim) + d / kScaledElements * 2);
    return __fmul_rn(static_cast<float>(static_cast<std::int8_t>(row[d])), __half2float(scale));
  }
}

__device__ float sum_of_lanes(float x) {
  for (int offset = 16; offset > 0; offset /= 2) x = __fadd_rn(x, __shfl_xor_sync(0xFFFFFFFF, x, offset));
  return x;
}
__device__ float largest_of_lanes(float x) {
  for (int offset = 16; offset > 0; offset /= 2) x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFF, x, offset));
  return x;
}

// One query. kSlices: of 32 elements of a value; lane i has element i of each.
template <ElementType kType, int kSlices>
struct Query {
  const AttendCall& call;
  const float* q;  // in shared memory
  const std::uint32_t lane = threadIdx.x % 32;
  const ScoreScale scale = score_scale(call);
  KvView kv;
  std::uint32_t head = 0, begin = 0, end = 0;
  float sums[kSlices]{}, total = 0, highest = -INFINITY;
  float all_sums[kSlices]{}, all_total = 0, all_highest = -INFINITY;

  __device__ float score(std::uint32_t position) const {
    if (position < begin || position >= end) return -INFINITY;
    const std::byte* const key = kv.k(head, position);
    float terms[4] = {};
    for (std::uint32_t d = 0; d < call.head_dim; ++d) {
      terms[d % 4] = __fmaf_rn(q[d], element<kType>(key, d, call.head_dim), terms[d % 4]);
    }
    const float product = __fadd_rn(__fadd_rn(terms[0], terms[1]), __fadd_rn(terms[2], terms[3]));
    return score_of(product, scale.scale, scale.cap);
  }

  __device__ void attend(std::uint32_t tile) {
    const std::uint32_t first = tile * kTile;
    const float scores[2] = {score(first + lane), score(first + 32 + lane)};
    const float now = fmaxf(highest, largest_of_lanes(fmaxf(scores[0], scores[1])));
    const float reference = reference_of(now), shrink = weight_of(highest, reference);
    highest = now;
    const float weights[2] = {weight_of(scores[0], reference), weight_of(scores[1], reference)};
    total = __fmaf_rn(total, shrink, sum_of_lanes(__fadd_rn(weights[0], weights[1])));
#pragma unroll
    for (int s = 0; s < kSlices; ++s) sums[s] = __fmul_rn(sums[s], shrink);
    for (std::uint32_t t = 0; t < kTile; ++t) {
      const float weight = __shfl_sync(0xFFFFFFFF, t < 32 ? weights[0] : weights[1], static_cast<int>(t % 32));
      if (first + t < begin || first + t >= end) continue;
      const std::byte* const value = kv.v(head, first + t);
#pragma unroll
      for (int s = 0; s < kSlices; ++s) {
        const std::uint32_t d = lane + 32 * static_cast<std::uint32_t>(s);
        if (d < call.value_dim) sums[s] = __fmaf_rn(weight, element<kType>(value, d, call.head_dim), sums[s]);
      }
    }
  }

  __device__ void end_section() {
    const Joint joint = joint_of(all_highest, highest);
#pragma unroll
    for (int s = 0; s < kSlices; ++s) {
      all_sums[s] = join(joint, all_sums[s], sums[s]);
      sums[s] = 0;
    }
    all_total = join(joint, all_total, total);
    all_highest = fmaxf(all_highest, highest);
    total = 0;
    highest = -INFINITY;
  }

  __device__ void write_part(std::uint32_t part, std::uint32_t query_head) {
    const std::uint64_t at = std::uint64_t{part} * call.heads + query_head;
    if (lane == 0) call.part_totals[at] = float2{highest, total};
#pragma unroll
    for (int s = 0; s < kSlices; ++s) {
      const std::uint32_t d = lane + 32 * static_cast<std::uint32_t>(s);
      if (d < call.value_dim) call.part_sums[at * call.value_dim + d] = sums[s];
      sums[s] = 0;
    }
    total = 0;
    highest = -INFINITY;
  }

  __device__ void write_result(float* to, std::uint32_t query_head) const {
    const float factor = factor_of(call, query_head, all_highest, all_total);
#pragma unroll
    for (int s = 0; s < kSlices; ++s) {
      const std::uint32_t d = lane + 32 * static_cast<std::uint32_t>(s);
      if (d < call.value_dim) to[d] = __fmul_rn(all_sums[s], factor);
    }
  }
};

template <ElementType kType, int kSlices>
__device__ void attend_query(const AttendCall& call, const AttentionItem& item, std::uint32_t kv_head,
                             std::uint32_t query, float* room) {
  const std::uint32_t lane = threadIdx.x % 32;
  const QueryPlace place = query_place(call, item, kv_head, query);
  const float* const from =
      reinterpret_cast<const float*>(call.q.data) + place.row * call.q.stride + place.head * call.head_dim;
  __syncwarp();
  for (std::uint32_t d = lane; d < call.head_dim; d += 32) room[d] = from[d];
  __syncwarp();
  Query<kType, kSlices> one{call, room};
  one.kv = call.kv.sequence(item.table, call.layer);
  one.head = kv_head;
  one.begin = first_seen(place.position, call.window);
  one.end = place.position + 1;
  const std::uint32_t first = at_least(one.begin, item.section_begin * kSection) / kTile;
  const std::uint32_t last = at_most(one.end, item.section_end * kSection);
  for (std::uint32_t tile = first; tile * kTile < last; ++tile) {
    one.attend(tile);
    if ((tile + 1) % kSectionTiles != 0 && (tile + 1) * kTile < last) continue;
    if (place.part == kNone) {
      one.end_section();
    } else {
      one.write_part(place.part + tile / kSectionTiles - item.part_section, place.head);
    }
  }
  if (place.part == kNone) {
    one.write_result(
        reinterpret_cast<float*>(call.out.data) + place.row * call.out.stride + place.head * call.value_dim,
        place.head);
    return;
  }
  __threadfence();
  __syncwarp();
  const bool complete = lane == 0 && complete_parts(call, place, item.section_end - item.section_begin);
  if (!__any_sync(0xFFFFFFFF, complete)) return;
  __threadfence();
  join_parts<1, 8>(call, place);
}

template <ElementType kType, int kSlices>
__global__ void __launch_bounds__(kWarps * 32) attend_general(const __grid_constant__ AttendCall call) {
  extern __shared__ float rooms[];  // [warps][head_dim]
  const std::uint32_t warp = threadIdx.x / 32;
  wait_for_previous();
  let_next_start();
  const std::uint32_t narrow = call.plan.counts->narrow, items = narrow + call.plan.counts->wide;
  for (std::uint32_t i = blockIdx.x; i < items * call.kv_heads; i += gridDim.x) {
    const std::uint32_t n = i / call.kv_heads;
    const AttentionItem item = n < narrow ? call.plan.narrow[n] : call.plan.wide[n - narrow];
    for (std::uint32_t query = warp; query < item.queries; query += kWarps) {
      attend_query<kType, kSlices>(call, item, i % call.kv_heads, query, rooms + warp * call.head_dim);
    }
  }
}

template <ElementType kType>
void launch_general(cudaStream_t stream, const AttendCall& call, std::uint32_t multiprocessors) {
  const std::uint32_t bytes = kWarps * call.head_dim * static_cast<std::uint32_t>(sizeof(float));
  const std::uint32_t blocks = kBlocks * multiprocessors;
  if (call.value_dim <= 128) {
    launch(call.overlap, stream, blocks, kWarps * 32, bytes, attend_general<kType, 4>, call);
  } else if (call.value_dim <= 512) {
    launch(call.overlap, stream, blocks, kWarps * 32, bytes, attend_general<kType, 16>, call);
  } else {
    launch(call.overlap, stream, blocks, kWarps * 32, bytes, attend_general<kType, static_cast<int>(kMostHead / 32)>,
           call);
  }
}

}  // namespace

void launch_attend_general(cudaStream_t stream, const AttendCall& call, std::uint32_t multiprocessors) {
  switch (call.kv.type) {
    case ElementType::F32: return launch_general<ElementType::F32>(stream, call, multiprocessors);
    case ElementType::F16: return launch_general<ElementType::F16>(stream, call, multiprocessors);
    case ElementType::BF16: return launch_general<ElementType::BF16>(stream, call, multiprocessors);
    case ElementType::Q8_0: return launch_general<ElementType::Q8_0>(stream, call, multiprocessors);
    case ElementType::I8: return;  // stores() refuses it
  }
}

AttendKind attend_kind(ElementType type, std::uint32_t head_dim, std::uint32_t most_shared) {
  if (head_dim % 16 != 0 || head_dim > 256) return AttendKind::General;
  const auto if_it_fits = [&](AttendKind kind, std::uint32_t bytes) {
    return bytes <= most_shared ? kind : AttendKind::General;
  };
  switch (type) {
    case ElementType::F16: return if_it_fits(AttendKind::F16, fast_shared_bytes<ElementType::F16>(head_dim));
    case ElementType::BF16: return if_it_fits(AttendKind::BF16, fast_shared_bytes<ElementType::BF16>(head_dim));
    case ElementType::Q8_0: return if_it_fits(AttendKind::Q8, fast_shared_bytes<ElementType::Q8_0>(head_dim));
    default: return AttendKind::General;
  }
}

std::uint32_t wide_queries(AttendKind kind, std::uint32_t head_dim) {
  return kind != AttendKind::General && head_dim > 128 ? kWide / 2 : kWide;
}

void launch_attend(cudaStream_t stream, AttendKind kind, const AttendCall& call, std::uint32_t multiprocessors,
                   bool narrow, bool wide) {
  if (kind == AttendKind::General) return launch_attend_general(stream, call, multiprocessors);
  const auto attend = kind == AttendKind::F16    ? launch_attend_f16
                      : kind == AttendKind::BF16 ? launch_attend_bf16
                                                 : launch_attend_q8;
  if (wide) attend(stream, call, multiprocessors, true);
  if (narrow) attend(stream, call, multiprocessors, false);
}

}  // namespace quire::cuda
