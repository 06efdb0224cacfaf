// The hyperparameters of a model, from its file: the sizes that decide which tensors and which state it has.
//
//   auto hyperparameters = model::read_hyperparameters(*file);
//   if (!hyperparameters) return std::unexpected(hyperparameters.error());
//   auto layout = model::state_layout(*hyperparameters, 16, ElementType::F16);    // state_layout.h
//
// Who may call: anyone, from any thread; there is no state.
// What holds after read_hyperparameters():
// - There is at least one layer, and at most kMaxLayers. They take some 20 bytes of memory each.
// - All counts are within limits far above any real model, so that products of a few of them do not overflow.
// - The query heads of an attention layer are a multiple of its KV heads.
// - Where a model has no attention, the fields for attention are 0. The same holds for recurrent layers.
// How it fails: with one line that names the file and the key. A key is missing or of the wrong type, a number is out
//   of range or contradicts another, or Quire does not know the architecture (the line lists those it knows).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "quire/base/error.h"
#include "quire/gguf/gguf.h"
#include "quire/model/architecture.h"

namespace quire::model {

constexpr std::uint32_t kMaxLayers = 1024;

struct Layer {
  bool recurrent = false;
  bool latent = false;             // its attention keeps one row per token for all heads
  bool unrotated = false;          // attention without rotary embeddings
  std::uint32_t heads = 0;         // query heads; 0 without attention
  std::uint32_t kv_heads = 0;      // 0 without attention
  std::uint32_t window = 0;        // positions that a token sees, itself included; 0: all before it
  std::uint32_t feed_forward = 0;  // inner width, with experts of one of them; 0: the layer has none
  bool experts = false;            // the feed-forward block is a mixture of experts

  bool has(BlockKind kind) const {
    switch (kind) {
      case BlockKind::Attention: return kv_heads > 0 && !latent;
      case BlockKind::LatentAttention: return kv_heads > 0 && latent;
      case BlockKind::Mamba1:
      case BlockKind::Mamba2:
      case BlockKind::ShortConv:
      case BlockKind::DeltaRule: return recurrent;
      case BlockKind::FeedForward: return feed_forward > 0;
    }
    return false;
  }
  friend bool operator==(const Layer&, const Layer&) = default;
};

// Latent attention (DeepSeek): the keys and values of all heads are computed from one vector per token, of kv_rank
// elements. The pool keeps that vector, normed, and behind it the part of the key that is rotated.
struct LatentShape {
  std::uint32_t q_rank = 0;   // queries are computed from a vector of so many elements; 0: from the input itself
  std::uint32_t kv_rank = 0;  // 0: the model has no latent attention
  std::uint32_t plain = 0;    // elements of a head's key that are not rotated
  std::uint32_t rotated = 0;  // elements that are, the same for all heads
  std::uint32_t value = 0;    // elements of a head's value

  std::uint32_t row() const { return kv_rank + rotated; }  // what the pool keeps for a token
  std::uint32_t query() const { return plain + rotated; }

  friend bool operator==(const LatentShape&, const LatentShape&) = default;
};

// The shape of recurrent layers. What a kind does not have is 0.
//   Mamba-1      `inner` channels, each with a state of its own; B and C are the same for all
//   Mamba-2      x and z have `inner` channels, B and C have `groups` x `state`, and each head has a step size
//   short conv   `inner` channels, and no state but the convolution's
//   delta rule   values have `inner` channels in `heads` heads, queries and keys `groups` heads of `state` elements
struct RecurrentShape {
  std::uint32_t conv_kernel = 0;
  std::uint32_t inner = 0;        // heads x head size
  std::uint32_t state = 0;        // of each channel
  std::uint32_t groups = 0;       // of B and C; heads of queries and keys
  std::uint32_t heads = 0;        // "time step rank" in the metadata
  std::uint32_t rank = 0;         // of Mamba-1's step sizes; "time step rank" too
  bool plain_step_norms = false;  // Mamba-1: step, B and C are normed, without weights

  std::uint64_t conv_channels() const { return inner + 2 * std::uint64_t{groups} * state; }  // x, B, C; q, k, v
  std::uint64_t projection() const { return inner + conv_channels() + heads; }               // z, x, B, C, dt

  friend bool operator==(const RecurrentShape&, const RecurrentShape&) = default;
};

// The mixtures of experts of a model.
struct ExpertShape {
  std::uint32_t count = 0;         // of a layer; 0: the model has no experts
  std::uint32_t used = 0;          // for each token
  std::uint32_t groups = 1;        // of experts
  std::uint32_t groups_used = 1;   // that a token's experts are in
  std::uint32_t shared_inner = 0;  // width of the expert that all tokens use; 0: there is none
  Router::Scores scores = Router::Scores::Softmax;
  bool normed = false;  // the weights of a token's experts add up to 1

  friend bool operator==(const ExpertShape&, const ExpertShape&) = default;
};

struct Hyperparameters {
  const Architecture* architecture = nullptr;
  std::uint32_t context_length = 0;  // tokens that the model was trained for
  std::uint32_t embedding = 0;       // width of the residual stream
  std::uint32_t vocabulary = 0;      // rows of the embedding
  std::uint32_t key_length = 0;      // of a head as the pool keeps it; 0 without attention
  std::uint32_t value_length = 0;
  LatentShape latent;        // zeros without latent attention
  RecurrentShape recurrent;  // zeros without recurrent layers
  ExpertShape experts;
  std::vector<Layer> layers;
  // Layers in the file after those: heads that predict further tokens (nextn_predict_layers).
  std::uint32_t extra_layers = 0;
  // The first of them, if the file has its tensors and Quire knows what it computes (Architecture::next_token_head).
  // The others are not used.
  std::optional<Layer> head;
  // Of a head as a model of its own (Model::head()): the number of its layer in the file. 0: this is no head.
  std::uint32_t head_layer = 0;

  std::uint32_t count(BlockKind kind) const;  // layers that have a block of this kind
  // Elements of a head's query and key before anything is absorbed: scores are scaled by its root.
  std::uint32_t query_length() const { return latent.kv_rank > 0 ? latent.query() : key_length; }
  bool attends() const { return count(BlockKind::Attention) + count(BlockKind::LatentAttention) > 0; }
};

// `row`: for tests, an architecture that is not in the table.
Result<Hyperparameters> read_hyperparameters(const gguf::File& file, const Architecture* row = nullptr);

}  // namespace quire::model
