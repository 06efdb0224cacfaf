// A part of a text: two numbers. Anyone may use it.
#pragma once

#include <cstddef>

namespace quire {

// The bytes from `begin` up to, but not including, `end`.
struct TextRange {
  std::size_t begin = 0;
  std::size_t end = 0;

  bool operator==(const TextRange&) const = default;
};

}  // namespace quire
