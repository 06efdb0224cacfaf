// Writes models of real shapes with random weights, so that anyone can measure without a download. Other engines can
// load the same file.
//
//   auto ok = synth::write_model(*synth::find_shape("llama-1.1b"), "Q8_0", 1, "model.gguf", progress);
//
// Who may call: anyone, from any thread; there is no state.
// What holds: the same shape, type and seed give the same bytes. Weights have mean 0 and a standard deviation of one
//   over the square root of the row length, norms are around 1, and recurrences decay. So logits are finite at any
//   depth.
// How it fails: with one line that says what is wrong: an impossible shape, a type that does not fit the row length, a
//   full disk. Then no file is written.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/error.h"

namespace quire::synth {

struct Shape {
  std::string name;
  std::string architecture;  // as GGUF has it: llama, qwen3moe, mamba2, granitehybrid, ... (family.h)
  std::uint32_t layers = 0;
  std::uint32_t embedding = 0;
  std::uint32_t vocabulary = 0;
  std::uint32_t context = 0;
  bool tied = false;  // the output is the embedding
  // Attention; 0 in purely recurrent models
  std::uint32_t heads = 0;
  std::uint32_t kv_heads = 0;
  std::uint32_t head_dim = 0;
  std::uint32_t rope_dim = 0;  // channels of a head that are rotated, where these are not all
  std::uint32_t window = 0;    // gpt-oss: positions that every other layer sees
  // Latent attention: a row of kv_rank + rope_dim elements per token, from which keys and values are projected. Queries
  // are projected in two steps if there is a q_rank. head_dim is that of queries and keys, value_dim that of values.
  std::uint32_t kv_rank = 0;
  std::uint32_t q_rank = 0;
  std::uint32_t value_dim = 0;
  std::uint32_t feed_forward = 0;  // in models with experts: of the first dense_layers layers
  // Experts; 0 in models without
  std::uint32_t experts = 0;
  std::uint32_t experts_used = 0;
  std::uint32_t expert_feed_forward = 0;
  std::uint32_t shared_feed_forward = 0;  // of the expert that every token uses
  std::uint32_t dense_layers = 0;
  // Recurrent layers; 0 in pure attention models. In Mamba-2, `inner` channels are divided into ssm_heads, and B and C
  // have groups x state elements. The delta rule has `groups` heads of keys and ssm_heads heads of values, each of
  // `state` elements. Mamba-1 has no heads, and a step size of rank dt_rank. Short convolutions have `conv` only.
  std::uint32_t inner = 0;
  std::uint32_t state = 0;
  std::uint32_t groups = 0;
  std::uint32_t ssm_heads = 0;
  std::uint32_t conv = 0;
  std::uint32_t dt_rank = 0;
  std::vector<std::uint32_t> attention_layers;  // of hybrids
  std::uint32_t attention_interval = 0;         // of hybrids in which every so many-th layer has attention

  // Channels of the keys, and of the feed-forward block's activations, that are a hundred times larger (outliers.h).
  std::uint32_t outliers = 0;

  // Values that do not affect the speed.
  std::string pre;  // the pre-tokenizer of a byte-level BPE; empty: the tokenizer is a SentencePiece one
  float epsilon = 1e-5f;
  float rope_base = 10000;
  float rope_stretch = 1;  // Llama 3.1: the context divided by the original context
  // YaRN; 0: none
  float yarn_factor = 0;
  std::uint32_t yarn_context = 0;  // the original one
  float yarn_log_multiplier = 0;
  // Granite; 0: no scale
  float embedding_scale = 0;
  float residual_scale = 0;
  float logit_scale = 0;
  float attention_scale = 0;
};

const std::vector<std::string>& shape_names();
const Shape* find_shape(std::string_view name);  // null: unknown name
// Plain types ("F32", ... "Q8_0"), the type of all matrices except the output, which is Q6_K if the type is smaller
// than Q8_0; and mixes ("Q4_K_M", "MXFP4_MOE"). Upper or lower case.
const std::vector<std::string>& type_names();
// The known architectures, and the usual values of one, without its sizes.
const std::vector<std::string>& architecture_names();
Shape usual_shape(std::string_view architecture);

// `shape` with all numbers of `changes` that are not 0. Numbers that depend on them change too, unless `changes` gives
// them: the head size and the channels follow a new embedding, the recurrent heads follow the channels, and layers
// beyond the last (with attention, or without experts) are dropped. The name becomes that of a custom shape.
Shape changed(Shape shape, const Shape& changes);

// Whether such a model is possible. The message begins with the wrong number's name on the command line:
// "kv-heads: ...".
Result<void> check_shape(const Shape& shape);

struct Summary {
  std::uint64_t parameters = 0;
  std::uint64_t bytes = 0;  // of the tensors
  // Tensors that have another type than requested, because their rows are not whole blocks.
  std::vector<std::string> notes;
};
Result<Summary> summarize(const Shape& shape, std::string_view type);

using Progress = std::function<void(std::uint64_t done_bytes, std::uint64_t all_bytes)>;
Result<void> write_model(const Shape& shape, std::string_view type, std::uint64_t seed, const std::string& path,
                         const Progress& progress);

}  // namespace quire::synth
