// A part of a text.
//
// Who may call: anyone; it is two numbers.
#pragma once

#include <cstddef>

namespace quire {

// The bytes of a text from `begin` up to `end`, which is not one of them.
struct TextRange {
  std::size_t begin = 0;
  std::size_t end = 0;

  bool operator==(const TextRange&) const = default;
};

}  // namespace quire
