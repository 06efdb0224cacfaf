// Factors for the channels of a layer's keys, for keys that are stored in 8 bits.
//
// Keys in 8 bits have one scale for 32 channels of a head. A channel that is a hundred times larger than the others
// takes all of the precision. But a score does not change if a channel of the key is divided by a factor and the same
// channel of the query is multiplied by it. With factors that follow the size of the channels, all channels of the
// stored keys are about equally large and equally precise.
//
// How large a channel is follows from the weights. A normed input has elements of about 1, so the expected square of
// channel d of a key, before the norm of its head, is
//   sum over j of (projection[d][j] * input_norm[j])^2, plus bias[d]^2
//
// Who may call: anyone, from any thread; there is no state.
// What holds: factors are powers of two, so multiplying and dividing by them rounds nothing. The channels of a rotary
//   pair have the same factor, so it does not matter whether the factor or the rotation comes first. A channel of usual
//   size (the median of its head) has the factor 1.
// How it fails: with the message of gguf::dequantize().
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "quire/backend/backend.h"
#include "quire/base/error.h"

namespace quire::model {

// What the keys of a layer are computed from. A span that is empty is left out.
struct KeyWeights {
  FileMatrix projection;              // [kv_heads * head_dim][width]
  std::span<const float> input_norm;  // [width]
  std::span<const float> bias;        // [kv_heads * head_dim]
  std::span<const float> head_norm;   // [head_dim], or [kv_heads * head_dim]
};

struct KeyChannels {
  std::uint32_t head_dim = 0;
  std::uint32_t rotary_pairs = 0;  // the first 2 * rotary_pairs channels of every head are rotated
  RopePairs order = RopePairs::Neighbours;
};

// The factors: [kv_heads * head_dim]. Keys are divided by them and queries multiplied.
Result<std::vector<float>> key_balance(const KeyWeights& weights, const KeyChannels& channels);

}  // namespace quire::model
