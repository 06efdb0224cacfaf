// A model's tensors, bound: each found by name, its type checked, its bytes left where the file has them. A layer is
// what it is made of, a mixer and perhaps a feed-forward part, so that an architecture needs no struct of its own.
//
// Who may call: load_weights() with a file that check_tensors() (tensors.h) let pass and keys as long as values; the
//   result does not change and may be read by any thread.
// What holds: views into the file's mapping, valid as long as the gguf::File; small vectors that are not f32 in the
//   file are kept as f32 here.
// How it fails: with one line that names the file and the tensor: it is of a type that Quire cannot compute with, or
// the
//   file has no tensors at all.
#pragma once

#include <deque>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "quire/backend/backend.h"
#include "quire/base/error.h"
#include "quire/gguf/gguf.h"
#include "quire/model/hyperparameters.h"

namespace quire::model {

using Vector = std::span<const float>;  // empty: the model has none

struct AttentionWeights {
  Weight q, k, v;  // [heads * head_dim][embedding], and so on
  Weight out;      // [embedding][heads * head_dim]
  Vector q_bias, k_bias, v_bias, out_bias;
  Vector q_norm, k_norm;  // [head_dim], applied head by head
};

struct Mamba2Weights {
  Weight in;               // [inner | conv channels | heads][embedding]: gate, what is convolved, step sizes
  Weight out;              // [embedding][inner]
  Vector conv, conv_bias;  // [kernel][channels], turned from the file's; [channels]
  Vector dt_bias, a, d;    // [heads]
  Vector norm;             // [inner]
};

struct FeedForwardWeights {
  Vector norm;       // [embedding]
  Weight gate, up;   // [width][embedding]
  Weight down;       // [embedding][width]
  Vector post_norm;  // [embedding]
};

struct LayerWeights {
  Vector norm;  // [embedding]
  std::variant<AttentionWeights, Mamba2Weights> mixer;
  Vector post_norm;  // [embedding]
  std::optional<FeedForwardWeights> feed_forward;
};

struct Weights {
  Weight embedding;  // [vocabulary][embedding]
  Vector norm;       // [embedding]
  Weight output;     // [vocabulary][embedding]; the embedding again where the file has no other
  std::vector<LayerWeights> layers;
  std::deque<std::vector<float>> converted;  // what is not f32 or in this order in the file; elements do not move
};

Result<Weights> load_weights(const gguf::File& file, const Hyperparameters& model);

}  // namespace quire::model
