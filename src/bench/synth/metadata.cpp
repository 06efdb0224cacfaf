#include "quire/bench/synth/metadata.h"

#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "quire/bench/synth/family.h"

namespace quire::synth {
namespace {

// Adds keys of one architecture.
class Keys {
 public:
  Keys(gguf::Writer& writer, const Shape& shape) : writer_(writer), architecture_(shape.architecture) {}

  template <typename T>
  void add(std::string_view name, T value) {
    writer_.add(key(name), value);
  }
  void add_array(std::string_view name, const std::vector<std::int32_t>& values) {
    writer_.add_array<std::int32_t>(key(name), values);
  }
  // Only if it is not 0, as the numbers of a shape are that it does not have.
  template <typename T>
  void add_if(std::string_view name, T value) {
    if (value != 0) add(name, value);
  }

 private:
  std::string key(std::string_view name) const { return fmt::format("{}.{}", architecture_, name); }

  gguf::Writer& writer_;
  const std::string& architecture_;
};

// Layers without KV heads are recurrent.
std::vector<std::int32_t> kv_heads_of_layers(const Shape& shape) {
  std::vector<std::int32_t> heads(shape.layers);
  for (const std::uint32_t layer : shape.attention_layers) heads[layer] = static_cast<std::int32_t>(shape.kv_heads);
  return heads;
}

// The pairs of channels that turn with the time, the height and the width of an image; for text the three are equal.
std::vector<std::int32_t> sections_of(const Shape& shape) {
  const auto pairs = static_cast<std::int32_t>(shape.rope_dim / 2);
  return {(pairs + 2) / 3, (pairs + 1) / 3, pairs / 3, 0};
}

void add_rope(Keys& keys, const Shape& shape, const Family& family) {
  keys.add("rope.freq_base", shape.rope_base);
  if (family.writes_rope_dim) {
    keys.add("rope.dimension_count", family.partial_rotation ? shape.rope_dim : shape.head_dim);
  }
  if (family.sections) keys.add_array("rope.dimension_sections", sections_of(shape));
  if (!family.rotates) keys.add("rope.scaling.finetuned", false);
  if (shape.yarn_factor == 0) return;
  keys.add("rope.scaling.type", std::string_view("yarn"));
  keys.add("rope.scaling.factor", shape.yarn_factor);
  keys.add("rope.scaling.original_context_length", shape.yarn_context);
  keys.add("rope.scaling.yarn_beta_fast", 32.0f);
  keys.add("rope.scaling.yarn_beta_slow", 1.0f);
  keys.add_if("rope.scaling.yarn_log_multiplier", shape.yarn_log_multiplier);
}

void add_attention(Keys& keys, const Shape& shape, const Family& family) {
  if (family.attention == Attention::listed) {
    keys.add_array("attention.head_count_kv", kv_heads_of_layers(shape));
  } else {
    keys.add("attention.head_count_kv", shape.kv_heads);
  }
  keys.add_if("full_attention_interval", shape.attention_interval);
  keys.add_if("attention.sliding_window", shape.window);
  if (family.latent) {
    // What a page keeps per token, and in _mla what a head has.
    keys.add("attention.key_length", shape.kv_rank + shape.rope_dim);
    keys.add("attention.value_length", shape.kv_rank);
    keys.add("attention.key_length_mla", shape.head_dim);
    keys.add("attention.value_length_mla", shape.value_dim);
    keys.add("attention.kv_lora_rank", shape.kv_rank);
    keys.add_if("attention.q_lora_rank", shape.q_rank);
  } else if (!family.derives_head_dim || shape.heads * shape.head_dim != shape.embedding) {
    keys.add("attention.key_length", shape.head_dim);
    keys.add("attention.value_length", shape.head_dim);
  }
  add_rope(keys, shape, family);
}

void add_experts(Keys& keys, const Shape& shape, const Family& family) {
  if (shape.experts == 0) return;
  keys.add("expert_count", shape.experts);
  keys.add("expert_used_count", shape.experts_used);
  if (!family.expert_width_is_ff) keys.add("expert_feed_forward_length", shape.expert_feed_forward);
  if (family.dense_first) keys.add("leading_dense_block_count", shape.dense_layers);
  keys.add_if("expert_gating_func", family.expert_gating_func);
  if (family.latent) {  // DeepSeek
    keys.add("expert_shared_count", shape.shared_feed_forward / shape.expert_feed_forward);
    keys.add("expert_group_count", std::uint32_t{1});
    keys.add("expert_group_used_count", std::uint32_t{1});
    keys.add("expert_weights_scale", 1.0f);
  } else {
    keys.add_if("expert_shared_feed_forward_length", shape.shared_feed_forward);
  }
}

void add_recurrence(Keys& keys, const Shape& shape, const Family& family) {
  if (family.recurrence == Recurrence::convolution) return keys.add("shortconv.l_cache", shape.conv);
  keys.add("ssm.conv_kernel", shape.conv);
  keys.add("ssm.inner_size", shape.inner);
  keys.add("ssm.state_size", shape.state);
  if (family.recurrence == Recurrence::mamba1) {
    keys.add("ssm.time_step_rank", shape.dt_rank);
    return keys.add("ssm.dt_b_c_rms", false);
  }
  keys.add("ssm.group_count", shape.groups);
  keys.add("ssm.time_step_rank", shape.ssm_heads);
}

}  // namespace

void add_hyperparameters(gguf::Writer& writer, const Shape& shape) {
  const Family& family = *find_family(shape.architecture);
  writer.add("general.architecture", shape.architecture);
  Keys keys(writer, shape);
  keys.add("block_count", shape.layers);
  keys.add("context_length", shape.context);
  keys.add("embedding_length", shape.embedding);
  const bool of_experts = shape.experts != 0 && family.expert_width_is_ff;
  keys.add("feed_forward_length", of_experts ? shape.expert_feed_forward : shape.feed_forward);
  keys.add("vocab_size", shape.vocabulary);
  keys.add("attention.layer_norm_rms_epsilon", shape.epsilon);
  keys.add("attention.head_count", shape.heads);
  if (family.has_attention()) add_attention(keys, shape, family);
  add_experts(keys, shape, family);
  if (family.recurrence != Recurrence::none) add_recurrence(keys, shape, family);
  keys.add_if("embedding_scale", shape.embedding_scale);
  keys.add_if("residual_scale", shape.residual_scale);
  keys.add_if("logit_scale", shape.logit_scale);
  keys.add_if("attention.scale", shape.attention_scale);
}

}  // namespace quire::synth
