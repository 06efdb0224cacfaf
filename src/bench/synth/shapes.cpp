// The named shapes: the sizes of published models, from their configs. Some details of granite-h-1b (heads, residual
// scale) are inferred from its total number of parameters.
#include <algorithm>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "quire/bench/synth/synth.h"

namespace quire::synth {
namespace {

std::vector<Shape> make_shapes() {
  return {
      // TinyLlama/TinyLlama-1.1B-Chat-v1.0
      {.name = "llama-1.1b",
       .architecture = "llama",
       .layers = 22,
       .embedding = 2048,
       .vocabulary = 32000,
       .context = 2048,
       .heads = 32,
       .kv_heads = 4,
       .head_dim = 64,
       .feed_forward = 5632},
      // meta-llama/Llama-3.1-8B
      {.name = "llama-8b",
       .architecture = "llama",
       .layers = 32,
       .embedding = 4096,
       .vocabulary = 128256,
       .context = 131072,
       .heads = 32,
       .kv_heads = 8,
       .head_dim = 128,
       .feed_forward = 14336,
       .pre = "llama-bpe",
       .rope_base = 500000,
       .rope_stretch = 8},
      // mistralai/Mistral-7B-Instruct-v0.2, which has no sliding window. In GGUF its architecture is llama.
      {.name = "mistral-7b",
       .architecture = "llama",
       .layers = 32,
       .embedding = 4096,
       .vocabulary = 32000,
       .context = 32768,
       .heads = 32,
       .kv_heads = 8,
       .head_dim = 128,
       .feed_forward = 14336,
       .rope_base = 1000000},
      // Qwen/Qwen2.5-0.5B. In GGUF its architecture is qwen2.
      {.name = "qwen2.5-0.5b",
       .architecture = "qwen2",
       .layers = 24,
       .embedding = 896,
       .vocabulary = 151936,
       .context = 32768,
       .tied = true,
       .heads = 14,
       .kv_heads = 2,
       .head_dim = 64,
       .feed_forward = 4864,
       .pre = "qwen2",
       .epsilon = 1e-6f,
       .rope_base = 1000000},
      // Qwen/Qwen3-0.6B
      {.name = "qwen3-0.6b",
       .architecture = "qwen3",
       .layers = 28,
       .embedding = 1024,
       .vocabulary = 151936,
       .context = 40960,
       .tied = true,
       .heads = 16,
       .kv_heads = 8,
       .head_dim = 128,
       .feed_forward = 3072,
       .pre = "qwen2",
       .epsilon = 1e-6f,
       .rope_base = 1000000},
      // state-spaces/mamba2-130m and -370m: the vocabulary of 50277 is padded to a multiple of 16. Values that
      // ssm_cfg does not give are the defaults of the mamba_ssm package (expand 2, head size 64, state 128, one group,
      // convolution 4). The context is what llama.cpp's converter writes for a model without a limit.
      {.name = "mamba2-130m",
       .architecture = "mamba2",
       .layers = 24,
       .embedding = 768,
       .vocabulary = 50288,
       .context = 1 << 20,
       .tied = true,
       .inner = 1536,
       .state = 128,
       .groups = 1,
       .ssm_heads = 24,
       .conv = 4,
       .pre = "mpt"},
      {.name = "mamba2-370m",
       .architecture = "mamba2",
       .layers = 48,
       .embedding = 1024,
       .vocabulary = 50288,
       .context = 1 << 20,
       .tied = true,
       .inner = 2048,
       .state = 128,
       .groups = 1,
       .ssm_heads = 32,
       .conv = 4,
       .pre = "mpt"},
      // ibm-granite/granite-4.0-h-350m and -1b
      {.name = "granite-h-350m",
       .architecture = "granitehybrid",
       .layers = 32,
       .embedding = 768,
       .vocabulary = 100352,
       .context = 32768,
       .tied = true,
       .heads = 12,
       .kv_heads = 4,
       .head_dim = 64,
       .feed_forward = 2048,
       .inner = 1536,
       .state = 128,
       .groups = 1,
       .ssm_heads = 48,
       .conv = 4,
       .attention_layers = {10, 13, 17, 27},
       .pre = "dbrx",
       .embedding_scale = 12,
       .residual_scale = 0.246f,
       .logit_scale = 3,
       .attention_scale = 0.015625f},
      {.name = "granite-h-1b",
       .architecture = "granitehybrid",
       .layers = 40,
       .embedding = 1536,
       .vocabulary = 100352,
       .context = 131072,
       .tied = true,
       .heads = 12,
       .kv_heads = 4,
       .head_dim = 128,
       .feed_forward = 4096,
       .inner = 3072,
       .state = 128,
       .groups = 1,
       .ssm_heads = 48,
       .conv = 4,
       .attention_layers = {5, 15, 25, 35},
       .pre = "dbrx",
       .embedding_scale = 12,
       .residual_scale = 0.22f,
       .logit_scale = 6,
       .attention_scale = 0.0078125f},
  };
}

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all = make_shapes();
  return all;
}

// Which sizes the shapes of an architecture have.
struct Parts {
  bool attention = true;
  bool recurrence = false;
};
std::optional<Parts> parts_of(std::string_view architecture) {
  if (architecture == "llama" || architecture == "qwen2" || architecture == "qwen3") return Parts{};
  if (architecture == "mamba2") return Parts{.attention = false, .recurrence = true};
  if (architecture == "granitehybrid") return Parts{.attention = true, .recurrence = true};
  return std::nullopt;
}

enum class Of : std::uint8_t { all, attention, recurrence };
struct Number {
  std::string_view name;
  std::uint32_t Shape::*value;
  Of of;
  std::uint32_t most;  // the maximum of the model loader
};
constexpr Number kNumbers[] = {
    {"layers", &Shape::layers, Of::all, 1024},
    {"embedding", &Shape::embedding, Of::all, 1 << 20},
    {"vocabulary", &Shape::vocabulary, Of::all, 1 << 24},
    {"context", &Shape::context, Of::all, 1 << 30},
    {"heads", &Shape::heads, Of::attention, 1 << 14},
    {"kv-heads", &Shape::kv_heads, Of::attention, 1 << 14},
    {"head-dim", &Shape::head_dim, Of::attention, 1 << 16},
    {"feed-forward", &Shape::feed_forward, Of::attention, 1 << 20},
    {"inner", &Shape::inner, Of::recurrence, 1 << 20},
    {"state", &Shape::state, Of::recurrence, 1 << 14},
    {"groups", &Shape::groups, Of::recurrence, 1 << 14},
    {"ssm-heads", &Shape::ssm_heads, Of::recurrence, 1 << 14},
    {"conv", &Shape::conv, Of::recurrence, 256},
};

Result<void> check_attention_layers(const Shape& shape, bool hybrid) {
  const std::vector<std::uint32_t>& attending = shape.attention_layers;
  if (!hybrid) {
    if (attending.empty()) return {};
    return fail(fmt::format("attention-layers: only hybrids choose them, not {}", shape.architecture));
  }
  if (attending.empty()) return fail("attention-layers: a hybrid has at least one");
  for (std::size_t i = 0; i < attending.size(); ++i) {
    if (attending[i] >= shape.layers) {
      return fail(fmt::format("attention-layers: there is no layer {} of {}", attending[i], shape.layers));
    }
    if (i > 0 && attending[i] <= attending[i - 1]) {
      return fail(fmt::format("attention-layers: {} does not come after {}", attending[i], attending[i - 1]));
    }
  }
  return {};
}

Result<void> check_outliers(const Shape& shape, bool attention) {
  if (shape.outliers == 0) return {};
  if (!attention) {
    return fail(fmt::format("outliers: a model of architecture {} has neither keys nor a feed-forward block",
                            shape.architecture));
  }
  const std::uint32_t most = std::min(shape.head_dim, shape.feed_forward) / 4;
  if (shape.outliers % 2 == 0 && shape.outliers <= most) return {};
  return fail(fmt::format("outliers: {} is not an even number of at most {} channels", shape.outliers, most / 2 * 2));
}

}  // namespace

const std::vector<std::string>& shape_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Shape& shape : shapes()) all.push_back(shape.name);
    return all;
  }();
  return names;
}

const Shape* find_shape(std::string_view name) {
  const auto found = std::ranges::find(shapes(), name, &Shape::name);
  return found == shapes().end() ? nullptr : &*found;
}

const std::vector<std::string>& architecture_names() {
  static const std::vector<std::string> names = {"granitehybrid", "llama", "mamba2", "qwen2", "qwen3"};
  return names;
}

Shape usual_shape(std::string_view architecture) {
  Shape shape{.name = std::string(architecture),
              .architecture = std::string(architecture),
              .vocabulary = 32000,
              .context = 4096,
              .tied = architecture != "llama"};
  const auto parts = parts_of(architecture);
  if (parts && parts->recurrence) {
    shape.state = 128;
    shape.groups = 1;
    shape.conv = 4;
  }
  // Other values that are not sizes come from the named models of the family.
  const auto kin = std::ranges::find(shapes(), architecture, &Shape::architecture);
  if (kin != shapes().end()) {
    shape.pre = kin->pre;
    shape.epsilon = kin->epsilon;
    shape.rope_base = kin->rope_base;
    shape.embedding_scale = kin->embedding_scale;
    shape.residual_scale = kin->residual_scale;
  }
  return shape;
}

Shape changed(Shape shape, const Shape& changes) {
  const Shape before = shape;
  bool any = !changes.attention_layers.empty();
  for (const Number& number : kNumbers) {
    if (changes.*number.value == 0) continue;
    shape.*number.value = changes.*number.value;
    any = true;
  }
  if (any) shape.name += "-custom";
  const auto parts = parts_of(shape.architecture);
  if (!parts) return shape;
  if (parts->attention) {
    if (shape.kv_heads == 0) shape.kv_heads = shape.heads;
    const bool divides = before.heads * before.head_dim == before.embedding;
    if (changes.head_dim == 0 && divides && shape.heads != 0) shape.head_dim = shape.embedding / shape.heads;
  }
  if (parts->recurrence) {
    const bool twice = before.inner == 2 * before.embedding;
    if (changes.inner == 0 && twice) shape.inner = 2 * shape.embedding;
    const std::uint32_t channels = before.ssm_heads != 0 ? before.inner / before.ssm_heads : 64;
    if (changes.ssm_heads == 0) shape.ssm_heads = std::max(1u, shape.inner / channels);
  }
  if (!changes.attention_layers.empty()) {
    shape.attention_layers = changes.attention_layers;
  } else {
    std::erase_if(shape.attention_layers, [&](std::uint32_t layer) { return layer >= shape.layers; });
  }
  return shape;
}

Result<void> check_shape(const Shape& shape) {
  const auto parts = parts_of(shape.architecture);
  if (!parts) {
    return fail(fmt::format("arch: '{}' is not one of {}", shape.architecture, fmt::join(architecture_names(), ", ")));
  }
  for (const Number& number : kNumbers) {
    const std::uint32_t value = shape.*number.value;
    const bool has = number.of == Of::all || (number.of == Of::attention ? parts->attention : parts->recurrence);
    if (!has && value != 0) {
      return fail(fmt::format("{}: a model of architecture {} has none", number.name, shape.architecture));
    }
    if (has && (value == 0 || value > number.most)) {
      return fail(value == 0 ? fmt::format("{}: a model of architecture {} needs it", number.name, shape.architecture)
                             : fmt::format("{}: {} is more than {}", number.name, value, number.most));
    }
  }
  // Three special tokens, one token per byte, and the space of SentencePiece.
  constexpr std::uint32_t kFewest = 260;
  if (shape.vocabulary < kFewest) {
    return fail(
        fmt::format("vocabulary: {} tokens are too few to spell every text ({} are not)", shape.vocabulary, kFewest));
  }
  if (parts->attention) {
    if (shape.heads % shape.kv_heads != 0) {
      return fail(fmt::format("kv-heads: {} heads are not a multiple of {}", shape.heads, shape.kv_heads));
    }
    if (shape.head_dim % 2 != 0) {
      return fail(fmt::format("head-dim: {} elements of a head cannot be rotated in pairs", shape.head_dim));
    }
  }
  if (parts->recurrence) {
    if (shape.inner % shape.ssm_heads != 0) {
      return fail(fmt::format("ssm-heads: {} channels do not divide into {} heads", shape.inner, shape.ssm_heads));
    }
    if (shape.ssm_heads % shape.groups != 0) {
      return fail(fmt::format("groups: {} heads do not divide into {} groups", shape.ssm_heads, shape.groups));
    }
  }
  if (auto ok = check_outliers(shape, parts->attention); !ok) return ok;
  return check_attention_layers(shape, parts->attention && parts->recurrence);
}

}  // namespace quire::synth
