// How large a pool has to be, and how long a sequence may be in a pool of a given size. Nothing is taken to find out.
//
// Who may call: anyone, from any thread; there is no state.
// What holds: a pool made with what bytes_for() says admits such a sequence (SequencePool::can_ever_fit), and one made
//   with `budget` admits what tokens_within() says. No claim to be the smallest: slabs are whole.
#pragma once

#include <cstdint>

#include "quire/base/error.h"
#include "quire/state/device.h"
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

// The size of a pool as somebody wants it, and as it is to be.
struct PoolWish {
  std::uint32_t context = 0;         // tokens of one sequence; 0: the model's, or as many as the memory holds
  std::uint64_t memory = 0;          // bytes; 0: room for the sequences below, but at most half of what is free
  DeviceMemory device;               // that the pool is to be on
  std::uint32_t contexts = 1;        // sequences of the whole context
  std::uint32_t more_sequences = 0;  // others, of which only the recurrent state is counted
};
struct PoolSize {
  std::uint32_t context = 0;
  std::uint64_t bytes = 0;
};
// Decides what was left open, and refuses with one line what does not go together. `trained` is the model's context; of
// the needs the tokens are decided here.
Result<PoolSize> choose_pool_size(const StateLayout& layout, std::uint32_t trained, const PoolWish& wish,
                                  SequenceNeeds needs);

}  // namespace quire::engine
