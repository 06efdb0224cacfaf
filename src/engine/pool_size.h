// How large a pool has to be for one sequence, and how long a sequence may be in a pool of a given size. Nothing is
// taken to find out.
//
// Who may call: anyone, from any thread; there is no state.
// What holds: a pool made with what bytes_for() says admits such a sequence (SequencePool::can_ever_fit), and one made
//   with `budget` admits what tokens_within() says. No claim to be the smallest: slabs are whole.
#pragma once

#include <cstdint>

#include "quire/base/error.h"
#include "quire/state/layout.h"

namespace quire::engine {

struct SequenceNeeds {
  std::uint32_t tokens = 0;       // of the sequence
  std::uint32_t chunk = 1;        // the most that are written at once
  std::uint32_t checkpoints = 0;  // recurrent states kept besides its own
};

Result<std::uint64_t> bytes_for(const StateLayout& layout, const SequenceNeeds& needs);

// The most tokens, up to needs.tokens; 0 if there is not even room for one.
std::uint32_t tokens_within(const StateLayout& layout, std::uint64_t budget, const SequenceNeeds& needs);

}  // namespace quire::engine
