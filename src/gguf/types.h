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
#include "quire/gguf/type.h"

namespace quire::gguf {

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
