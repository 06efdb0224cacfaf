#include "quire/model/tensors.h"

#include <array>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace quire::model {

namespace {

enum class Scope : std::uint8_t { model, layer, attention, recurrent };

enum class Dim : std::uint8_t {
  none,
  embedding,
  vocabulary,
  query,  // heads x key length
  key,    // KV heads x key length
  value,  // KV heads x value length
  qkv,    // the three of them, one behind the other
  mixed,  // heads x value length: what attention gives
  inner,  // Mamba-2's channels
  conv,   // conv kernel
  convolved,
  projected,
  feed_forward,
};

struct Rule {
  std::string_view name;  // without "blk.N."
  // Required, unless the layer has this tensor instead; "-": not required.
  std::string_view instead;
  Scope scope;
  std::array<Dim, 2> shape;  // the length of a row, and how many there are
};
constexpr std::string_view kOptional = "-";

constexpr Rule kRules[] = {
    {"token_embd.weight", "", Scope::model, {Dim::embedding, Dim::vocabulary}},
    {"output_norm.weight", "", Scope::model, {Dim::embedding, Dim::none}},
    {"output.weight", kOptional, Scope::model, {Dim::embedding, Dim::vocabulary}},
    {"attn_norm.weight", "", Scope::layer, {Dim::embedding, Dim::none}},
    {"attn_q.weight", "attn_qkv.weight", Scope::attention, {Dim::embedding, Dim::query}},
    {"attn_k.weight", "attn_qkv.weight", Scope::attention, {Dim::embedding, Dim::key}},
    {"attn_v.weight", "attn_qkv.weight", Scope::attention, {Dim::embedding, Dim::value}},
    {"attn_qkv.weight", kOptional, Scope::attention, {Dim::embedding, Dim::qkv}},
    {"attn_output.weight", "", Scope::attention, {Dim::mixed, Dim::embedding}},
    {"ssm_in.weight", "", Scope::recurrent, {Dim::embedding, Dim::projected}},
    {"ssm_conv1d.weight", "", Scope::recurrent, {Dim::conv, Dim::convolved}},
    {"ssm_out.weight", "", Scope::recurrent, {Dim::inner, Dim::embedding}},
    {"ffn_down.weight", kOptional, Scope::layer, {Dim::feed_forward, Dim::embedding}},
};

std::uint64_t length_of(Dim dim, const Hyperparameters& model, const Layer& layer) {
  const std::uint64_t heads = layer.heads, kv_heads = layer.kv_heads;
  switch (dim) {
    case Dim::none: return 1;
    case Dim::embedding: return model.embedding;
    case Dim::vocabulary: return model.vocabulary;
    case Dim::query: return heads * model.key_length;
    case Dim::key: return kv_heads * model.key_length;
    case Dim::value: return kv_heads * model.value_length;
    case Dim::qkv: return (heads + kv_heads) * model.key_length + kv_heads * model.value_length;
    case Dim::mixed: return heads * model.value_length;
    case Dim::inner: return model.recurrent.inner;
    case Dim::conv: return model.recurrent.conv_kernel;
    case Dim::convolved: return model.recurrent.conv_channels();
    case Dim::projected: return model.recurrent.projection();
    case Dim::feed_forward: return layer.feed_forward;
  }
  return 0;
}

bool applies(Scope scope, const Layer& layer) {
  switch (scope) {
    case Scope::model: return false;
    case Scope::layer: return true;
    case Scope::attention: return layer.kind == Layer::Kind::attention;
    case Scope::recurrent: return layer.kind == Layer::Kind::recurrent;
  }
  return false;
}

Result<void> check(const gguf::File& file, const Hyperparameters& model, const Layer& layer, const std::string& prefix,
                   const Rule& rule) {
  const std::string name = prefix + std::string(rule.name);
  const auto tensor = file.find_tensor(name);
  if (!tensor) {
    if (rule.instead == kOptional) return {};
    if (!rule.instead.empty() && file.find_tensor(prefix + std::string(rule.instead))) return {};
    const auto missing = file.tensor(name);
    return std::unexpected(missing.error());
  }
  const std::uint64_t rows = length_of(rule.shape[1], model, layer);
  const std::uint64_t columns = length_of(rule.shape[0], model, layer);
  if (tensor->shape[0] == columns && tensor->rows() == rows) return {};
  return fail(fmt::format("{}: tensor '{}' has {} rows of {}, but the metadata speak of {} rows of {}", file.path(),
                          name, tensor->rows(), tensor->shape[0], rows, columns));
}

// The N of "blk.N.anything".
std::optional<std::uint64_t> layer_of(std::string_view name) {
  constexpr std::string_view kPrefix = "blk.";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  std::uint64_t number = 0;
  const char* end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data() + kPrefix.size(), end, number);
  if (error != std::errc() || rest == end || *rest != '.') return std::nullopt;
  return number;
}

}  // namespace

Result<void> check_tensors(const gguf::File& file, const Hyperparameters& model) {
  if (file.tensor_count() == 0) return {};
  for (const Rule& rule : kRules) {
    if (rule.scope != Scope::model) continue;
    if (auto ok = check(file, model, Layer(), "", rule); !ok) return ok;
  }
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    const std::string prefix = fmt::format("blk.{}.", i);
    for (const Rule& rule : kRules) {
      if (!applies(rule.scope, model.layers[i])) continue;
      if (auto ok = check(file, model, model.layers[i], prefix, rule); !ok) return ok;
    }
  }
  for (std::size_t i = 0; i < file.tensor_count(); ++i) {
    const auto layer = layer_of(file.tensor(i).name);
    if (layer && *layer >= model.layers.size()) {
      return fail(fmt::format("{}: has a tensor of layer {}, but '{}.block_count' is {}", file.path(), *layer,
                              model.architecture->name, model.layers.size()));
    }
  }
  return {};
}

}  // namespace quire::model
