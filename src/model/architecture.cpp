#include "quire/model/architecture.h"

#include <algorithm>
#include <array>

namespace quire::model {

namespace {

constexpr BlockSpec kTransformer[] = {{BlockKind::Attention, "attn_norm.weight"},
                                      {BlockKind::FeedForward, "ffn_norm.weight"}};
constexpr BlockSpec kPostNormed[] = {{BlockKind::Attention, "attn_norm.weight", "post_attention_norm.weight"},
                                     {BlockKind::FeedForward, "ffn_norm.weight", "post_ffw_norm.weight"}};
constexpr BlockSpec kNormedAfter[] = {{.kind = BlockKind::Attention, .post_norm = "post_attention_norm.weight"},
                                      {.kind = BlockKind::FeedForward, .post_norm = "post_ffw_norm.weight"}};
constexpr BlockSpec kParallel[] = {{BlockKind::Attention, "attn_norm.weight"},
                                   {.kind = BlockKind::FeedForward, .join = Join::Beside}};
constexpr BlockSpec kBiasedNorms[] = {
    {.kind = BlockKind::Attention, .norm = "attn_norm.weight", .norm_bias = "attn_norm.bias"},
    {.kind = BlockKind::FeedForward, .norm = "ffn_norm.weight", .norm_bias = "ffn_norm.bias"}};
constexpr BlockSpec kMamba2[] = {{BlockKind::Mamba2, "attn_norm.weight"}, {BlockKind::FeedForward, "ffn_norm.weight"}};
constexpr BlockSpec kHybrid[] = {{BlockKind::Attention, "attn_norm.weight"},
                                 {BlockKind::Mamba2, "attn_norm.weight"},
                                 {BlockKind::FeedForward, "ffn_norm.weight"}};
constexpr BlockSpec kMamba1[] = {{BlockKind::Mamba1, "attn_norm.weight"}};
constexpr BlockSpec kMamba1Hybrid[] = {{BlockKind::Attention, "attn_norm.weight"},
                                       {BlockKind::Mamba1, "attn_norm.weight"},
                                       {BlockKind::FeedForward, "ffn_norm.weight"}};
constexpr BlockSpec kTwoMixers[] = {{BlockKind::Attention, "attn_norm.weight"},
                                    {.kind = BlockKind::Mamba2, .join = Join::Beside},
                                    {BlockKind::FeedForward, "ffn_norm"}};
constexpr BlockSpec kShortConv[] = {{BlockKind::Attention, "attn_norm.weight"},
                                    {BlockKind::ShortConv, "attn_norm.weight"},
                                    {BlockKind::FeedForward, "ffn_norm.weight"}};
// Its name notwithstanding, post_attention_norm is the norm before the feed-forward part.
constexpr BlockSpec kDeltaRule[] = {{BlockKind::Attention, "attn_norm.weight"},
                                    {BlockKind::DeltaRule, "attn_norm.weight"},
                                    {BlockKind::FeedForward, "post_attention_norm.weight"}};
// gpt-oss: the norm after attention is that of the feed-forward block's input.
constexpr BlockSpec kGptOss[] = {{BlockKind::Attention, "attn_norm.weight"},
                                 {BlockKind::FeedForward, "post_attention_norm.weight"}};

constexpr BlockSpec kLatent[] = {{BlockKind::LatentAttention, "attn_norm.weight"},
                                 {BlockKind::FeedForward, "ffn_norm.weight"}};

constexpr std::array kArchitectures = {
    Architecture{.name = "cohere2",
                 .title = "Command R7B, Command A",
                 .blocks = kParallel,
                 .norm = NormKind::Layer,
                 .default_window = 4096,
                 .window_period = 4,
                 .rope_pairs = RopePairs::Neighbours,
                 .rotated_in_windows_only = true,
                 .logits_are_multiplied = true},
    Architecture{.name = "deepseek2",
                 .title = "DeepSeek V2, V3",
                 .blocks = kLatent,
                 .rope_pairs = RopePairs::Neighbours,
                 .yarn_scales_scores = true,
                 .next_token_head = true},
    // The converter multiplies its many multipliers into the weights.
    Architecture{.name = "falcon-h1", .title = "Falcon-H1", .blocks = kTwoMixers, .optional_ssm_norm = true},
    Architecture{.name = "gemma2",
                 .title = "Gemma 2",
                 .blocks = kPostNormed,
                 .default_window = 4096,
                 .window_period = 2,
                 .activation = Activation::GeluTanh,
                 .embedding_times_root_of_width = true,
                 .layers_that_scale_by_width = 46,
                 .default_attention_cap = 50,
                 .default_logit_cap = 30},
    Architecture{.name = "gemma3",
                 .title = "Gemma 3",
                 .blocks = kPostNormed,
                 .window_period = 6,
                 .window_rope_base = 10000,
                 .activation = Activation::GeluTanh,
                 .embedding_times_root_of_width = true,
                 .layers_that_scale_by_width = 62,
                 .head_norms = true},
    Architecture{.name = "glm4",
                 .title = "GLM-4",
                 .blocks = kPostNormed,
                 .rope_pairs = RopePairs::Neighbours,
                 .refuses_rope_sections = true,
                 .gate_in_up = true,
                 .next_token_head = true},
    Architecture{.name = "gpt-oss",
                 .title = "gpt-oss",
                 .blocks = kGptOss,
                 .window_period = 2,
                 .yarn_whole_pairs = false,
                 .activation = Activation::ClampedSwiglu,
                 .expert_scores = Router::Scores::ChosenSoftmax,
                 .attention_sinks = true,
                 .projection_biases = true,
                 .output_bias = true,
                 .expert_biases = true},
    Architecture{.name = "gpt2",
                 .title = "GPT-2",
                 .blocks = kBiasedNorms,
                 .norm = NormKind::Layer,
                 .unrotated_period = 1,
                 .learned_positions = true,
                 .activation = Activation::GeluTanh,
                 .ungated = true,
                 .all_biases = true},
    Architecture{.name = "granite",
                 .title = "Granite",
                 .blocks = kTransformer,
                 .rope_pairs = RopePairs::Neighbours,
                 .finetuned_switches_rope = true},
    Architecture{.name = "granitehybrid",
                 .title = "Granite hybrid",
                 .blocks = kHybrid,
                 .rope_pairs = RopePairs::Neighbours,
                 .finetuned_switches_rope = true,
                 .expert_weights_normed = true},
    Architecture{.name = "jamba", .title = "Jamba", .blocks = kMamba1Hybrid, .unrotated_period = 1, .step_norms = true},
    Architecture{.name = "lfm2",
                 .title = "LFM2",
                 .blocks = kShortConv,
                 .final_norm = "token_embd_norm.weight",
                 .window_period = 0,
                 .head_norms = true},
    Architecture{.name = "lfm2moe",
                 .title = "LFM2 with experts",
                 .blocks = kShortConv,
                 .final_norm = "token_embd_norm.weight",
                 .window_period = 0,
                 .expert_weights_normed = true,
                 .head_norms = true},
    // The first Mistral is a Llama with a window in every layer. Its successors and Llama itself name no window.
    // Mixtral is a Llama with experts.
    Architecture{.name = "llama",
                 .title = "Llama, Mistral, Mixtral",
                 .blocks = kTransformer,
                 .window_period = 0,
                 .rope_pairs = RopePairs::Neighbours,
                 .expert_weights_normed = true},
    Architecture{.name = "mamba", .title = "Mamba, Falcon-Mamba", .blocks = kMamba1},
    Architecture{.name = "mamba2", .title = "Mamba-2", .blocks = kMamba2, .convolution_bias = true},
    // OLMo 3 is an OLMo 2 with a window in three of four layers. Only the fourth is scaled.
    Architecture{.name = "olmo2",
                 .title = "OLMo 2, OLMo 3",
                 .blocks = kNormedAfter,
                 .window_period = 4,
                 .windows_are_not_scaled = true,
                 .wide_norms = true},
    Architecture{.name = "olmoe", .title = "OLMoE", .blocks = kTransformer, .wide_norms = true},
    Architecture{.name = "phi3", .title = "Phi-3", .blocks = kTransformer, .window_period = 0, .gate_in_up = true},
    Architecture{.name = "qwen2", .title = "Qwen2", .blocks = kTransformer, .projection_biases = true},
    Architecture{.name = "qwen3", .title = "Qwen3", .blocks = kTransformer, .head_norms = true},
    Architecture{.name = "qwen35",
                 .title = "Qwen3.5",
                 .blocks = kDeltaRule,
                 .attention_interval = 4,
                 .head_norms = true,
                 .gated_attention = true,
                 .value_heads_tiled = true,
                 .next_token_head = true},
    Architecture{.name = "qwen35moe",
                 .title = "Qwen3.5 with experts",
                 .blocks = kDeltaRule,
                 .attention_interval = 4,
                 .expert_weights_normed = true,
                 .head_norms = true,
                 .shared_expert_gate = true,
                 .gated_attention = true,
                 .value_heads_tiled = true,
                 .next_token_head = true},
    Architecture{.name = "qwen3moe",
                 .title = "Qwen3 with experts",
                 .blocks = kTransformer,
                 .expert_weights_normed = true,
                 .head_norms = true},
    Architecture{.name = "qwen3next",
                 .title = "Qwen3-Next",
                 .blocks = kDeltaRule,
                 .attention_interval = 4,
                 .expert_weights_normed = true,
                 .head_norms = true,
                 .shared_expert_gate = true,
                 .gated_attention = true,
                 .next_token_head = true},
    Architecture{.name = "smollm3",
                 .title = "SmolLM3",
                 .blocks = kTransformer,
                 .rope_pairs = RopePairs::Neighbours,
                 .unrotated_period = 4},
    // Files do not name the window, which all published models have.
    Architecture{.name = "starcoder2",
                 .title = "StarCoder2",
                 .blocks = kBiasedNorms,
                 .norm = NormKind::Layer,
                 .default_window = 4096,
                 .window_period = 0,
                 .activation = Activation::GeluTanh,
                 .ungated = true,
                 .all_biases = true},
};
static_assert(std::ranges::is_sorted(kArchitectures, {}, &Architecture::name));

// Two blocks side by side read one normed input. The first of them names the norm.
constexpr bool well_joined(const Architecture& row) {
  for (std::size_t i = 0; i < row.blocks.size(); ++i) {
    if (row.blocks[i].join != Join::Beside) continue;
    if (i == 0 || row.blocks[i - 1].norm.empty() || !row.blocks[i].norm.empty()) return false;
  }
  return true;
}
static_assert(std::ranges::all_of(kArchitectures, well_joined));

}  // namespace

std::span<const Architecture> architectures() { return kArchitectures; }

const Architecture* find_architecture(std::string_view name) {
  const auto* found = std::ranges::find(kArchitectures, name, &Architecture::name);
  return found == kArchitectures.end() ? nullptr : found;
}

}  // namespace quire::model
