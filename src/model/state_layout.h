// What a model remembers, told to the state library: the layers as shapes of bytes, and what a sequence costs.
//
// Who may call: anyone, from any thread; there is no state.
// What holds: K and V are of the type asked for; recurrent states are f32 always, since their errors would add up from
//   token to token.
// How it fails: with one line, where the state library cannot keep such layers (keys and values of different lengths,
//   pages of absurd sizes) or a number does not fit 64 bits.
#pragma once

#include <cstdint>

#include "quire/base/error.h"
#include "quire/model/hyperparameters.h"
#include "quire/state/layout.h"

namespace quire::model {

constexpr std::uint32_t kDefaultBlockSize = 16;

// The places of the layout are those of the model's blocks that remember something, in their order.
Result<StateLayout> state_layout(const Hyperparameters& model, std::uint32_t block_size = kDefaultBlockSize,
                                 ElementType kv_type = ElementType::F16);

// What one sequence takes of the pool.
struct StateCost {
  std::uint64_t bytes_per_token = 0;         // in layers that look at everything: for as long as the sequence is
  std::uint64_t window_bytes_per_token = 0;  // in layers with a window: for as long as the window is
  std::uint64_t fixed_bytes = 0;             // recurrent states: whatever the length
  std::uint64_t total_bytes = 0;             // of a sequence of the given length, in whole pages, at most
};

Result<StateCost> state_cost(const StateLayout& layout, std::uint32_t length);

}  // namespace quire::model
