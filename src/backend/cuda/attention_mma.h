// Matrix instructions and copies for the fast attention kernels.
#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "quire/state/views.h"

namespace quire::cuda {

using Words4 = std::uint32_t[4];

__device__ inline std::uint32_t shared_address(const void* p) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
}

// Four 8 x 8 matrices of halves. Lane i gives the address of row i % 8 of matrix i / 8.
__device__ inline void load_matrices(Words4& to, const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(row))
               : "memory");
}
__device__ inline void load_transposed(Words4& to, const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(row))
               : "memory");
}

// sums[16 x 8] += a[16 x 16] * b[16 x 8]
struct F16Math {
  static constexpr int kTerms = 1;  // halves that a query or a weight is the sum of
  static constexpr std::uint32_t kOnes = 0x3C003C00;
  // The highest bit of each of two halves that is a NaN or an infinity.
  __device__ static std::uint32_t nonfinite(std::uint32_t pair) {
    return ((pair & 0x7C007C00u) + 0x04000400u) & 0x80008000u;
  }
  __device__ static float value(std::uint16_t bits) { return __half2float(__ushort_as_half(bits)); }
  __device__ static void multiply(float (&sums)[4], const Words4& a, std::uint32_t b0, std::uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
  __device__ static void round(float x, std::uint16_t (&to)[kTerms]) { to[0] = __half_as_ushort(__float2half_rn(x)); }
  __device__ static void round(float x, float y, std::uint32_t (&to)[kTerms]) {
    const __half2 both = __floats2half2_rn(x, y);
    to[0] = *reinterpret_cast<const std::uint32_t*>(&both);
  }
};
struct BF16Math {
  static constexpr int kTerms = 2;
  static constexpr std::uint32_t kOnes = 0x3F803F80;
  __device__ static std::uint32_t nonfinite(std::uint32_t pair) {
    return ((pair & 0x7F807F80u) + 0x00800080u) & 0x80008000u;
  }
  __device__ static float value(std::uint16_t bits) { return __bfloat162float(__ushort_as_bfloat16(bits)); }
  __device__ static void multiply(float (&sums)[4], const Words4& a, std::uint32_t b0, std::uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
  __device__ static void round(float x, std::uint16_t (&to)[kTerms]) {
    const __nv_bfloat16 high = __float2bfloat16_rn(x);
    to[0] = __bfloat16_as_ushort(high);
    to[1] = __bfloat16_as_ushort(__float2bfloat16_rn(__fsub_rn(x, __bfloat162float(high))));
  }
  __device__ static void round(float x, float y, std::uint32_t (&to)[kTerms]) {
    std::uint16_t first[kTerms], second[kTerms];
    round(x, first);
    round(y, second);
    for (int i = 0; i < kTerms; ++i) to[i] = first[i] | static_cast<std::uint32_t>(second[i]) << 16;
  }
};

// Copies that go on in the background. Nothing is read unless `valid`; the destination becomes zero then.
template <int kBytes>
__device__ inline void copy_async(void* to, const void* from, bool valid) {
  const int bytes = valid ? kBytes : 0;
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(bytes)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared_address(to)), "l"(from), "n"(kBytes),
                 "r"(bytes)
                 : "memory");
  }
}
__device__ inline void end_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kLeft>
__device__ inline void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

// Eight numbers of 8 bits times their scale, as halves. Beyond the largest half they become that; a NaN stays one.
__device__ inline uint4 scaled_halves(uint2 numbers, std::uint16_t scale) {
  const __half2 factor = __half2half2(__ushort_as_half(scale));
  const __half2 bias = __half2half2(__ushort_as_half(0x6480));  // 1152
  const __half2 most = __half2half2(__ushort_as_half(0x7bff)), least = __half2half2(__ushort_as_half(0xfbff));
  uint4 result;
  std::uint32_t* const words = &result.x;
  const std::uint32_t bytes[2] = {numbers.x ^ 0x80808080u, numbers.y ^ 0x80808080u};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    // A half of 0x6400 + n is 1024 + n, exactly.
    const std::uint32_t pair = __byte_perm(bytes[i / 2], 0x64646464u, i % 2 == 0 ? 0x4140 : 0x4342);
    const __half2 number = __hsub2(*reinterpret_cast<const __half2*>(&pair), bias);
    const __half2 value = __hmin2_nan(__hmax2_nan(__hmul2(number, factor), least), most);
    words[i] = *reinterpret_cast<const std::uint32_t*>(&value);
  }
  return result;
}

}  // namespace quire::cuda
