// Makes the input of a product ready: norm or gate, then halves in the order that matrix instructions read. One block
// per token. The number of threads follows from the columns alone, so sums have one order.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "quire/backend/cuda/overlap.cuh"
#include "quire/backend/cuda/product_kernels.h"

namespace quire::cuda {

namespace {

// Small enough that a block finds room beside those of the product before it.
constexpr std::uint32_t kMostThreads = 512;
constexpr std::uint32_t kAhead = 2;  // quads of norm weights that a thread reads before the input is there

struct Row {
  InputKind kind;
  const float *x, *gate, *weight;
  std::uint32_t cols, part;  // columns of a group of the norm
  const float* norms;        // 1 / rms of each group
  bool aligned;
};

__device__ float silu(float x) { return x / (1.0f + expf(-x)); }
__device__ float gelu(float x) {
  constexpr float kRoot = 0.7978845608f;  // sqrt(2 / pi)
  return 0.5f * x * (1.0f + tanhf(kRoot * fmaf(0.044715f * x * x, x, x)));
}

__device__ float clamped(float x, float gate) {
  const float g = fminf(gate, 7.0f);
  return __fmul_rn(g / (1.0f + expf(-1.702f * g)), fminf(fmaxf(x, -7.0f), 7.0f) + 1.0f);
}

__device__ bool normed(InputKind kind) { return kind == InputKind::Normed || kind == InputKind::GatedNormed; }

// The value before a norm.
__device__ float gated(const Row& row, float x, float gate) {
  switch (row.kind) {
    case InputKind::GatedSilu:
    case InputKind::GatedNormed: return __fmul_rn(silu(gate), x);
    case InputKind::GatedGelu: return __fmul_rn(gelu(gate), x);
    case InputKind::GatedClamped: return clamped(x, gate);
    default: return x;
  }
}
__device__ bool has_gate(const Row& row) { return row.gate != nullptr; }
__device__ float before_norm(const Row& row, std::uint32_t c) {
  return gated(row, row.x[c], has_gate(row) ? row.gate[c] : 0.0f);
}
__device__ float after_norm(const Row& row, float value, std::uint32_t c, float weight) {
  return __fmul_rn(__fmul_rn(value, row.norms[c / row.part]), weight);
}

__device__ float4 floats_at(const float* from, std::uint32_t c, std::uint32_t cols, bool aligned) {
  if (aligned && c + 4 <= cols) return *reinterpret_cast<const float4*>(from + c);
  float4 v = {0, 0, 0, 0};
  float* value = &v.x;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (c + i < cols) value[i] = from[c + i];
  }
  return v;
}
// Columns c to c + 3 before a norm. Those past the end are zeros.
__device__ float4 quad_before(const Row& row, std::uint32_t c) {
  const float4 x = floats_at(row.x, c, row.cols, row.aligned);
  if (!has_gate(row)) return x;
  const float4 gate = floats_at(row.gate, c, row.cols, row.aligned);
  return {gated(row, x.x, gate.x), gated(row, x.y, gate.y), gated(row, x.z, gate.z), gated(row, x.w, gate.w)};
}
__device__ float4 quad_after(const Row& row, float4 v, std::uint32_t c, float4 weight) {
  if (!normed(row.kind) || c >= row.cols) return v;
  const std::uint32_t last = row.cols - 1;  // padding has no group
  return {after_norm(row, v.x, c, weight.x), after_norm(row, v.y, min(c + 1, last), weight.y),
          after_norm(row, v.z, min(c + 2, last), weight.z), after_norm(row, v.w, min(c + 3, last), weight.w)};
}
__device__ float4 quad(const Row& row, std::uint32_t c) {
  const float4 v = quad_before(row, c);
  return normed(row.kind) ? quad_after(row, v, c, floats_at(row.weight, c, row.cols, row.aligned)) : v;
}
__device__ float squares(float4 v, float sum) {
  return fmaf(v.w, v.w, fmaf(v.z, v.z, fmaf(v.y, v.y, fmaf(v.x, v.x, sum))));
}

// The same tree for every warp and block of this many threads; all threads get the result. No value is negative or
// changes when it is joined with 0.
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

__device__ float most_of(float4 v) { return fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w))); }

// The power of two that brings the largest value to [2^14, 2^15).
__device__ int exponent_for(float most) {
  const std::uint32_t bits = __float_as_uint(most);
  if (bits == 0 || bits >= 0x7f800000u) return 0;
  return min(14 - (static_cast<int>(bits >> 23) - 127), 126);
}
__device__ float power_of_two(int exponent) {
  return __uint_as_float(static_cast<std::uint32_t>(exponent + 127) << 23);
}

template <typename T>
__device__ void put_pair(std::uint16_t* at, T a, T b) {
  const T pair[2] = {a, b};
  *reinterpret_cast<std::uint32_t*>(at) = *reinterpret_cast<const std::uint32_t*>(pair);
}

struct Write {
  PreparedInput to;
  InputForms forms;
  std::uint32_t token, pieces;
  float power;

  __device__ void operator()(std::uint32_t c, float4 v) const {
    const std::uint64_t at = input_at(pieces, token, c);  // columns c + 2 and c + 3 are 64 halves further
    if (forms.halves) {
      put_pair(to.halves + at, __float2half_rn(v.x * power), __float2half_rn(v.y * power));
      put_pair(to.halves + at + 64, __float2half_rn(v.z * power), __float2half_rn(v.w * power));
    }
    if (forms.bf16) {
      const float value[4] = {v.x, v.y, v.z, v.w};
      __nv_bfloat16 high[4], low[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        high[i] = __float2bfloat16_rn(value[i]);
        low[i] = __float2bfloat16_rn(value[i] - __bfloat162float(high[i]));
      }
      put_pair(to.high + at, high[0], high[1]);
      put_pair(to.high + at + 64, high[2], high[3]);
      put_pair(to.low + at, low[0], low[1]);
      put_pair(to.low + at + 64, low[2], low[3]);
    }
    if (forms.floats) *reinterpret_cast<float4*>(to.floats + std::uint64_t{token} * pieces * kPieceCols + c) = v;
  }
};

// A warp's threads take 8 steps of 4 lanes each: they read runs of 128 bytes and write runs of 16.
__device__ std::uint32_t column_of(std::uint32_t i) { return i / 64 * kPieceCols + i % 4 * kLaneCols + i % 64 / 4 * 4; }

__device__ const float* row_at(const Tensor& x, std::uint32_t i) {
  return reinterpret_cast<const float*>(x.data) + i * x.stride;
}

// 1 / rms of each group. `held`: the quads of this thread before the norm.
template <std::uint32_t kHeld>
__device__ void compute_norms(const Row& row, const InputArgs& input, const float4 (&held)[kHeld], std::uint32_t quads,
                              float (&room)[32], float* norms) {
  for (std::uint32_t group = 0; group < input.groups; ++group) {
    float sum = 0;
    if (input.groups == 1) {
#pragma unroll
      for (std::uint32_t h = 0; h < kHeld; ++h) sum = squares(held[h], sum);
      for (std::uint32_t i = kHeld * blockDim.x + threadIdx.x; i < quads; i += blockDim.x) {
        sum = squares(quad_before(row, column_of(i)), sum);
      }
    } else {
      for (std::uint32_t c = threadIdx.x; c < row.part; c += blockDim.x) {
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

// kHeld: quads of columns that a thread keeps in registers. Others are computed twice; bits do not depend on it.
template <std::uint32_t kHeld>
__global__ void __launch_bounds__(kMostThreads, kHeld > 2 ? 1 : 2)
    prepare_kernel(InputArgs input, PreparedInput to, InputForms forms, bool aligned) {
  extern __shared__ float norms[];  // of the groups
  __shared__ float room[32];
  let_next_start();
  const std::uint32_t token = blockIdx.x, cols = input.x.cols, pieces = pieces_of(cols), quads = pieces * 64;
  const Row row{input.kind,
                row_at(input.x, token),
                input.gate.data == nullptr ? nullptr : row_at(input.gate, token),
                reinterpret_cast<const float*>(input.weight.data),
                cols,
                cols / input.groups,
                norms,
                aligned};
  float4 held[kHeld], weights[kAhead];
#pragma unroll
  for (std::uint32_t h = 0; h < kAhead; ++h) {
    const std::uint32_t i = h * blockDim.x + threadIdx.x;
    weights[h] = {0, 0, 0, 0};
    if (normed(row.kind) && i < quads) weights[h] = floats_at(row.weight, column_of(i), cols, aligned);
  }
  wait_for_previous();
#pragma unroll
  for (std::uint32_t h = 0; h < kHeld; ++h) {
    const std::uint32_t i = h * blockDim.x + threadIdx.x;
    held[h] = i < quads ? quad_before(row, column_of(i)) : float4{0, 0, 0, 0};
  }
  if (normed(row.kind)) compute_norms(row, input, held, quads, room, norms);
  float most = 0;
#pragma unroll
  for (std::uint32_t h = 0; h < kHeld; ++h) {
    const std::uint32_t i = h * blockDim.x + threadIdx.x;
    if (normed(row.kind) && i < quads) {
      const std::uint32_t c = column_of(i);
      held[h] = quad_after(row, held[h], c, h < kAhead ? weights[h % kAhead] : floats_at(row.weight, c, cols, aligned));
    }
    most = fmaxf(most, most_of(held[h]));
  }
  const std::uint32_t others = kHeld * blockDim.x + threadIdx.x;
  for (std::uint32_t i = others; i < quads; i += blockDim.x) most = fmaxf(most, most_of(quad(row, column_of(i))));
  most = over_block(
      most, [](float a, float b) { return fmaxf(a, b); }, room);
  const int exponent = exponent_for(most);
  if (threadIdx.x == 0 && forms.halves) to.inverses[token] = power_of_two(-exponent);
  const Write write{to, forms, token, pieces, power_of_two(exponent)};
#pragma unroll
  for (std::uint32_t h = 0; h < kHeld; ++h) {
    const std::uint32_t i = h * blockDim.x + threadIdx.x;
    if (i < quads) write(column_of(i), held[h]);
  }
  for (std::uint32_t i = others; i < quads; i += blockDim.x) write(column_of(i), quad(row, column_of(i)));
}

bool is_aligned(const Tensor& x) {
  return reinterpret_cast<std::uintptr_t>(x.data) % 16 == 0 && (x.rows <= 1 || x.stride % 4 == 0);
}

}  // namespace

cudaError_t prepare_inputs() {
  const cudaError_t error = want_shared_memory(prepare_kernel<2>);
  return error != cudaSuccess ? error : want_shared_memory(prepare_kernel<8>);
}

void launch_prepare(cudaStream_t stream, const InputArgs& input, const PreparedInput& to, InputForms forms) {
  const std::uint32_t quads = pieces_of(input.x.cols) * 64;
  const std::uint32_t threads = quads < kMostThreads ? quads : kMostThreads;
  const bool aligned = is_aligned(input.x) && is_aligned(input.gate) && is_aligned(input.weight);
  launch(to.overlap, stream, input.x.rows, threads, input.groups * sizeof(float),
         quads <= 2 * kMostThreads ? prepare_kernel<2> : prepare_kernel<8>, input, to, forms, aligned);
}

}  // namespace quire::cuda
