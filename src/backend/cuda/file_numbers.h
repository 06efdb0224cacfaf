// What file_elements.h and file_grids.h share: numbers in a block, and arithmetic that is not fused. C++20, for CUDA
// code.
#pragma once

#include <cstdint>
#include <cstring>

#include "quire/gguf/half.h"
#include "quire/gguf/type.h"

#if defined(__CUDACC__)
#define QUIRE_HOST_DEVICE __host__ __device__
#else
#define QUIRE_HOST_DEVICE
#endif

namespace quire::cuda {

using Block = const std::uint8_t*;

QUIRE_HOST_DEVICE inline std::uint16_t u16_at(Block at) {
  std::uint16_t bits;
  std::memcpy(&bits, __builtin_assume_aligned(at, 2), sizeof bits);
  return bits;
}
QUIRE_HOST_DEVICE inline float f16_at(Block at) { return gguf::f16_to_f32(u16_at(at)); }

// One rounding each. The compiler must not fuse them.
QUIRE_HOST_DEVICE inline float times(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}
QUIRE_HOST_DEVICE inline float plus(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fadd_rn(a, b);
#else
  return a + b;
#endif
}
QUIRE_HOST_DEVICE inline float times(float a, int b) { return times(a, static_cast<float>(b)); }

// Elements<type>: the size of a block in elements and bytes, and element i of a block.
template <gguf::Type>
struct Elements;

}  // namespace quire::cuda
