// The tensor types of GGUF files, as a table. Each type that Quire computes with has a plain reference that dequantizes
// its blocks. Faster code elsewhere is tested against this reference, and the reference is tested against
// testdata/quant.
//
// Who may call: anyone, from any thread; there is no state.
// What holds: a tensor's row is a whole number of blocks; a block is `block_bytes` bytes for `block_size` elements. The
//   floats are the same bits on every machine: float32 operations in one fixed order, never fused.
// How it fails: find_type() returns null for an unknown id or name. dequantize() refuses sizes that do not match and
//   types without a reference, and then writes nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "quire/base/error.h"

namespace quire::gguf {

// The values are those in the files.
enum class Type : std::uint32_t {
  F32 = 0,
  F16 = 1,
  Q4_0 = 2,
  Q4_1 = 3,
  Q5_0 = 6,
  Q5_1 = 7,
  Q8_0 = 8,
  Q8_1 = 9,
  Q2_K = 10,
  Q3_K = 11,
  Q4_K = 12,
  Q5_K = 13,
  Q6_K = 14,
  Q8_K = 15,
  IQ2_XXS = 16,
  IQ2_XS = 17,
  IQ3_XXS = 18,
  IQ1_S = 19,
  IQ4_NL = 20,
  IQ3_S = 21,
  IQ2_S = 22,
  IQ4_XS = 23,
  I8 = 24,
  I16 = 25,
  I32 = 26,
  I64 = 27,
  F64 = 28,
  IQ1_M = 29,
  BF16 = 30,
  TQ1_0 = 34,
  TQ2_0 = 35,
  MXFP4 = 39,
  NVFP4 = 40,
};

struct TypeInfo {
  Type type;
  std::string_view name;      // as in the enum
  std::uint32_t block_size;   // elements in a block; 0: known by name only, and not readable
  std::uint32_t block_bytes;  // bytes of a block
  bool dequantizable;         // dequantize() has a reference for it
};

// The type with this id in a file; null for an id that no version of the format has used.
const TypeInfo* find_type(std::uint32_t id);
// The same by name ("Q8_0", exactly).
const TypeInfo* find_type(std::string_view name);
// The row of a type in the table.
const TypeInfo& type_info(Type type);
// For messages and tables.
std::string_view type_name(Type type);

// Bytes of `elements` elements; empty if they are not a whole number of blocks or the number overflows.
std::optional<std::uint64_t> byte_size(Type type, std::uint64_t elements);

// Dequantizes whole blocks. `blocks` needs no alignment. `out` must have exactly as many elements as the blocks.
Result<void> dequantize(Type type, std::span<const std::byte> blocks, std::span<float> out);

}  // namespace quire::gguf
