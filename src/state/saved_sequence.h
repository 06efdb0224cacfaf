// What a sequence remembers, outside the pool: a copy of its pages and its state in plain host memory, from which the
// pool makes the sequence again. An engine keeps these for sequences that have to wait for room.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "quire/state/ids.h"

namespace quire {

struct SavedSequence {
  Namespace name_space = 0;
  std::vector<Token> tokens;
  std::vector<std::uint32_t> first_blocks;  // by layer group: blocks before this one had been given back
  std::uint64_t bytes = 0;
  // Group by group the pages from the first block to the last, then the recurrent state; each as it lies in the arena.
  std::unique_ptr<std::byte[]> data;
};

}  // namespace quire
