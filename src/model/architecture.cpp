#include "quire/model/architecture.h"

#include <algorithm>
#include <array>

namespace quire::model {

namespace {

constexpr std::array kArchitectures = {
    Architecture{.name = "gemma2",
                 .title = "Gemma 2",
                 .default_window = 4096,
                 .window_period = 2,
                 .activation = Activation::GeluTanh,
                 .embedding_times_root_of_width = true,
                 .layers_that_scale_by_width = 46,
                 .default_attention_cap = 50,
                 .default_logit_cap = 30,
                 .post_norms = true},
    Architecture{.name = "gemma3",
                 .title = "Gemma 3",
                 .window_period = 6,
                 .window_rope_base = 10000,
                 .activation = Activation::GeluTanh,
                 .embedding_times_root_of_width = true,
                 .layers_that_scale_by_width = 62,
                 .head_norms = true,
                 .post_norms = true},
    Architecture{.name = "granitehybrid",
                 .title = "Granite hybrid",
                 .mixing = Mixing::hybrid,
                 .rope_pairs = RopePairs::Neighbours,
                 .finetuned_switches_rope = true},
    // The first Mistral is a Llama that slides in every layer; its successors and Llama itself name no window.
    Architecture{.name = "llama", .title = "Llama, Mistral", .window_period = 0, .rope_pairs = RopePairs::Neighbours},
    Architecture{.name = "mamba2", .title = "Mamba-2", .mixing = Mixing::recurrent, .convolution_bias = true},
    Architecture{.name = "phi3", .title = "Phi-3", .window_period = 0, .gate_in_up = true},
    Architecture{.name = "qwen2", .title = "Qwen2", .projection_biases = true},
    Architecture{.name = "qwen3", .title = "Qwen3", .head_norms = true},
};
static_assert(std::ranges::is_sorted(kArchitectures, {}, &Architecture::name));

}  // namespace

std::span<const Architecture> architectures() { return kArchitectures; }

const Architecture* find_architecture(std::string_view name) {
  const auto* found = std::ranges::find(kArchitectures, name, &Architecture::name);
  return found == kArchitectures.end() ? nullptr : found;
}

}  // namespace quire::model
