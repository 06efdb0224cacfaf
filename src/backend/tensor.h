// A matrix on a device, as kernels see it: a plain view. C++20 only, so that CUDA code can include it.
//
// The pointer is a device pointer. Only the backend that owns the memory may dereference it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quire/state/views.h"

namespace quire {

// Rows of `cols` elements, `stride` elements apart. Activations have a row per token; a vector is one row.
struct Tensor {
  std::byte* data = nullptr;
  std::uint32_t rows = 0;
  std::uint32_t cols = 0;
  std::uint64_t stride = 0;
  ElementType type = ElementType::F32;

  constexpr bool valid() const { return data != nullptr; }
  friend constexpr bool operator==(const Tensor&, const Tensor&) = default;
  constexpr Tensor columns(std::uint32_t first, std::uint32_t count) const {
    return {data + std::uint64_t{first} * element_bytes(type), rows, count, stride, type};
  }
  constexpr Tensor row_range(std::uint32_t first, std::uint32_t count) const {
    return {data + first * stride * element_bytes(type), count, cols, stride, type};
  }
};

}  // namespace quire
