// For the reference dequantizers: how the bytes of a block are read.
#pragma once

#include <cstdint>
#include <cstring>

#include "quire/gguf/half.h"
#include "quire/gguf/type.h"

namespace quire::gguf {

using Bytes = const std::uint8_t*;
// Writes the elements of one block.
using BlockFunction = void (*)(Bytes in, float* out);

inline std::uint16_t u16_at(Bytes at) {
  std::uint16_t value;
  std::memcpy(&value, at, sizeof value);
  return value;
}
inline std::uint32_t u32_at(Bytes at) {
  std::uint32_t value;
  std::memcpy(&value, at, sizeof value);
  return value;
}
inline float f16_at(Bytes at) { return f16_to_f32(u16_at(at)); }

// The types with grids, and those with three values (dequantize_grids.cpp). Null for any other.
BlockFunction grid_block_function(Type type);

}  // namespace quire::gguf
