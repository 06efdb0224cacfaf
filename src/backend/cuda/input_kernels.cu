// Makes the input of a product ready: norm or gate, then halves in the order that matrix instructions read. One block
// per token. The number of threads follows from the columns alone, so sums have one order.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "quire/backend/cuda/overlap.cuh"
#include "quire/backend/cuda/product_kernels.h"

namespace quire::cuda {

namespace {

constexpr std::uint32_t kMostThreads = 1024;
constexpr std::uint32_t kHeld = 4;  // quads of columns that a thread keeps in registers

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

__device__ bool normed(InputKind kind) { return kind == InputKind::Normed || kind == InputKind::GatedNormed; }

// The value before a norm.
__device__ float gated(const Row& row, float x, float gate) {
  switch (row.kind) {
    case InputKind::GatedSilu:
    case InputKind::GatedNormed: return __fmul_rn(silu(gate), x);
    case InputKind::GatedGelu: return __fmul_rn(gelu(gate), x);
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

// Columns c to c + 3. Those past the end are zeros.
__device__ float4 quad(const Row& row, std::uint32_t c) {
  float4 v = {0, 0, 0, 0};
  float* value = &v.x;
  if (row.aligned && c + 4 <= row.cols) {
    const float4 x = *reinterpret_cast<const float4*>(row.x + c);
    const float4 gate = has_gate(row) ? *reinterpret_cast<const float4*>(row.gate + c) : v;
    const float4 w = normed(row.kind) ? *reinterpret_cast<const float4*>(row.weight + c) : v;
    const float xs[4] = {x.x, x.y, x.z, x.w}, gates[4] = {gate.x, gate.y, gate.z, gate.w}, ws[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      value[i] = gated(row, xs[i], gates[i]);
      if (normed(row.kind)) value[i] = after_norm(row, value[i], c + i, ws[i]);
    }
    return v;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (c + i >= row.cols) continue;
    value[i] = before_norm(row, c + i);
    if (normed(row.kind)) value[i] = after_norm(row, value[i], c + i, row.weight[c + i]);
  }
  return v;
}

// The same tree for every warp and block of this many threads; all threads get the result.
template <typename Join>
__device__ float over_block(float value, Join join, float* room) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) value = join(value, __shfl_xor_sync(~0u, value, distance));
  if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = value;
  __syncthreads();
  float all = room[0];
  for (std::uint32_t warp = 1; warp < blockDim.x / 32; ++warp) all = join(all, room[warp]);
  __syncthreads();
  return all;
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

__global__ void prepare_kernel(InputArgs input, PreparedInput to, InputForms forms, bool aligned) {
  extern __shared__ float norms[];  // of the groups
  __shared__ float room[32];
  let_next_start();
  wait_for_previous();
  const std::uint32_t token = blockIdx.x, cols = input.x.cols, pieces = pieces_of(cols), quads = pieces * 64;
  const Row row{input.kind,
                row_at(input.x, token),
                input.gate.data == nullptr ? nullptr : row_at(input.gate, token),
                reinterpret_cast<const float*>(input.weight.data),
                cols,
                cols / input.groups,
                norms,
                aligned};
  if (normed(input.kind)) {
    for (std::uint32_t group = 0; group < input.groups; ++group) {
      float sum = 0;
      for (std::uint32_t c = threadIdx.x; c < row.part; c += blockDim.x) {
        const float value = before_norm(row, group * row.part + c);
        sum = fmaf(value, value, sum);
      }
      sum = over_block(
          sum, [](float a, float b) { return __fadd_rn(a, b); }, room);
      if (threadIdx.x == 0) norms[group] = 1.0f / sqrtf(sum / static_cast<float>(row.part) + input.epsilon);
    }
    __syncthreads();
  }
  float4 held[kHeld];
  float most = 0;
#pragma unroll
  for (std::uint32_t h = 0; h < kHeld; ++h) {
    const std::uint32_t i = h * blockDim.x + threadIdx.x;
    held[h] = i < quads ? quad(row, column_of(i)) : float4{0, 0, 0, 0};
    most = fmaxf(most, most_of(held[h]));
  }
  const std::uint32_t others = kHeld * blockDim.x + threadIdx.x;  // of very wide rows: computed twice
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

cudaError_t prepare_inputs() { return want_shared_memory(prepare_kernel); }

void launch_prepare(cudaStream_t stream, const InputArgs& input, const PreparedInput& to, InputForms forms) {
  const std::uint32_t quads = pieces_of(input.x.cols) * 64;
  const std::uint32_t threads = quads < kMostThreads ? quads : kMostThreads;
  const bool aligned = is_aligned(input.x) && is_aligned(input.gate) && is_aligned(input.weight);
  launch(to.overlap, stream, input.x.rows, threads, input.groups * sizeof(float), prepare_kernel, input, to, forms,
         aligned);
}

}  // namespace quire::cuda
