// Arithmetic of attention that several kernels share. Everything is written with explicitly rounded operations: the
// compiler must not contract a product and a sum in one kernel and not in another, since their bits have to agree.
//
// Scores are kept as powers of two: score * log2(e).
#pragma once

#include <cstdint>

#include "quire/backend/cuda/attention_kernels.h"

namespace quire::cuda {

inline constexpr float kLog2E = 1.4426950408889634f;

// One instruction. Results below 2^-126 are 0.
__device__ inline float power_of_two(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// How a product of a query and a key becomes a score: times `factor`, then (with a cap) cap * tanh().
struct ScoreScale {
  float scale;  // of the query's row
  float cap;    // times log2(e); 0: none
};
__device__ inline ScoreScale score_scale(const AttendCall& call) {
  if (call.soft_cap > 0) return {__fdiv_rn(call.scale, call.soft_cap), __fmul_rn(call.soft_cap, kLog2E)};
  return {__fmul_rn(call.scale, kLog2E), 0};
}
__device__ inline float capped(float x, float cap) {
  const float power = power_of_two(__fmul_rn(x, 2 * kLog2E));
  return __fmul_rn(cap, __fsub_rn(1.0f, __fdiv_rn(2.0f, __fadd_rn(power, 1.0f))));
}

__device__ inline float score_of(float product, float factor, float cap) {
  const float x = __fmul_rn(product, factor);
  return cap == 0 ? x : capped(x, cap);
}

// What weights are relative to: the running maximum, or 0 while nothing was seen.
__device__ inline float reference_of(float highest) { return highest == -INFINITY ? 0.0f : highest; }
__device__ inline float weight_of(float score, float reference) { return power_of_two(__fsub_rn(score, reference)); }

// Joins a section to those before it. The first one is taken over as it is.
struct Joint {
  float before, part;  // factors
  bool first, skip;
};
__device__ inline Joint joint_of(float highest, float part) {
  const float most = fmaxf(highest, part);
  return {power_of_two(__fsub_rn(highest, most)), power_of_two(__fsub_rn(part, most)), highest == -INFINITY,
          part == -INFINITY};
}
__device__ inline float join(const Joint& joint, float before, float part) {
  const float joined = __fmaf_rn(part, joint.part, __fmul_rn(before, joint.before));
  const float kept = joint.first ? part : joined;
  return joint.skip ? before : kept;
}

// What a query's sums are multiplied by at the end: 1 / the sum of its weights. A sink's weight is part of that sum.
__device__ inline float factor_of(const AttendCall& call, std::uint32_t head, float highest, float total) {
  if (call.sinks == nullptr) return __fdiv_rn(1.0f, total);
  const float sink = __fmul_rn(call.sinks[head], kLog2E), most = fmaxf(highest, sink);
  const float shrink = power_of_two(__fsub_rn(highest, most));
  return __fdiv_rn(shrink, __fmaf_rn(total, shrink, power_of_two(__fsub_rn(sink, most))));
}

// A query of an item: its row and head, and what it sees.
struct QueryPlace {
  std::uint32_t row, head, position;
  std::uint32_t part;                  // of the item's first section; kNone: the item joins its sections itself
  std::uint32_t first_part, sections;  // of all parts
};
__device__ inline QueryPlace query_place(const AttendCall& call, const AttentionItem& item, std::uint32_t kv_head,
                                         std::uint32_t i) {
  const std::uint32_t query = item.first_query + i;
  const std::uint32_t index = query / call.per_head, head = kv_head * call.per_head + query % call.per_head;
  if (item.member == kNone) return {item.first_row + index, head, item.position + index, kNone, 0, 0};
  const AttentionMember member = call.plan.members[item.member + index];
  return {member.row, head, member.position, member.part, member.first_part, member.sections};
}

}  // namespace quire::cuda
