// What the kernels of the scan share: the arguments, the step of a token, and the types of a state in memory.
#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "quire/backend/cuda/device_batch.h"
#include "quire/state/views.h"

namespace quire::cuda {

struct Scan {
  float* out;
  const float *x, *b, *c, *dt;
  std::uint64_t out_stride, x_stride, b_stride, c_stride, dt_stride;
  const float *dt_bias, *a, *d;
  std::uint32_t head_dim, state_dim, heads_per_group, heads, layer;
  const DeviceEntry* entries;
  StatesView states;
  bool aligned;  // rows of b and c begin at multiples of 16 bytes

  // Row `row` of a head's state.
  __device__ std::byte* state(const DeviceEntry& entry, std::uint32_t head, std::uint32_t row) const {
    return states.at(entry.state).ssm(layer) +
           (std::uint64_t{head} * head_dim + row) * state_dim * element_bytes(states.type);
  }
  __device__ std::uint32_t group_offset(std::uint32_t head) const { return head / heads_per_group * state_dim; }
};

struct Step {
  float step, decay;
};
// Not inlined: one piece of code, so that no kernel fuses its operations in another way.
static __device__ __noinline__ Step discretize(float dt, float bias, float a) {
  const float v = __fadd_rn(dt, bias);
  // log(1 + e^v) without overflow. A NaN stays one: it is in the second term.
  const float step = __fadd_rn(fmaxf(v, 0.0f), log1pf(expf(-fabsf(v))));
  return {step, expf(__fmul_rn(step, a))};
}

// A state is computed in f32. It is rounded to its type after every token: to nearest, ties to even; an f16 is clamped
// to +-65504 first, a bf16 that is too large becomes infinite. A NaN stays a NaN. (min.NaN and max.NaN keep it; fminf
// and fmaxf would not.)
__device__ inline float clamped_to_f16(float v) {
  asm("min.NaN.f32 %0, %0, %1;" : "+f"(v) : "f"(65504.0f));
  asm("max.NaN.f32 %0, %0, %1;" : "+f"(v) : "f"(-65504.0f));
  return v;
}

template <ElementType kType>
struct StateType;

template <>
struct StateType<ElementType::F32> {
  using Bits = std::uint32_t;
  static __device__ float load(Bits bits) { return __uint_as_float(bits); }
  static __device__ Bits store(float v) { return __float_as_uint(v); }
};
template <>
struct StateType<ElementType::F16> {
  using Bits = std::uint16_t;
  static __device__ float load(Bits bits) { return __half2float(__ushort_as_half(bits)); }
  static __device__ Bits store(float v) { return __half_as_ushort(__float2half_rn(clamped_to_f16(v))); }
};
template <>
struct StateType<ElementType::BF16> {
  using Bits = std::uint16_t;
  static __device__ float load(Bits bits) { return __uint_as_float(std::uint32_t{bits} << 16); }
  static __device__ Bits store(float v) { return __bfloat16_as_ushort(__float2bfloat16_rn(v)); }
};
template <ElementType kType>
__device__ float rounded(float v) {
  return StateType<kType>::load(StateType<kType>::store(v));
}

}  // namespace quire::cuda
