#include "quire/bench/synth/family.h"

#include <algorithm>
#include <iterator>

namespace quire::synth {
namespace {

constexpr Family kFamilies[] = {
    {.name = "deepseek2",
     .experts = Experts::always,
     .shared_expert = true,
     .dense_first = true,
     .latent = true,
     .partial_rotation = true,
     .writes_rope_dim = true,
     .expert_gating_func = 1},
    {.name = "falcon-h1",
     .recurrence = Recurrence::mamba2,
     .beside = true,
     .ssm_norm = false,
     .feed_forward_norm = "ffn_norm"},
    {.name = "gpt-oss",
     .experts = Experts::always,
     .biases = Biases::all,
     .sinks = true,
     .window = true,
     .feed_forward_norm = "post_attention_norm.weight"},
    {.name = "granitehybrid",
     .attention = Attention::listed,
     .recurrence = Recurrence::mamba2,
     .experts = Experts::optional,
     .shared_expert = true,
     .rotates = false,
     .writes_rope_dim = true,
     .derives_head_dim = true,
     .expert_width_is_ff = true,
     .outliers = true},
    {.name = "lfm2",
     .attention = Attention::listed,
     .recurrence = Recurrence::convolution,
     .head_norms = HeadNorms::head,
     .output_norm = "token_embd_norm.weight"},
    {.name = "lfm2moe",
     .attention = Attention::listed,
     .recurrence = Recurrence::convolution,
     .experts = Experts::always,
     .dense_first = true,
     .choice_bias = true,
     .head_norms = HeadNorms::head,
     .output_norm = "token_embd_norm.weight",
     .expert_gating_func = 2},
    {.name = "llama", .neighbours = true, .writes_rope_dim = true, .outliers = true},
    {.name = "mamba", .attention = Attention::none, .recurrence = Recurrence::mamba1},
    {.name = "mamba2", .attention = Attention::none, .recurrence = Recurrence::mamba2},
    {.name = "olmoe", .experts = Experts::always, .head_norms = HeadNorms::width, .expert_width_is_ff = true},
    {.name = "qwen2", .biases = Biases::qkv, .writes_rope_dim = true, .outliers = true},
    {.name = "qwen3", .head_norms = HeadNorms::head, .writes_rope_dim = true, .outliers = true},
    {.name = "qwen35",
     .attention = Attention::interval,
     .recurrence = Recurrence::delta_rule,
     .head_norms = HeadNorms::head,
     .gated = true,
     .partial_rotation = true,
     .sections = true,
     .feed_forward_norm = "post_attention_norm.weight",
     .writes_rope_dim = true},
    {.name = "qwen3moe", .experts = Experts::always, .head_norms = HeadNorms::head},
};

}  // namespace

std::span<const Family> families() { return kFamilies; }

const Family* find_family(std::string_view architecture) {
  const Family* found = std::ranges::find(kFamilies, architecture, &Family::name);
  return found == std::end(kFamilies) ? nullptr : found;
}

bool has_attention(const Shape& shape, std::uint32_t layer) {
  switch (find_family(shape.architecture)->attention) {
    case Attention::none: return false;
    case Attention::all: return true;
    case Attention::listed: return std::ranges::find(shape.attention_layers, layer) != shape.attention_layers.end();
    case Attention::interval: return (layer + 1) % shape.attention_interval == 0;
  }
  return false;
}

bool has_recurrence(const Shape& shape, std::uint32_t layer) {
  const Family& family = *find_family(shape.architecture);
  return family.recurrence != Recurrence::none && (family.beside || !has_attention(shape, layer));
}

bool has_experts(const Shape& shape, std::uint32_t layer) { return shape.experts != 0 && layer >= shape.dense_layers; }

}  // namespace quire::synth
