// Outlier channels: a few channels whose values are a hundred times larger than those of the others, as trained models
// have them. Types with one scale for many values (a KV cache in 8 bits, quantised activations) are tested with them.
//
//   keys        the same channels in all heads of a layer, in pairs that the rotary embedding rotates together. Queries
//               are a hundred times smaller there, so attention scores are about what they would be without.
//   gate * up   rows of the feed-forward block's up projection
//
// Who may call: anyone, from any thread; there is no state.
// What holds: the channels depend on the shape and the layer only, not on the seed.
#pragma once

#include <cstdint>
#include <vector>

#include "quire/bench/synth/synth.h"

namespace quire::synth {

inline constexpr float kOutlierFactor = 100;

// shape.outliers channels of a head, sorted. The shape is one that check_shape() allows.
std::vector<std::uint32_t> key_outliers(const Shape& shape, std::uint32_t layer);
// shape.outliers channels of the feed-forward block, sorted.
std::vector<std::uint32_t> feed_forward_outliers(const Shape& shape, std::uint32_t layer);

}  // namespace quire::synth
