// A sequence that was suspended: the pages that nobody else held and the recurrent state, in a host arena. Pages that
// other sequences hold stay in the pool, where the prefix index knows them. SequencePool::resume() finds them there
// again. If they were evicted meanwhile, the sequence cannot be resumed and must be recomputed from its tokens.
//
// The tokens stay with the caller; only their checksum is here. Destroying this frees its cells in the arena. There is
// no checksum over the pages: like the pages in the pool, they never leave the process. A copy for a file or for
// another pool is a SavedSequence.
#pragma once

#include <array>
#include <cstdint>

#include "quire/state/host_arena.h"
#include "quire/state/layout.h"
#include "quire/state/saved_sequence.h"

namespace quire {

struct SuspendedSequence {
  Fingerprint model;  // of the pool that it was in
  Hash128 layout;     // of the pool that it was in
  Namespace name_space = 0;
  std::uint32_t length = 0;                               // tokens
  Hash128 tokens;                                         // their checksum
  std::array<std::uint32_t, kMaxClasses> first_blocks{};  // by layer group: blocks before this one have no page
  std::uint64_t bytes = 0;                                // that were copied
  HostArena::List cells;
};

}  // namespace quire
