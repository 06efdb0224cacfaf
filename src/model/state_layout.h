// The state of a model, described for the state library: its layers as shapes in bytes, and the cost of a sequence.
//
// Who may call: anyone, from any thread; there is no state.
// What holds: K and V have the requested type, and so have recurrent states, f32 unless another one is asked for: their
//   errors add up from token to token. The convolution states, which are small, are always f32.
// How it fails: with one line, if the state library cannot keep such layers (keys and values of different lengths,
//   pages of absurd sizes) or a number does not fit in 64 bits.
#pragma once

#include <cstdint>

#include "quire/base/error.h"
#include "quire/model/hyperparameters.h"
#include "quire/state/layout.h"

namespace quire::model {

// Recurrent states are kept at multiples of so many tokens, whatever the block size (PoolConfig::checkpoint_unit).
constexpr std::uint32_t kDefaultCheckpointUnit = 16;
// Blocks that are not a whole number of units have checkpoints only at their ends.
constexpr std::uint32_t checkpoint_unit_for(std::uint32_t block_size, std::uint32_t unit = kDefaultCheckpointUnit) {
  return unit != 0 && block_size % unit == 0 ? unit : block_size;
}

// The layers of the layout are the blocks of the model that have state, in their order.
Result<StateLayout> state_layout(const Hyperparameters& model, std::uint32_t block_size = kDefaultBlockSize,
                                 ElementType kv_type = ElementType::F16, ElementType state_type = ElementType::F32);

// What one sequence takes in the pool.
struct StateCost {
  std::uint64_t bytes_per_token = 0;         // in layers with full attention: grows with the sequence
  std::uint64_t window_bytes_per_token = 0;  // in layers with a window: grows up to the window
  std::uint64_t fixed_bytes = 0;             // recurrent states: independent of the length
  std::uint64_t total_bytes = 0;             // at most, for a sequence of the given length, in whole pages
  std::uint64_t unfilled_bytes = 0;          // at most, at the end of its last page; half of it on average
};

Result<StateCost> state_cost(const StateLayout& layout, std::uint32_t length);

}  // namespace quire::model
