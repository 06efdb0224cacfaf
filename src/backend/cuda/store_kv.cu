// Norms and rotation of the heads of queries and keys, and keys and values to their pages. A warp per row and head.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "quire/backend/cuda/attention_kernels.h"
#include "quire/backend/cuda/overlap.cuh"

namespace quire::cuda {
namespace {

constexpr std::uint32_t kWarps = 4;

__device__ float* row_of(const Tensor& x, std::uint32_t row) {
  return reinterpret_cast<float*>(x.data) + row * x.stride;
}

__device__ float sum_of_lanes(float x) {
  for (int offset = 16; offset > 0; offset /= 2) x = __fadd_rn(x, __shfl_xor_sync(0xFFFFFFFF, x, offset));
  return x;
}
__device__ float largest_of_lanes(float x) {
  for (int offset = 16; offset > 0; offset /= 2) x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFF, x, offset));
  return x;
}

// x / rms(x) * weight
__device__ void norm(float* x, const float* weight, float epsilon, std::uint32_t n, std::uint32_t lane) {
  float sum = 0;
  for (std::uint32_t d = lane; d < n; d += 32) sum = __fmaf_rn(x[d], x[d], sum);
  const float mean = __fdiv_rn(sum_of_lanes(sum), static_cast<float>(n));
  const float factor = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(mean, epsilon)));
  for (std::uint32_t d = lane; d < n; d += 32) x[d] = __fmul_rn(__fmul_rn(x[d], factor), weight[d]);
  __syncwarp();
}

__device__ void rotate(float* x, const float* cosines, const float* sines, std::uint32_t pairs, bool neighbours,
                       std::uint32_t lane) {
  for (std::uint32_t i = lane; i < pairs; i += 32) {
    const std::uint32_t first = neighbours ? 2 * i : i, second = neighbours ? 2 * i + 1 : i + pairs;
    const float a = x[first], b = x[second], c = cosines[i], s = sines[i];
    x[first] = __fmaf_rn(a, c, -__fmul_rn(b, s));
    x[second] = __fmaf_rn(a, s, __fmul_rn(b, c));
  }
  __syncwarp();
}

// Each block of 32 under the smallest f16 scale that brings its largest number to at most 127. A block with a number
// that is not finite becomes NaN.
__device__ void store_q8(std::byte* to, const float* from, std::uint32_t n, std::uint32_t lane) {
  for (std::uint32_t at = 0; at < n; at += kScaledElements) {
    const float x = at + lane < n ? from[at + lane] : 0;
    const bool finite = __all_sync(0xFFFFFFFF, fabsf(x) < INFINITY);
    const float least = __fdiv_rn(largest_of_lanes(fabsf(x)), 127.0f);
    std::uint16_t half = __half_as_ushort(__float2half_rn(least));
    if (__half2float(__ushort_as_half(half)) < least) ++half;
    if (half > 0x7bff) half = 0x7bff;
    if (!finite) half = 0x7e00;
    float number = 0;
    if (finite && half != 0) {
      number = rintf(fminf(fmaxf(__fdiv_rn(x, __half2float(__ushort_as_half(half))), -127.0f), 127.0f));
    }
    if (at + lane < n) to[at + lane] = static_cast<std::byte>(static_cast<std::int8_t>(number));
    if (lane == 0) *reinterpret_cast<std::uint16_t*>(to + scales_offset(n) + at / kScaledElements * 2) = half;
  }
}

__device__ void store(ElementType type, std::byte* to, const float* from, std::uint32_t n, std::uint32_t lane) {
  if (type == ElementType::Q8_0) return store_q8(to, from, n, lane);
  for (std::uint32_t d = lane; d < n; d += 32) {
    if (type == ElementType::F32) {
      reinterpret_cast<float*>(to)[d] = from[d];
    } else if (type == ElementType::F16) {
      reinterpret_cast<__half*>(to)[d] = __float2half_rn(from[d]);
    } else {
      reinterpret_cast<__nv_bfloat16*>(to)[d] = __float2bfloat16_rn(from[d]);
    }
  }
}

// Heads of a row: those of q (if they change), of k, of v (if there is one).
struct Unit {
  std::uint32_t row, head;
  bool is_q, is_v;
};
__device__ Unit unit_of(const StoreCall& call, std::uint32_t q_heads, std::uint32_t unit) {
  const std::uint32_t per_row = q_heads + (call.v.valid() ? 2 : 1) * call.kv_heads;
  const std::uint32_t row = unit / per_row, which = unit % per_row;
  const bool is_q = which < q_heads, is_v = which >= q_heads + call.kv_heads;
  return {row, is_q ? which : is_v ? which - q_heads - call.kv_heads : which - q_heads, is_q, is_v};
}
__device__ float* head_of(const StoreCall& call, const Unit& unit) {
  return row_of(unit.is_q ? call.q : unit.is_v ? call.v : call.k, unit.row) + std::uint64_t{unit.head} * call.head_dim;
}

// Norm, rotation and balance of a head in shared memory, and where it goes.
__device__ void finish_head(const StoreCall& call, const Unit& unit, float* x, std::uint32_t lane) {
  const std::uint32_t dim = call.head_dim;
  if (!unit.is_v) {
    const Tensor& weight = unit.is_q ? call.q_norm : call.k_norm;
    if (weight.valid()) norm(x, row_of(weight, 0), call.epsilon, dim, lane);
    if (call.cosines.valid() && call.cosines.cols != 0) {
      rotate(x + call.rotated_from, row_of(call.cosines, unit.row), row_of(call.sines, unit.row), call.cosines.cols,
             call.neighbours, lane);
    }
    if (call.key_balance.valid()) {
      const std::uint32_t kv_head = unit.is_q ? unit.head / (call.heads / call.kv_heads) : unit.head;
      const float* const factors = row_of(call.key_balance, 0) + std::uint64_t{kv_head} * dim;
      for (std::uint32_t d = lane; d < dim; d += 32) {
        x[d] = unit.is_q ? __fmul_rn(x[d], factors[d]) : __fdiv_rn(x[d], factors[d]);
      }
      __syncwarp();
    }
    if (weight.valid() || call.cosines.valid() || call.key_balance.valid()) {
      float* const at = head_of(call, unit);
      for (std::uint32_t d = lane; d < dim; d += 32) at[d] = x[d];
    }
    if (unit.is_q) return;
  }
  const KvView kv = call.kv.sequence(call.batch.entries[call.batch.row_entry[unit.row]].table, call.layer);
  const std::uint32_t position = call.batch.positions[unit.row];
  store(kv.type, unit.is_v ? kv.v(unit.head, position) : kv.k(unit.head, position), x, dim, lane);
}

// A warp takes kEach heads: their loads overlap.
template <std::uint32_t kEach>
__global__ void __launch_bounds__(kWarps * 32)
    store_heads(const __grid_constant__ StoreCall call, std::uint32_t q_heads, std::uint32_t units) {
  extern __shared__ float heads[];  // [warps][kEach][head_dim]
  wait_for_previous();
  let_next_start();
  const std::uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, dim = call.head_dim;
  const std::uint32_t first = (blockIdx.x * kWarps + warp) * kEach;
  float* const x = heads + warp * kEach * dim;
  for (std::uint32_t d = lane; d < dim; d += 32) {
    float loaded[kEach];
#pragma unroll
    for (std::uint32_t i = 0; i < kEach; ++i) {
      loaded[i] = first + i < units ? head_of(call, unit_of(call, q_heads, first + i))[d] : 0;
    }
#pragma unroll
    for (std::uint32_t i = 0; i < kEach; ++i) x[i * dim + d] = loaded[i];
  }
  __syncwarp();
#pragma unroll
  for (std::uint32_t i = 0; i < kEach; ++i) {
    if (first + i < units) finish_head(call, unit_of(call, q_heads, first + i), x + i * dim, lane);
  }
}

template <std::uint32_t kEach>
void launch_store(cudaStream_t stream, const StoreCall& call, std::uint32_t q_heads, std::uint32_t units) {
  const std::uint32_t bytes = kWarps * kEach * call.head_dim * static_cast<std::uint32_t>(sizeof(float));
  launch(call.overlap, stream, (units + kWarps * kEach - 1) / (kWarps * kEach), kWarps * 32, bytes, store_heads<kEach>,
         call, q_heads, units);
}

}  // namespace

void launch_store_kv(cudaStream_t stream, const StoreCall& call) {
  const bool q_changes =
      call.q_norm.valid() || call.key_balance.valid() || (call.cosines.valid() && call.cosines.cols != 0);
  const std::uint32_t q_heads = q_changes ? call.heads : 0;
  const std::uint32_t units = call.q.rows * (q_heads + (call.v.valid() ? 2 : 1) * call.kv_heads);
  if (units == 0) return;
  // Enough warps for every multiprocessor come first. Large heads have loads enough, and take much shared memory.
  if (units >= 16384 && call.head_dim <= 256) {
    launch_store<4>(stream, call, q_heads, units);
  } else {
    launch_store<1>(stream, call, q_heads, units);
  }
}

bool attention_overlaps() {
  want_shared_memory(store_heads<1>);  // as attention has it
  want_shared_memory(store_heads<4>);
  cudaFuncAttributes attributes{};
  return cudaFuncGetAttributes(&attributes, store_heads<1>) == cudaSuccess && attributes.ptxVersion >= 90;
}

}  // namespace quire::cuda
