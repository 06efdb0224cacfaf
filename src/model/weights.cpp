#include "quire/model/weights.h"

#include <cstdint>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "quire/base/check.h"

namespace quire::model {
namespace {

class Binder {
 public:
  Binder(const gguf::File& file, const Hyperparameters& model, Weights& weights)
      : file_(file), model_(model), weights_(weights) {}

  void enter(std::size_t layer) { prefix_ = fmt::format("blk.{}.", layer); }
  bool has(std::string_view name) const { return file_.find_tensor(prefix_ + std::string(name)).has_value(); }

  Result<void> matrix(Weight& to, std::string_view name, std::uint64_t rows, std::uint64_t cols) {
    const auto tensor = file_.tensor(prefix_ + std::string(name));
    if (!tensor) return std::unexpected(tensor.error());
    QUIRE_CHECK(tensor->shape[0] == cols && tensor->rows() == rows, "check_tensors() lets only this shape pass");
    if (!gguf::type_info(tensor->type).dequantizable) {
      return fail(fmt::format("{}: tensor '{}' is of type {}, which Quire cannot compute with", file_.path(),
                              tensor->name, gguf::type_name(tensor->type)));
    }
    to = {tensor->type, static_cast<std::uint32_t>(rows), static_cast<std::uint32_t>(cols), tensor->data.data(),
          tensor->row_bytes()};
    return {};
  }

  // One that a file of this architecture may do without.
  Result<void> vector_if_any(Vector& to, std::string_view name, std::uint64_t length) {
    return has(name) ? vector(to, name, length) : Result<void>();
  }

  Result<void> vector(Vector& to, std::string_view name, std::uint64_t length) {
    const auto tensor = file_.tensor(prefix_ + std::string(name));
    if (!tensor) return std::unexpected(tensor.error());
    QUIRE_CHECK(tensor->elements() == length, "check_tensors() lets only this length pass");
    if (tensor->type == gguf::Type::F32 &&
        reinterpret_cast<std::uintptr_t>(tensor->data.data()) % alignof(float) == 0) {
      to = {reinterpret_cast<const float*>(tensor->data.data()), length};
      return {};
    }
    std::vector<float>& values = weights_.converted.emplace_back(length);
    if (const auto ok = gguf::dequantize(tensor->type, tensor->data, values); !ok) {
      return fail(fmt::format("{}: tensor '{}': {}", file_.path(), tensor->name, ok.error().message));
    }
    to = values;
    return {};
  }

  // [rows][cols] as [cols][rows].
  Vector turned(Vector values, std::size_t cols) {
    std::vector<float>& to = weights_.converted.emplace_back(values.size());
    const std::size_t rows = values.size() / cols;
    for (std::size_t i = 0; i < values.size(); ++i) to[i % cols * rows + i / cols] = values[i];
    return to;
  }

  // A layer of each kind. Results are collected in one place: the first failure is the answer.
  Result<void> attention(AttentionWeights& to, const Layer& layer) {
    const std::uint64_t width = model_.embedding, head = model_.key_length;
    const std::uint64_t query = layer.heads * head, key = layer.kv_heads * head;
    Result<void> ok;
    if (has("attn_qkv.weight")) {
      Weight all;
      ok = matrix(all, "attn_qkv.weight", query + 2 * key, width);
      to.q = all.part(0, static_cast<std::uint32_t>(query));
      to.k = all.part(static_cast<std::uint32_t>(query), static_cast<std::uint32_t>(key));
      to.v = all.part(static_cast<std::uint32_t>(query + key), static_cast<std::uint32_t>(key));
      Vector bias;
      if (ok) ok = vector_if_any(bias, "attn_qkv.bias", query + 2 * key);
      if (ok && !bias.empty()) {
        to.q_bias = bias.subspan(0, query);
        to.k_bias = bias.subspan(query, key);
        to.v_bias = bias.subspan(query + key, key);
      }
    } else {
      ok = matrix(to.q, "attn_q.weight", query, width);
      if (ok) ok = matrix(to.k, "attn_k.weight", key, width);
      if (ok) ok = matrix(to.v, "attn_v.weight", key, width);
      if (ok) ok = vector_if_any(to.q_bias, "attn_q.bias", query);
      if (ok) ok = vector_if_any(to.k_bias, "attn_k.bias", key);
      if (ok) ok = vector_if_any(to.v_bias, "attn_v.bias", key);
    }
    if (ok) ok = matrix(to.out, "attn_output.weight", width, query);
    if (ok) ok = vector_if_any(to.out_bias, "attn_output.bias", width);
    if (!model_.architecture->head_norms) return ok;
    if (ok) ok = vector(to.q_norm, "attn_q_norm.weight", head);
    if (ok) ok = vector(to.k_norm, "attn_k_norm.weight", head);
    return ok;
  }

  Result<void> mamba2(Mamba2Weights& to) {
    const RecurrentShape& shape = model_.recurrent;
    Result<void> ok = matrix(to.in, "ssm_in.weight", shape.projection(), model_.embedding);
    if (ok) ok = matrix(to.out, "ssm_out.weight", model_.embedding, shape.inner);
    if (ok) ok = vector(to.conv, "ssm_conv1d.weight", shape.conv_channels() * shape.conv_kernel);
    if (ok) to.conv = turned(to.conv, shape.conv_kernel);
    if (ok) ok = vector_if_any(to.conv_bias, "ssm_conv1d.bias", shape.conv_channels());
    if (ok) ok = vector(to.dt_bias, "ssm_dt.bias", shape.heads);
    if (ok) ok = vector(to.a, "ssm_a", shape.heads);
    if (ok) ok = vector(to.d, "ssm_d", shape.heads);
    if (ok) ok = vector(to.norm, "ssm_norm.weight", shape.inner);
    return ok;
  }

  Result<void> feed_forward(FeedForwardWeights& to, const Layer& layer) {
    const std::uint64_t width = layer.feed_forward;
    Result<void> ok = vector(to.norm, "ffn_norm.weight", model_.embedding);
    if (ok && !model_.architecture->gate_in_up) {
      ok = matrix(to.gate, "ffn_gate.weight", width, model_.embedding);
      if (ok) ok = matrix(to.up, "ffn_up.weight", width, model_.embedding);
    } else if (ok) {
      Weight both;
      ok = matrix(both, "ffn_up.weight", 2 * width, model_.embedding);
      to.gate = both.part(0, layer.feed_forward);
      to.up = both.part(layer.feed_forward, layer.feed_forward);
    }
    if (ok) ok = matrix(to.down, "ffn_down.weight", model_.embedding, width);
    if (ok && model_.architecture->post_norms) ok = vector(to.post_norm, "post_ffw_norm.weight", model_.embedding);
    return ok;
  }

 private:
  const gguf::File& file_;
  const Hyperparameters& model_;
  Weights& weights_;
  std::string prefix_;
};

}  // namespace

Result<Weights> load_weights(const gguf::File& file, const Hyperparameters& model) {
  Weights weights;
  Binder bind(file, model, weights);
  Result<void> ok = bind.matrix(weights.embedding, "token_embd.weight", model.vocabulary, model.embedding);
  if (ok) ok = bind.vector(weights.norm, "output_norm.weight", model.embedding);
  if (ok && bind.has("output.weight")) {
    ok = bind.matrix(weights.output, "output.weight", model.vocabulary, model.embedding);
  } else {
    weights.output = weights.embedding;
  }
  for (std::size_t i = 0; ok && i < model.layers.size(); ++i) {
    bind.enter(i);
    const Layer& layer = model.layers[i];
    LayerWeights& to = weights.layers.emplace_back();
    ok = bind.vector(to.norm, "attn_norm.weight", model.embedding);
    if (!ok) break;
    if (layer.kind == Layer::Kind::attention) {
      ok = bind.attention(to.mixer.emplace<AttentionWeights>(), layer);
    } else {
      ok = bind.mamba2(to.mixer.emplace<Mamba2Weights>());
    }
    if (ok && model.architecture->post_norms) {
      ok = bind.vector(to.post_norm, "post_attention_norm.weight", model.embedding);
    }
    if (ok && layer.feed_forward > 0) ok = bind.feed_forward(to.feed_forward.emplace(), layer);
  }
  if (!ok) return std::unexpected(ok.error());
  return weights;
}

}  // namespace quire::model
