// Device code that the kernels of products share: weights from memory to the registers of a matrix instruction, the
// instruction itself, and what happens to a finished sum. One source for all kernels, so that bits agree.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "quire/backend/cuda/product_kernels.h"

namespace quire::cuda {

// Weights are read once: they need not stay in the cache.
__device__ inline uint4 load_once(const std::byte* at) { return __ldcs(reinterpret_cast<const uint4*>(at)); }

__device__ inline std::uint32_t bits_of(half2 x) { return *reinterpret_cast<std::uint32_t*>(&x); }
__device__ inline half2 half2_of(std::uint32_t x) { return *reinterpret_cast<half2*>(&x); }
__device__ inline std::uint32_t word_of(const uint4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

// (x & mask) | bits in one instruction; compilers make two of it if both are constants.
__device__ inline std::uint32_t masked_or(std::uint32_t x, std::uint32_t mask, std::uint32_t bits) {
  std::uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(result) : "r"(x), "r"(mask), "r"(bits));
  return result;
}

// The weights of a lane for kSteps steps of a piece, as loaded.
template <Packing kPacking>
struct Fragments {
  static constexpr PackingInfo kInfo = packing_info(kPacking);
  static constexpr bool kHalves = !kInfo.quantised();
  // Halves come in two portions, so that two portions fit in registers.
  static constexpr int kPortions = kHalves ? 2 : 1;  // of a piece
  static constexpr int kPortionSteps = static_cast<int>(kSteps) / kPortions;
  static constexpr std::uint32_t kPortionBytes = kInfo.piece_bytes() / kPortions;
  static constexpr int kLow = kHalves ? 8 : static_cast<int>(kInfo.low_bytes() / 512);
  static constexpr int kHigh = static_cast<int>(kInfo.high_bytes() / 512);
  static constexpr int kScaleBytes = kHalves ? 0 : static_cast<int>(kInfo.lane_scale_bytes());
  static constexpr int kScales = kScaleBytes == 32 ? 2 : kScaleBytes == 0 ? 0 : 1;

  uint4 low[kLow];
  uint4 high[kHigh > 0 ? kHigh : 1];
  uint4 scales[kScales > 0 ? kScales : 1];

  __device__ void load(const std::byte* portion, std::uint32_t lane) {
#pragma unroll
    for (int i = 0; i < kLow; ++i) low[i] = load_once(portion + (i * 32 + lane) * 16);
    if constexpr (kHalves) return;
    const std::byte* at = portion + kInfo.low_bytes();
#pragma unroll
    for (int i = 0; i < kHigh; ++i) high[i] = load_once(at + (i * 32 + lane) * 16);
    at += kInfo.high_bytes();
    if constexpr (kScaleBytes == 8) {
      const uint2 pair = __ldcs(reinterpret_cast<const uint2*>(at + lane * 8));
      scales[0] = {pair.x, pair.y, 0, 0};
    } else {
#pragma unroll
      for (int i = 0; i < kScales; ++i) scales[i] = load_once(at + (i * 32 + lane) * 16);
    }
  }

  // Two numbers of a step as halves, without their scale: rows g (pair 0, 2) or g + 8 (pair 1, 3). An integer in the
  // low bits of the half 1024 is 1024 + q (or 1024 + 16 q), and subtracting is exact.
  __device__ half2 integers(int step, int pair) const {
    constexpr float kOffset = kInfo.offset();
    if constexpr (kInfo.floats) return e2m1(step, pair);
    if constexpr (kInfo.bits == 8) {
      const std::uint32_t word = word_of(low[step / 2], step % 2 * 2 + pair / 2);
      const std::uint32_t bytes = __byte_perm(word, 0x64646464u, pair % 2 == 0 ? 0x4140 : 0x4342);
      return __hsub2(half2_of(bytes), __float2half2_rn(1024 + kOffset));
    } else {
      const int shift = pair % 2 * 4;
      std::uint32_t word = word_of(low[step / 4], step % 4);
      if (pair >= 2) word >>= 8;
      std::uint32_t bits = masked_or(word, 0x000f000fu << shift, 0x64006400u);
      if constexpr (kInfo.bits > 4) {
        const bool six = kInfo.bits == 6;
        const std::uint32_t more = six ? word_of(high[step / 8], step % 8 / 2) : word_of(high[0], step / 4);
        const int from = six ? (step % 2 * 4 + pair) * 2 : step % 4 * 4 + pair, to = shift + 4;
        const std::uint32_t moved = to >= from ? more << (to - from) : more >> (from - to);
        bits = masked_or(moved, (six ? 0x00030003u : 0x00010001u) << to, bits);
      }
      if (shift == 0) return __hsub2(half2_of(bits), __float2half2_rn(1024 + kOffset));
      return __hfma2(half2_of(bits), __float2half2_rn(1.0f / 16), __float2half2_rn(-64 - kOffset));
    }
  }

  // Sign, exponent and mantissa of a 4-bit float in the places of a half's are the number times 2^-14, exactly.
  __device__ half2 e2m1(int step, int pair) const {
    std::uint32_t word = word_of(low[step / 4], step % 4);
    if (pair >= 2) word >>= 8;
    if (pair % 2 != 0) word >>= 4;
    const std::uint32_t bits = (word & 0x00080008u) << 12 | (word & 0x00070007u) << 9;
    return __hmul2_rn(half2_of(bits), __float2half2_rn(16384.0f));
  }

  // What a matrix instruction takes for a step of this portion: the weight as it is for every number of tokens.
  __device__ uint4 step(int step) const {
    if constexpr (kHalves) {
      return low[step];
    } else {
      const int group = 4 * step / static_cast<int>(kInfo.group), at = group * (kInfo.min ? 2 : 1);
      const half2 scale = half2_of(word_of(scales[at / 4], at % 4));
      const half2 of_row[2] = {__low2half2(scale), __high2half2(scale)};
      std::uint32_t out[4];
#pragma unroll
      for (int pair = 0; pair < 4; ++pair) {
        const half2 q = integers(step, pair);
        if constexpr (kInfo.min) {
          const half2 min = half2_of(word_of(scales[(at + 1) / 4], (at + 1) % 4));
          out[pair] = bits_of(__hfma2(q, of_row[pair % 2], pair % 2 == 0 ? __low2half2(min) : __high2half2(min)));
        } else {
          out[pair] = bits_of(__hmul2_rn(q, of_row[pair % 2]));
        }
      }
      return {out[0], out[1], out[2], out[3]};
    }
  }
};

// sums += weights * inputs. Element i of a lane's sums: row g + 8 * (i / 2), token 2 t + i % 2.
template <bool kBf16>
__device__ inline void multiply(float* sums, const uint4& a, uint2 b) {
  if constexpr (kBf16) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b.x), "r"(b.y));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b.x), "r"(b.y));
  }
}

// A finished sum without its powers of two. `inverse` is that of the token's.
__device__ inline float finished(const MatrixArgs& m, std::uint32_t row, float sum, float inverse) {
  return __fmul_rn(__fmul_rn(sum, inverse), m.inverses == nullptr ? 1.0f : m.inverses[row]);
}
// What becomes of a finished sum.
__device__ inline void put(const MatrixArgs& m, std::uint32_t token, std::uint32_t row, float sum, float inverse) {
  float value = finished(m, row, sum, inverse);
  if (m.bias != nullptr) value = __fadd_rn(value, m.bias[row]);
  float* out = m.out + token * m.out_stride + row;
  *out = m.add ? fmaf(value, m.scale, *out) : value;
}

// The same for four neighbouring rows of which at least the first is there. What stood there is read before, so that
// a thread can read several at once.
__device__ inline bool at_once(const MatrixArgs& m, std::uint32_t row, const float* out) {
  return row + 4 <= m.rows && reinterpret_cast<std::uintptr_t>(out) % 16 == 0;
}
__device__ inline float4 old_4(const MatrixArgs& m, std::uint32_t token, std::uint32_t row) {
  const float* out = m.out + token * m.out_stride + row;
  return m.add && at_once(m, row, out) ? *reinterpret_cast<const float4*>(out) : float4{0, 0, 0, 0};
}
__device__ inline void put_4(const MatrixArgs& m, std::uint32_t token, std::uint32_t row, const float (&sums)[4],
                             float inverse, const float4& old) {
  float* out = m.out + token * m.out_stride + row;
  if (!at_once(m, row, out)) {
#pragma unroll
    for (std::uint32_t i = 0; i < 4; ++i) {
      if (row + i < m.rows) put(m, token, row + i, sums[i], inverse);
    }
    return;
  }
  float4 v = {finished(m, row, sums[0], inverse), finished(m, row + 1, sums[1], inverse),
              finished(m, row + 2, sums[2], inverse), finished(m, row + 3, sums[3], inverse)};
  if (m.bias != nullptr) {
    v = {__fadd_rn(v.x, m.bias[row]), __fadd_rn(v.y, m.bias[row + 1]), __fadd_rn(v.z, m.bias[row + 2]),
         __fadd_rn(v.w, m.bias[row + 3])};
  }
  if (m.add) {
    v = {fmaf(v.x, m.scale, old.x), fmaf(v.y, m.scale, old.y), fmaf(v.z, m.scale, old.z), fmaf(v.w, m.scale, old.w)};
  }
  *reinterpret_cast<float4*>(out) = v;
}

}  // namespace quire::cuda
