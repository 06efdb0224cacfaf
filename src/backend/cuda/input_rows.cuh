// Device code that makes a row of an input ready for a product: norm or gate, and the power of two that its halves are
// multiplied by. One source for the kernels that do it, so that bits agree.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "quire/backend/cuda/product_kernels.h"

namespace quire::cuda {

// Of a row. Small enough that a block finds room beside those of the product before it.
inline constexpr std::uint32_t kMostThreads = 512;
__host__ __device__ inline std::uint32_t row_threads(std::uint32_t cols) {
  const std::uint32_t quads = pieces_of(cols) * 64;
  return quads < kMostThreads ? quads : kMostThreads;
}

// Whether four neighbouring columns can be read at once.
inline bool is_aligned(const Tensor& x) {
  return reinterpret_cast<std::uintptr_t>(x.data) % 16 == 0 && (x.rows <= 1 || x.stride % 4 == 0);
}
inline bool is_aligned(const InputArgs& input) {
  return is_aligned(input.x) && is_aligned(input.gate) && is_aligned(input.weight) && is_aligned(input.bias);
}

struct Row {
  InputKind kind;
  const float *x, *gate, *weight, *bias;
  std::uint32_t cols, part;  // columns of a group of the norm
  const float* norms;        // 1 / rms of each group; of a LayerNorm 1 / deviation, then the mean
  bool aligned;
};

__device__ inline float silu(float x) { return x / (1.0f + expf(-x)); }
__device__ inline float gelu(float x) {
  constexpr float kRoot = 0.7978845608f;  // sqrt(2 / pi)
  return 0.5f * x * (1.0f + tanhf(kRoot * fmaf(0.044715f * x * x, x, x)));
}

__device__ inline float clamped(float x, float gate) {
  const float g = fminf(gate, 7.0f);
  return __fmul_rn(g / (1.0f + expf(-1.702f * g)), fminf(fmaxf(x, -7.0f), 7.0f) + 1.0f);
}

__device__ inline bool normed(InputKind kind) {
  return kind == InputKind::Normed || kind == InputKind::GatedNormed || kind == InputKind::NormedGated ||
         kind == InputKind::LayerNormed;
}

// The value before a norm.
__device__ inline float gated(const Row& row, float x, float gate) {
  switch (row.kind) {
    case InputKind::GatedSilu:
    case InputKind::GatedNormed: return __fmul_rn(silu(gate), x);
    case InputKind::GatedGelu: return __fmul_rn(gelu(gate), x);
    case InputKind::GatedSigmoid: return __fmul_rn(1.0f / (1.0f + expf(-gate)), x);
    case InputKind::Multiplied: return __fmul_rn(gate, x);
    case InputKind::GatedClamped: return clamped(x, gate);
    case InputKind::ActivatedSilu: return silu(gate);
    case InputKind::ActivatedGelu: return gelu(gate);
    default: return x;
  }
}
// Before the norm, if there is one.
__device__ inline bool has_gate(const Row& row) { return row.gate != nullptr && row.kind != InputKind::NormedGated; }
__device__ inline float before_norm(const Row& row, std::uint32_t c) {
  return gated(row, row.x[c], has_gate(row) ? row.gate[c] : 0.0f);
}
__device__ inline float after_norm(const Row& row, float value, std::uint32_t c, float weight) {
  return __fmul_rn(__fmul_rn(value, row.norms[c / row.part]), weight);
}

__device__ inline float4 floats_at(const float* from, std::uint32_t c, std::uint32_t cols, bool aligned) {
  if (aligned && c + 4 <= cols) return *reinterpret_cast<const float4*>(from + c);
  float4 v = {0, 0, 0, 0};
  float* value = &v.x;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (c + i < cols) value[i] = from[c + i];
  }
  return v;
}
__device__ inline float4 gated_4(const Row& row, float4 x, float4 gate) {
  return {gated(row, x.x, gate.x), gated(row, x.y, gate.y), gated(row, x.z, gate.z), gated(row, x.w, gate.w)};
}
// Columns c to c + 3 before a norm. Those past the end are zeros.
__device__ inline float4 quad_before(const Row& row, std::uint32_t c) {
  const float4 x = floats_at(row.x, c, row.cols, row.aligned);
  if (!has_gate(row)) return x;
  const float4 gate = floats_at(row.gate, c, row.cols, row.aligned);
  return gated_4(row, x, gate);
}
// A weight and a bias past the end are zeros, so padding stays zero.
__device__ inline float4 layer_normed(const Row& row, float4 v, std::uint32_t c, float4 weight) {
  const float factor = row.norms[0], mean = row.norms[1];
  const float4 bias = row.bias == nullptr ? float4{0, 0, 0, 0} : floats_at(row.bias, c, row.cols, row.aligned);
  const auto element = [&](float value, float by, float plus) {
    return __fadd_rn(__fmul_rn(__fmul_rn(__fsub_rn(value, mean), factor), by), plus);
  };
  return {element(v.x, weight.x, bias.x), element(v.y, weight.y, bias.y), element(v.z, weight.z, bias.z),
          element(v.w, weight.w, bias.w)};
}
template <bool kLayer>
__device__ float4 quad_after(const Row& row, float4 v, std::uint32_t c, float4 weight) {
  if (!normed(row.kind) || c >= row.cols) return v;
  if constexpr (kLayer) return layer_normed(row, v, c, weight);
  const std::uint32_t last = row.cols - 1;  // padding has no group
  const float4 out = {after_norm(row, v.x, c, weight.x), after_norm(row, v.y, min(c + 1, last), weight.y),
                      after_norm(row, v.z, min(c + 2, last), weight.z),
                      after_norm(row, v.w, min(c + 3, last), weight.w)};
  if (row.kind != InputKind::NormedGated) return out;
  const float4 gate = floats_at(row.gate, c, row.cols, row.aligned);
  return {__fmul_rn(silu(gate.x), out.x), __fmul_rn(silu(gate.y), out.y), __fmul_rn(silu(gate.z), out.z),
          __fmul_rn(silu(gate.w), out.w)};
}
template <bool kLayer>
__device__ float4 quad(const Row& row, std::uint32_t c) {
  const float4 v = quad_before(row, c);
  return normed(row.kind) ? quad_after<kLayer>(row, v, c, floats_at(row.weight, c, row.cols, row.aligned)) : v;
}
// A warp's threads take 8 steps of 4 lanes each: they read runs of 128 bytes and write runs of 16.
__device__ inline std::uint32_t column_of(std::uint32_t i) {
  return i / 64 * kPieceCols + i % 4 * kLaneCols + i % 64 / 4 * 4;
}

// A quad from memory that is aligned and has a multiple of 4 columns: no branch, so that several can be on their way.
__device__ inline float4 vector_at(const float* from, std::uint32_t c, std::uint32_t cols) {
  return c < cols ? *reinterpret_cast<const float4*>(from + c) : float4{0, 0, 0, 0};
}
// The quads of a thread before a norm: numbers first, first + apart, ... All are read at once, if registers allow it.
template <std::uint32_t kHeld, bool kAllAtOnce>
__device__ void quads_before(const Row& row, std::uint32_t first, std::uint32_t apart, float4 (&held)[kHeld]) {
  const std::uint32_t quads = pieces_of(row.cols) * 64;
  if (!row.aligned || row.cols % 4 != 0) {
#pragma unroll
    for (std::uint32_t h = 0; h < kHeld; ++h) {
      const std::uint32_t i = first + h * apart;
      held[h] = i < quads ? quad_before(row, column_of(i)) : float4{0, 0, 0, 0};
    }
    return;
  }
#pragma unroll
  for (std::uint32_t h = 0; h < kHeld; ++h) held[h] = vector_at(row.x, column_of(first + h * apart), row.cols);
  if (!has_gate(row)) return;
  constexpr std::uint32_t kGates = kAllAtOnce ? kHeld : 1;
#pragma unroll
  for (std::uint32_t from = 0; from < kHeld; from += kGates) {
    float4 gates[kGates];
#pragma unroll
    for (std::uint32_t h = 0; h < kGates; ++h) {
      gates[h] = vector_at(row.gate, column_of(first + (from + h) * apart), row.cols);
    }
#pragma unroll
    for (std::uint32_t h = 0; h < kGates; ++h) {
      if (first + (from + h) * apart < quads) held[from + h] = gated_4(row, held[from + h], gates[h]);
    }
  }
}
__device__ inline float squares(float4 v, float sum) {
  return fmaf(v.w, v.w, fmaf(v.z, v.z, fmaf(v.y, v.y, fmaf(v.x, v.x, sum))));
}

__device__ inline float sum_of(float4 v, float before) {
  return __fadd_rn(__fadd_rn(__fadd_rn(__fadd_rn(before, v.x), v.y), v.z), v.w);
}
// Squares of the distances from the mean, of the columns that there are.
__device__ inline float squares_about(float mean, float4 v, std::uint32_t c, std::uint32_t cols, float before) {
  const float value[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float distance = __fsub_rn(value[i], mean);
    if (c + i < cols) before = fmaf(distance, distance, before);
  }
  return before;
}

// The same tree for every warp and block of this many threads; all threads get the result. No value changes when it is
// joined with 0.
template <typename Join>
__device__ float over_block(float value, Join join, float (&room)[32]) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) value = join(value, __shfl_xor_sync(~0u, value, distance));
  __syncthreads();
  if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = value;
  __syncthreads();
  value = threadIdx.x % 32 < blockDim.x / 32 ? room[threadIdx.x % 32] : 0.0f;
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) value = join(value, __shfl_xor_sync(~0u, value, distance));
  return value;
}

__device__ inline float most_of(float4 v) {
  return fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w)));
}

// The power of two that brings the largest value to [2^14, 2^15).
__device__ inline int exponent_for(float most) {
  const std::uint32_t bits = __float_as_uint(most);
  if (bits == 0 || bits >= 0x7f800000u) return 0;
  return min(14 - (static_cast<int>(bits >> 23) - 127), 126);
}
__device__ inline float power_of_two(int exponent) {
  return __uint_as_float(static_cast<std::uint32_t>(exponent + 127) << 23);
}

template <typename T>
__device__ void put_pair(std::uint16_t* at, T a, T b) {
  const T pair[2] = {a, b};
  *reinterpret_cast<std::uint32_t*>(at) = *reinterpret_cast<const std::uint32_t*>(pair);
}

__device__ inline const float* row_at(const Tensor& x, std::uint32_t i) {
  return reinterpret_cast<const float*>(x.data) + i * x.stride;
}

// The threads of a row: `count` follows from the columns alone, so sums have one order. A block may have more threads;
// those take part in barriers and have no columns.
struct RowThread {
  std::uint32_t number, count;
  __device__ std::uint32_t first(std::uint32_t end) const { return number < count ? number : end; }
};

// 1 / rms of each of many groups: a warp for each.
constexpr std::uint32_t kManyGroups = 8;
__device__ inline void compute_many_norms(const Row& row, const InputArgs& input, float* norms) {
  const std::uint32_t lane = threadIdx.x % 32;
  for (std::uint32_t group = threadIdx.x / 32; group < input.groups; group += blockDim.x / 32) {
    float sum = 0;
    for (std::uint32_t c = lane; c < row.part; c += 32) {
      const float value = before_norm(row, group * row.part + c);
      sum = fmaf(value, value, sum);
    }
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) sum = __fadd_rn(sum, __shfl_xor_sync(~0u, sum, distance));
    if (lane == 0) norms[group] = 1.0f / sqrtf(sum / static_cast<float>(row.part) + input.epsilon);
  }
  __syncthreads();
}

// 1 / rms of each group. `held`: the quads of this thread before the norm.
template <std::uint32_t kHeld>
__device__ void compute_norms(const Row& row, const InputArgs& input, RowThread thread, const float4 (&held)[kHeld],
                              std::uint32_t quads, float (&room)[32], float* norms) {
  if (input.groups >= kManyGroups) return compute_many_norms(row, input, norms);
  for (std::uint32_t group = 0; group < input.groups; ++group) {
    float sum = 0;
    if (input.groups == 1) {
#pragma unroll
      for (std::uint32_t h = 0; h < kHeld; ++h) sum = squares(held[h], sum);
      for (std::uint32_t i = thread.first(quads) + kHeld * thread.count; i < quads; i += thread.count) {
        sum = squares(quad_before(row, column_of(i)), sum);
      }
    } else {
      for (std::uint32_t c = thread.first(row.part); c < row.part; c += thread.count) {
        const float value = before_norm(row, group * row.part + c);
        sum = fmaf(value, value, sum);
      }
    }
    sum = over_block(
        sum, [](float a, float b) { return __fadd_rn(a, b); }, room);
    if (threadIdx.x == 0) norms[group] = 1.0f / sqrtf(sum / static_cast<float>(row.part) + input.epsilon);
  }
  __syncthreads();
}

// 1 / deviation and mean of a LayerNorm.
template <std::uint32_t kHeld>
__device__ void compute_layer_norm(const Row& row, float epsilon, RowThread thread, const float4 (&held)[kHeld],
                                   std::uint32_t quads, float (&room)[32], float* norms) {
  const auto added = [](float a, float b) { return __fadd_rn(a, b); };
  const std::uint32_t first = thread.first(quads), others = first + kHeld * thread.count;
  const auto cols = static_cast<float>(row.cols);
  float total = 0;
#pragma unroll
  for (std::uint32_t h = 0; h < kHeld; ++h) total = sum_of(held[h], total);
  for (std::uint32_t i = others; i < quads; i += thread.count) total = sum_of(quad_before(row, column_of(i)), total);
  const float mean = __fdiv_rn(over_block(total, added, room), cols);
  float squared = 0;
#pragma unroll
  for (std::uint32_t h = 0; h < kHeld; ++h) {
    squared = squares_about(mean, held[h], column_of(first + h * thread.count), row.cols, squared);
  }
  for (std::uint32_t i = others; i < quads; i += thread.count) {
    squared = squares_about(mean, quad_before(row, column_of(i)), column_of(i), row.cols, squared);
  }
  squared = over_block(squared, added, room);
  if (threadIdx.x == 0) {
    norms[0] = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(__fdiv_rn(squared, cols), epsilon)));
    norms[1] = mean;
  }
  __syncthreads();
}

__device__ inline Row row_of(const InputArgs& input, std::uint32_t token, const float* norms, bool aligned) {
  return {input.kind,
          row_at(input.x, token),
          input.gate.data == nullptr ? nullptr : row_at(input.gate, token),
          reinterpret_cast<const float*>(input.weight.data),
          reinterpret_cast<const float*>(input.bias.data),
          input.x.cols,
          input.x.cols / input.groups,
          norms,
          aligned};
}

// Norm weights that a thread reads before the input is there.
constexpr std::uint32_t kAhead = 2;
__device__ inline void weights_ahead(const Row& row, RowThread thread, float4 (&weights)[kAhead]) {
  const std::uint32_t quads = pieces_of(row.cols) * 64;
#pragma unroll
  for (std::uint32_t h = 0; h < kAhead; ++h) {
    const std::uint32_t i = thread.first(quads) + h * thread.count;
    weights[h] = {0, 0, 0, 0};
    if (normed(row.kind) && i < quads) weights[h] = floats_at(row.weight, column_of(i), row.cols, row.aligned);
  }
}

// Makes a row ready: norm or gate, the power of two for all its values, then write(column, four values).
// kHeld: quads of columns that a thread keeps in registers. Others are computed twice; bits do not depend on it.
// kAllAtOnce: registers allow it to read gates together and `ahead` is filled.
// kLayer: a LayerNorm, in kernels of its own so that the others need no registers for it.
template <std::uint32_t kHeld, bool kAllAtOnce, bool kLayer, typename Write>
__device__ void make_ready(const InputArgs& input, const Row& row, RowThread thread, const float4 (&ahead)[kAhead],
                           float (&room)[32], float* norms, Write& write) {
  const std::uint32_t quads = pieces_of(row.cols) * 64, first = thread.first(quads);
  float4 held[kHeld];
  quads_before<kHeld, kAllAtOnce>(row, first, thread.count, held);
  if constexpr (kLayer) {
    compute_layer_norm(row, input.epsilon, thread, held, quads, room, norms);
  } else if (normed(row.kind)) {
    compute_norms(row, input, thread, held, quads, room, norms);
  }
  float most = 0;
#pragma unroll
  for (std::uint32_t h = 0; h < kHeld; ++h) {
    const std::uint32_t i = first + h * thread.count;
    if (normed(row.kind) && i < quads) {
      const std::uint32_t c = column_of(i);
      held[h] = quad_after<kLayer>(
          row, held[h], c,
          kAllAtOnce && h < kAhead ? ahead[h % kAhead] : floats_at(row.weight, c, row.cols, row.aligned));
    }
    most = fmaxf(most, most_of(held[h]));
  }
  const std::uint32_t others = first + kHeld * thread.count;
  for (std::uint32_t i = others; i < quads; i += thread.count)
    most = fmaxf(most, most_of(quad<kLayer>(row, column_of(i))));
  most = over_block(
      most, [](float a, float b) { return fmaxf(a, b); }, room);
  write.scale_by(exponent_for(most));
#pragma unroll
  for (std::uint32_t h = 0; h < kHeld; ++h) {
    const std::uint32_t i = first + h * thread.count;
    if (i < quads) write(column_of(i), held[h]);
  }
  for (std::uint32_t i = others; i < quads; i += thread.count) write(column_of(i), quad<kLayer>(row, column_of(i)));
}

}  // namespace quire::cuda
