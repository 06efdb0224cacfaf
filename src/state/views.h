// What kernels see: plain structs of pointers and strides, passed by value. This header is C++20 and includes no other
// header of the project, so that CUDA code can include it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace quire {

// Q8_0 exists for rows of keys and values only: a row has its 8-bit numbers first, then an f16 scale for every 32 of
// them. An element is its number times its scale.
enum class ElementType : std::uint8_t { F32, F16, BF16, I8, Q8_0 };

constexpr const char* name(ElementType type) {
  switch (type) {
    case ElementType::F32: return "f32";
    case ElementType::F16: return "f16";
    case ElementType::BF16: return "bf16";
    case ElementType::I8: return "i8";
    case ElementType::Q8_0: return "q8_0";
  }
  return "?";
}

// Of one element; 0 for Q8_0, whose elements share scales.
constexpr std::uint32_t element_bytes(ElementType type) {
  switch (type) {
    case ElementType::F32: return 4;
    case ElementType::F16:
    case ElementType::BF16: return 2;
    case ElementType::I8: return 1;
    case ElementType::Q8_0: return 0;
  }
  return 0;
}

inline constexpr std::uint32_t kScaledElements = 32;   // elements of a Q8_0 row that share a scale
inline constexpr std::uint32_t kMostScaledRow = 1024;  // elements of a Q8_0 row

// Where the scales of a Q8_0 row begin: behind its numbers, at an even place.
constexpr std::uint64_t scales_offset(std::uint32_t elements) { return (std::uint64_t{elements} + 1) / 2 * 2; }

// Of a row of `elements` elements: the keys, or the values, of one token and head.
constexpr std::uint64_t row_bytes(ElementType type, std::uint32_t elements) {
  if (type != ElementType::Q8_0) return std::uint64_t{elements} * element_bytes(type);
  return scales_offset(elements) + (std::uint64_t{elements} + kScaledElements - 1) / kScaledElements * 2;
}

// K and V of one layer and one sequence, in either layout.
//   paged:      position p of head h is at  base + table[p / block_size] * page_unit + k_offset + h * head_stride
//                                           + (p % block_size) * token_stride
//   contiguous: block_size is 0 and table null; it is at  base + k_offset + h * head_stride + p * token_stride
// In both, the head_dim elements of a position are contiguous, and so are neighbouring positions of a page.
// Where the value is a part of the key (latent attention), v_offset is k_offset.
struct KvView {
  std::byte* base = nullptr;
  const std::uint32_t* table = nullptr;  // on the device: where each block's page is, in units of page_unit
  std::uint64_t page_unit = 0;           // bytes
  std::uint64_t k_offset = 0;            // bytes, within a page
  std::uint64_t v_offset = 0;
  std::uint64_t head_stride = 0;   // bytes
  std::uint64_t token_stride = 0;  // bytes
  std::uint32_t block_size = 0;
  std::uint32_t num_kv_heads = 0;
  std::uint32_t head_dim = 0;
  ElementType type = ElementType::F32;
  std::uint32_t first = 0;     // positions before this one were given back (sliding windows)
  std::uint32_t length = 0;    // positions written
  std::uint32_t capacity = 0;  // positions that may be written

  constexpr std::byte* k(std::uint32_t head, std::uint32_t position) const { return at(k_offset, head, position); }
  constexpr std::byte* v(std::uint32_t head, std::uint32_t position) const { return at(v_offset, head, position); }

 private:
  constexpr std::byte* at(std::uint64_t plane, std::uint32_t head, std::uint32_t position) const {
    std::uint64_t offset = plane + head * head_stride;
    if (block_size == 0) {
      offset += position * token_stride;
    } else {
      offset += table[position / block_size] * page_unit + (position % block_size) * token_stride;
    }
    return base + offset;
  }
};

// K and V of all layers of one group, for every sequence of a pool. A contiguous cache is the case of one block per
// sequence that is as large as its capacity.
struct KvGroupView {
  std::byte* base = nullptr;
  const std::uint32_t* tables = nullptr;  // on the device: [sequences][table_stride]
  std::uint32_t table_stride = 0;         // blocks
  std::uint32_t block_size = 0;
  std::uint32_t num_kv_heads = 0;
  std::uint32_t head_dim = 0;
  ElementType type = ElementType::F32;
  std::uint64_t page_unit = 0;     // bytes
  std::uint64_t layer_stride = 0;  // bytes, within a page
  std::uint64_t v_offset = 0;      // bytes, within a layer; keys are at 0, and so are values that are a part of them
  std::uint64_t head_stride = 0;   // bytes
  std::uint64_t token_stride = 0;  // bytes

  friend constexpr bool operator==(const KvGroupView&, const KvGroupView&) = default;
  constexpr const std::uint32_t* table(std::uint32_t row) const { return tables + std::uint64_t{row} * table_stride; }
  // One layer of one sequence. Length and capacity are not set here: the batch has them.
  constexpr KvView sequence(std::uint32_t row, std::uint32_t layer) const {
    KvView view;
    view.base = base;
    view.table = table(row);
    view.page_unit = page_unit;
    view.k_offset = layer * layer_stride;
    view.v_offset = view.k_offset + v_offset;
    view.head_stride = head_stride;
    view.token_stride = token_stride;
    view.block_size = block_size;
    view.num_kv_heads = num_kv_heads;
    view.head_dim = head_dim;
    view.type = type;
    return view;
  }
};

// The recurrent state of one sequence.
struct StateView {
  std::byte* base = nullptr;
  std::uint64_t layer_stride = 0;  // bytes
  std::uint64_t ssm_offset = 0;    // bytes, within a layer; the convolution state is at 0
  std::uint32_t num_layers = 0;
  std::uint32_t position = 0;
  ElementType type = ElementType::F32;  // of the SSM state; the convolution state is always f32

  constexpr std::byte* conv(std::uint32_t layer) const { return base + layer * layer_stride; }
  constexpr std::byte* ssm(std::uint32_t layer) const { return base + layer * layer_stride + ssm_offset; }
};

// The recurrent states of every sequence of a pool.
struct StatesView {
  std::byte* base = nullptr;
  std::uint64_t unit = 0;          // bytes
  std::uint64_t layer_stride = 0;  // bytes
  std::uint64_t ssm_offset = 0;    // bytes, within a layer
  std::uint32_t num_layers = 0;
  ElementType type = ElementType::F32;  // of the SSM state

  friend constexpr bool operator==(const StatesView&, const StatesView&) = default;
  constexpr StateView at(std::uint32_t place) const {
    return {base + place * unit, layer_stride, ssm_offset, num_layers, 0, type};
  }
};

}  // namespace quire
