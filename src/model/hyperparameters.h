// What a model's file says of its shape: the numbers that decide which tensors it has and what it remembers.
//
//   auto numbers = model::read_hyperparameters(*file);
//   if (!numbers) return std::unexpected(numbers.error());
//   auto layout = model::state_layout(*numbers, 16, ElementType::F16);    // state_layout.h
//
// Who may call: anyone, from any thread; there is no state.
// What holds of what read_hyperparameters() returns: there is at least one layer; all counts are within limits far
//   above any real model, so that products of a few of them do not overflow; the query heads of an attention layer are
//   a multiple of its KV heads; the numbers of the part that a model does not have (attention or recurrent) are 0.
//   Memory taken is some 20 bytes a layer, and layers are at most kMaxLayers.
// How it fails: with one line that names the file and the key: a key is missing or of the wrong type, a number is out
//   of range or contradicts another, the architecture is none that Quire knows (the line lists those).
#pragma once

#include <cstdint>
#include <vector>

#include "quire/base/error.h"
#include "quire/gguf/gguf.h"
#include "quire/model/architecture.h"

namespace quire::model {

constexpr std::uint32_t kMaxLayers = 1024;

struct Layer {
  bool recurrent = false;
  std::uint32_t heads = 0;         // query heads; 0 without attention
  std::uint32_t kv_heads = 0;      // 0 without attention
  std::uint32_t window = 0;        // a token sees so many positions, itself included; 0: all before it
  std::uint32_t feed_forward = 0;  // inner width; 0: the layer has none

  bool has(BlockKind kind) const {
    switch (kind) {
      case BlockKind::Attention: return kv_heads > 0;
      case BlockKind::Mamba2: return recurrent;
      case BlockKind::FeedForward: return feed_forward > 0;
    }
    return false;
  }
  friend bool operator==(const Layer&, const Layer&) = default;
};

// Mamba-2: x, z of `inner` channels; B, C of `groups` x `state`; a step size for each head.
struct RecurrentShape {
  std::uint32_t conv_kernel = 0;
  std::uint32_t inner = 0;   // heads x head size
  std::uint32_t state = 0;   // of each channel
  std::uint32_t groups = 0;  // of B and C
  std::uint32_t heads = 0;   // "time step rank" in the metadata

  std::uint64_t conv_channels() const { return inner + 2 * std::uint64_t{groups} * state; }  // x, B, C
  std::uint64_t projection() const { return inner + conv_channels() + heads; }               // z, x, B, C, dt

  friend bool operator==(const RecurrentShape&, const RecurrentShape&) = default;
};

struct Hyperparameters {
  const Architecture* architecture = nullptr;
  std::uint32_t context_length = 0;  // tokens the model was trained for
  std::uint32_t embedding = 0;       // width of the residual stream
  std::uint32_t vocabulary = 0;      // rows of the embedding
  std::uint32_t key_length = 0;      // of a head; 0 without attention
  std::uint32_t value_length = 0;
  RecurrentShape recurrent;        // zeros without recurrent layers
  std::uint32_t experts = 0;       // 0: the feed-forward part is one for all tokens
  std::uint32_t experts_used = 0;  // for each token
  std::vector<Layer> layers;

  std::uint32_t count(BlockKind kind) const;  // layers that have such a block
};

// `row`: of an architecture that is not in the table, for tests.
Result<Hyperparameters> read_hyperparameters(const gguf::File& file, const Architecture* row = nullptr);

}  // namespace quire::model
