#include "quire/model/tensors.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "quire/gguf/message.h"

namespace quire::model {

namespace {

// Where a tensor has its place.
enum class Scope : std::uint8_t {
  model,
  rotary,        // of the model, where it has attention
  layer,         // in every layer
  attention,     // in layers of that kind
  separate,      // with a matrix each for queries, keys and values
  fused,         // with one for the three
  recurrent,     // in layers of that kind
  feed_forward,  // in layers with such a part
  own_gate,      // whose gate has a matrix to itself
};

enum class Dim : std::uint8_t {
  none,
  any,  // looked at where it is read
  embedding,
  vocabulary,
  head,
  query,  // heads x key length
  key,    // KV heads x key length
  value,  // KV heads x value length
  qkv,    // the three of them, one behind the other
  mixed,  // heads x value length: what attention gives
  inner,  // Mamba-2's channels
  conv,   // conv kernel
  convolved,
  projected,
  recurrent_heads,
  feed_forward,
  up,  // twice that where the gate stands before it
};

enum class Use : std::uint8_t { required, optional, unknown };

struct Rule {
  std::string_view name;  // without "blk.N."
  Scope scope;
  std::array<Dim, 2> shape;            // the length of a row, and how many there are; none: a vector
  Use use = Use::required;             // unless the architecture's row has
  bool Architecture::*part = nullptr;  // this, which makes it required
};

// All that Quire computes with. What a file has besides is refused: without it the numbers would be wrong.
constexpr Rule kRules[] = {
    {"token_embd.weight", Scope::model, {Dim::embedding, Dim::vocabulary}},
    {"output_norm.weight", Scope::model, {Dim::embedding}},
    {"output.weight", Scope::model, {Dim::embedding, Dim::vocabulary}, Use::optional},
    {"rope_freqs.weight", Scope::rotary, {Dim::any}, Use::optional},
    // Known, so that a file with them can be described; constants.cpp says why it cannot be run.
    {"rope_factors_long.weight", Scope::rotary, {Dim::any}, Use::optional},
    {"rope_factors_short.weight", Scope::rotary, {Dim::any}, Use::optional},

    {"attn_norm.weight", Scope::layer, {Dim::embedding}},
    {"attn_q.weight", Scope::separate, {Dim::embedding, Dim::query}},
    {"attn_k.weight", Scope::separate, {Dim::embedding, Dim::key}},
    {"attn_v.weight", Scope::separate, {Dim::embedding, Dim::value}},
    {"attn_qkv.weight", Scope::fused, {Dim::embedding, Dim::qkv}},
    {"attn_output.weight", Scope::attention, {Dim::mixed, Dim::embedding}},
    {"attn_q.bias", Scope::separate, {Dim::query}, Use::optional, &Architecture::projection_biases},
    {"attn_k.bias", Scope::separate, {Dim::key}, Use::optional, &Architecture::projection_biases},
    {"attn_v.bias", Scope::separate, {Dim::value}, Use::optional, &Architecture::projection_biases},
    {"attn_qkv.bias", Scope::fused, {Dim::qkv}, Use::optional, &Architecture::projection_biases},
    {"attn_output.bias", Scope::attention, {Dim::embedding}, Use::optional},
    {"attn_q_norm.weight", Scope::attention, {Dim::head}, Use::unknown, &Architecture::head_norms},
    {"attn_k_norm.weight", Scope::attention, {Dim::head}, Use::unknown, &Architecture::head_norms},

    {"ssm_in.weight", Scope::recurrent, {Dim::embedding, Dim::projected}},
    {"ssm_conv1d.weight", Scope::recurrent, {Dim::conv, Dim::convolved}},
    {"ssm_conv1d.bias", Scope::recurrent, {Dim::convolved}, Use::optional, &Architecture::convolution_bias},
    {"ssm_dt.bias", Scope::recurrent, {Dim::recurrent_heads}},
    {"ssm_a", Scope::recurrent, {Dim::recurrent_heads}},
    {"ssm_d", Scope::recurrent, {Dim::recurrent_heads}},
    {"ssm_norm.weight", Scope::recurrent, {Dim::inner}},
    {"ssm_out.weight", Scope::recurrent, {Dim::inner, Dim::embedding}},

    {"post_attention_norm.weight", Scope::layer, {Dim::embedding}, Use::unknown, &Architecture::post_norms},
    {"ffn_norm.weight", Scope::feed_forward, {Dim::embedding}},
    {"ffn_gate.weight", Scope::own_gate, {Dim::embedding, Dim::feed_forward}},
    {"ffn_up.weight", Scope::feed_forward, {Dim::embedding, Dim::up}},
    {"ffn_down.weight", Scope::feed_forward, {Dim::feed_forward, Dim::embedding}},
    {"post_ffw_norm.weight", Scope::feed_forward, {Dim::embedding}, Use::unknown, &Architecture::post_norms},
};

std::uint64_t length_of(Dim dim, const Hyperparameters& model, const Layer& layer) {
  const std::uint64_t heads = layer.heads, kv_heads = layer.kv_heads;
  switch (dim) {
    case Dim::none:
    case Dim::any: return 1;
    case Dim::embedding: return model.embedding;
    case Dim::vocabulary: return model.vocabulary;
    case Dim::head: return model.key_length;
    case Dim::query: return heads * model.key_length;
    case Dim::key: return kv_heads * model.key_length;
    case Dim::value: return kv_heads * model.value_length;
    case Dim::qkv: return (heads + kv_heads) * model.key_length + kv_heads * model.value_length;
    case Dim::mixed: return heads * model.value_length;
    case Dim::inner: return model.recurrent.inner;
    case Dim::conv: return model.recurrent.conv_kernel;
    case Dim::convolved: return model.recurrent.conv_channels();
    case Dim::projected: return model.recurrent.projection();
    case Dim::recurrent_heads: return model.recurrent.heads;
    case Dim::feed_forward: return layer.feed_forward;
    case Dim::up: return (model.architecture->gate_in_up ? 2 : 1) * std::uint64_t{layer.feed_forward};
  }
  return 0;
}

// The model as a whole, or one of its layers.
class Place {
 public:
  Place(const gguf::File& file, const Hyperparameters& model) : file_(file), model_(model) {}
  Place(const gguf::File& file, const Hyperparameters& model, std::size_t layer)
      : file_(file), model_(model), layer_(&model.layers[layer]), prefix_(fmt::format("blk.{}.", layer)) {
    fused_ = file.find_tensor(name_of("attn_qkv.weight")).has_value();
  }

  std::string name_of(std::string_view name) const { return prefix_ + std::string(name); }
  bool has(const Rule& rule) const { return file_.find_tensor(name_of(rule.name)).has_value(); }

  Use use_of(const Rule& rule) const {
    if (!is_in(rule.scope)) return Use::unknown;
    return rule.part != nullptr && model_.architecture->*rule.part ? Use::required : rule.use;
  }

  bool knows(std::string_view name) const {
    // Which tensors experts have is not for this table to say as long as no model with them can be run.
    if (layer_ != nullptr && model_.experts > 0 && name.starts_with("ffn_")) return true;
    return std::ranges::any_of(kRules,
                               [&](const Rule& rule) { return rule.name == name && use_of(rule) != Use::unknown; });
  }

  Result<void> check(const Rule& rule) const {
    const Use use = use_of(rule);
    if (use == Use::unknown) return {};
    const std::string name = name_of(rule.name);
    const auto tensor = file_.tensor(name);
    if (!tensor) return use == Use::optional ? Result<void>() : std::unexpected(tensor.error());
    if (rule.shape[0] == Dim::any) return {};
    const Layer none;
    const std::uint64_t columns = length_of(rule.shape[0], model_, layer_ != nullptr ? *layer_ : none);
    const std::uint64_t rows = length_of(rule.shape[1], model_, layer_ != nullptr ? *layer_ : none);
    if (rule.shape[1] == Dim::none) {
      // Converters write some vectors as matrices with one row or one column.
      if (tensor->elements() == columns) return {};
      return fail(fmt::format("{}: tensor '{}' has {} elements, but the metadata speak of {}", file_.path(), name,
                              tensor->elements(), columns));
    }
    if (tensor->shape[0] == columns && tensor->rows() == rows) return {};
    return fail(fmt::format("{}: tensor '{}' has {} rows of {}, but the metadata speak of {} rows of {}", file_.path(),
                            name, tensor->rows(), tensor->shape[0], rows, columns));
  }

 private:
  bool is_in(Scope scope) const {
    if (layer_ == nullptr) {
      return scope == Scope::model || (scope == Scope::rotary && model_.count(Layer::Kind::attention) > 0);
    }
    const bool attention = layer_->kind == Layer::Kind::attention;
    const bool feed_forward = layer_->feed_forward > 0 && model_.experts == 0;
    switch (scope) {
      case Scope::model:
      case Scope::rotary: return false;
      case Scope::layer: return true;
      case Scope::attention: return attention;
      case Scope::separate: return attention && !fused_;
      case Scope::fused: return attention && fused_;
      case Scope::recurrent: return !attention;
      case Scope::feed_forward: return feed_forward;
      case Scope::own_gate: return feed_forward && !model_.architecture->gate_in_up;
    }
    return false;
  }

  const gguf::File& file_;
  const Hyperparameters& model_;
  const Layer* layer_ = nullptr;
  std::string prefix_;
  bool fused_ = false;
};

// "blk.N.rest". A number that is not written as anyone would write it makes it another name.
struct LayerName {
  std::uint64_t layer = 0;
  std::string_view rest;
};
std::optional<LayerName> split(std::string_view name) {
  constexpr std::string_view kPrefix = "blk.";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  LayerName parts;
  const char* begin = name.data() + kPrefix.size();
  const char* end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(begin, end, parts.layer);
  if (error != std::errc() || rest == end || *rest != '.' || (*begin == '0' && rest - begin > 1)) return std::nullopt;
  parts.rest = name.substr(static_cast<std::size_t>(rest + 1 - name.data()));
  return parts;
}

Result<void> refuse_unknown(const gguf::File& file, const Hyperparameters& model) {
  for (std::size_t i = 0; i < file.tensor_count(); ++i) {
    const gguf::Tensor tensor = file.tensor(i);
    const auto parts = split(tensor.name);
    if (parts && parts->layer >= model.layers.size()) {
      return fail(fmt::format("{}: has a tensor of layer {}, but '{}.block_count' is {}", file.path(), parts->layer,
                              model.architecture->name, model.layers.size()));
    }
    const bool known =
        parts ? Place(file, model, parts->layer).knows(parts->rest) : Place(file, model).knows(tensor.name);
    if (known) continue;
    return fail(fmt::format("{}: tensor {} is none that Quire computes with in a model of architecture '{}'",
                            file.path(), gguf::quoted(tensor.name), model.architecture->name));
  }
  return {};
}

// What a file may have or not, it has in all layers or in none: one that has lost some of them is not the same model.
Result<void> refuse_gaps(const gguf::File& file, const Hyperparameters& model, const Rule& rule) {
  std::string missing;
  bool found = false;
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    const Place place(file, model, i);
    if (place.use_of(rule) != Use::optional) continue;
    if (place.has(rule)) {
      found = true;
    } else if (missing.empty()) {
      missing = place.name_of(rule.name);
    }
  }
  if (!found || missing.empty()) return {};
  return fail(fmt::format("{}: has no tensor '{}', but other layers have theirs", file.path(), missing));
}

}  // namespace

Result<void> check_tensors(const gguf::File& file, const Hyperparameters& model) {
  if (file.tensor_count() == 0) return {};
  const Place whole(file, model);
  for (const Rule& rule : kRules) {
    if (auto ok = whole.check(rule); !ok) return ok;
  }
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    const Place layer(file, model, i);
    for (const Rule& rule : kRules) {
      if (auto ok = layer.check(rule); !ok) return ok;
    }
  }
  for (const Rule& rule : kRules) {
    if (rule.use != Use::optional) continue;
    if (auto ok = refuse_gaps(file, model, rule); !ok) return ok;
  }
  return refuse_unknown(file, model);
}

}  // namespace quire::model
