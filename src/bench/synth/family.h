// What distinguishes the architectures that synth writes: which blocks a layer has, what its tensors are called, and
// which metadata belong to it. A row for each, so that no other file of synth compares names of architectures.
//
// Who may call: anyone, from any thread; there is no state.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "quire/bench/synth/synth.h"

namespace quire::synth {

// Which layers have attention: none, all, those of Shape::attention_layers, or every Shape::attention_interval-th.
enum class Attention : std::uint8_t { none, all, listed, interval };
// What a layer has that carries a state from token to token.
enum class Recurrence : std::uint8_t { none, mamba1, mamba2, delta_rule, convolution };
enum class Experts : std::uint8_t { none, optional, always };
// Norms of queries and keys: of each head with the same weights, or of all heads together.
enum class HeadNorms : std::uint8_t { none, head, width };
// none, queries and keys and values, or all projections and experts.
enum class Biases : std::uint8_t { none, qkv, all };

struct Family {
  std::string_view name;  // as GGUF has it
  Attention attention = Attention::all;
  Recurrence recurrence = Recurrence::none;
  bool beside = false;  // every layer has attention and recurrence side by side
  Experts experts = Experts::none;
  bool shared_expert = false;  // there may be an expert that every token uses
  bool dense_first = false;    // the first layers may have a feed-forward block instead of experts
  bool choice_bias = false;    // a bias that only counts when experts are chosen

  HeadNorms head_norms = HeadNorms::none;
  Biases biases = Biases::none;
  bool sinks = false;             // a learned score that takes part in the softmax
  bool window = false;            // every other layer sees only the last tokens
  bool gated = false;             // the query projection also gives a gate for the output of attention
  bool latent = false;            // keys and values are projections of one compressed row per token
  bool partial_rotation = false;  // Shape::rope_dim is smaller than a head
  bool rotates = true;            // there is a rotary embedding
  bool sections = false;          // which rotates with time, height and width, for images
  bool neighbours = false;        // the rotary embedding pairs channels 2 i and 2 i + 1
  bool ssm_norm = true;           // Mamba-2 norms its output
  std::string_view feed_forward_norm = "ffn_norm.weight";
  std::string_view output_norm = "output_norm.weight";
  // Metadata
  bool writes_rope_dim = false;          // rope.dimension_count
  bool derives_head_dim = false;         // no attention.key_length if a head is embedding / heads
  bool expert_width_is_ff = false;       // the width of an expert is feed_forward_length
  std::uint32_t expert_gating_func = 0;  // 0: no such key
  bool outliers = false;                 // Shape::outliers is supported

  bool has_attention() const { return attention != Attention::none; }
  bool has_feed_forward() const { return has_attention(); }
  bool has_scan() const { return recurrence != Recurrence::none && recurrence != Recurrence::convolution; }
  bool has_ssm_heads() const { return recurrence == Recurrence::mamba2 || recurrence == Recurrence::delta_rule; }
};

std::span<const Family> families();  // sorted by name
// The family of shape.architecture. Null: unknown.
const Family* find_family(std::string_view architecture);

// The blocks of a layer. The shape is one that check_shape() allows.
bool has_attention(const Shape& shape, std::uint32_t layer);
bool has_recurrence(const Shape& shape, std::uint32_t layer);
bool has_experts(const Shape& shape, std::uint32_t layer);

}  // namespace quire::synth
