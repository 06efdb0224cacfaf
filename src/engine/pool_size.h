// How large a pool has to be, and how long a sequence may be in a pool of a given size. These functions only calculate;
// they allocate no pool.
//
// Who may call: anyone, from any thread; there is no state.
// What holds: a pool of bytes_for() bytes admits such a sequence (SequencePool::can_ever_fit). A pool of `budget` bytes
//   admits a sequence of tokens_within() tokens. The sizes are not always the smallest possible, because slabs are
//   whole.
#pragma once

#include <cstdint>

#include "quire/base/error.h"
#include "quire/state/device.h"
#include "quire/state/layout.h"

namespace quire::engine {

struct SequenceNeeds {
  std::uint32_t tokens = 0;       // of the sequence
  std::uint32_t chunk = 1;        // the most tokens of it in one step
  std::uint32_t checkpoints = 0;  // recurrent states kept beside its own
};

Result<std::uint64_t> bytes_for(const StateLayout& layout, const SequenceNeeds& needs);

// The most tokens that fit, up to needs.tokens; 0 if not even one fits.
std::uint32_t tokens_within(const StateLayout& layout, std::uint64_t budget, const SequenceNeeds& needs);

// The size that the caller asks for, and the size that was chosen.
struct PoolWish {
  std::uint32_t context = 0;  // tokens of one sequence; 0: the model's, or as many as the memory holds
  // Bytes; 0: room for the sequences below, but at most half of the free memory. Of a device's own memory nearly all
  // that is free is taken, as far as the sequences below, all of the whole context and twice over, could use it.
  std::uint64_t memory = 0;
  DeviceMemory device;               // memory of the pool's device
  bool own_memory = false;           // that memory is the device's alone (Device::has_own_memory)
  std::uint32_t contexts = 1;        // sequences of the whole context
  std::uint32_t more_sequences = 0;  // further sequences; only their recurrent state is counted
};
struct PoolSize {
  std::uint32_t context = 0;
  std::uint64_t bytes = 0;
};
// Checkpoints are a cache: a size that the program chooses has room for needs.checkpoints beside each sequence of the
// whole context, but no size is refused because they do not fit.
// Fills in the values that the wish leaves 0. Fails with one line if the values contradict each other or do not fit.
// `trained` is the model's context. needs.tokens is ignored: it is chosen here.
Result<PoolSize> choose_pool_size(const StateLayout& layout, std::uint32_t trained, const PoolWish& wish,
                                  SequenceNeeds needs);

}  // namespace quire::engine
