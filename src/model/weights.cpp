#include "quire/model/weights.h"

#include <cstdint>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace quire::model {
namespace {

class Binder {
 public:
  Binder(const gguf::File& file, const Hyperparameters& model, Weights& weights)
      : file_(file), model_(model), weights_(weights) {}

  void enter(std::size_t layer) { prefix_ = fmt::format("blk.{}.", layer); }
  bool has(std::string_view name) const { return file_.find_tensor(prefix_ + std::string(name)).has_value(); }

  Result<void> matrix(Weight& to, std::string_view name, std::uint64_t rows, std::uint64_t cols) {
    const auto tensor = find(name, rows, cols);
    if (!tensor) return std::unexpected(tensor.error());
    if (!gguf::type_info(tensor->type).dequantizable) {
      return fail(fmt::format("{}: tensor '{}' is of type {}, which Quire cannot compute with", file_.path(),
                              tensor->name, gguf::type_name(tensor->type)));
    }
    to = {tensor->type, static_cast<std::uint32_t>(rows), static_cast<std::uint32_t>(cols), tensor->data.data(),
          tensor->row_bytes()};
    return {};
  }

  Result<void> vector(Vector& to, std::string_view name, std::uint64_t length, bool required = true) {
    if (!required && !has(name)) return {};
    const auto tensor = file_.tensor(prefix_ + std::string(name));
    if (!tensor) return std::unexpected(tensor.error());
    if (tensor->elements() != length) {
      return fail(fmt::format("{}: tensor '{}' has {} elements, {} expected", file_.path(), tensor->name,
                              tensor->elements(), length));
    }
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
      if (ok) ok = vector(bias, "attn_qkv.bias", query + 2 * key, false);
      if (ok && !bias.empty()) {
        to.q_bias = bias.subspan(0, query);
        to.k_bias = bias.subspan(query, key);
        to.v_bias = bias.subspan(query + key, key);
      }
    } else {
      ok = matrix(to.q, "attn_q.weight", query, width);
      if (ok) ok = matrix(to.k, "attn_k.weight", key, width);
      if (ok) ok = matrix(to.v, "attn_v.weight", key, width);
      if (ok) ok = vector(to.q_bias, "attn_q.bias", query, false);
      if (ok) ok = vector(to.k_bias, "attn_k.bias", key, false);
      if (ok) ok = vector(to.v_bias, "attn_v.bias", key, false);
    }
    if (ok) ok = matrix(to.out, "attn_output.weight", width, query);
    if (ok) ok = vector(to.out_bias, "attn_output.bias", width, false);
    if (ok) ok = vector(to.q_norm, "attn_q_norm.weight", head, false);
    if (ok) ok = vector(to.k_norm, "attn_k_norm.weight", head, false);
    return ok;
  }

  Result<void> mamba2(Mamba2Weights& to) {
    const RecurrentShape& shape = model_.recurrent;
    Result<void> ok = matrix(to.in, "ssm_in.weight", shape.projection(), model_.embedding);
    if (ok) ok = matrix(to.out, "ssm_out.weight", model_.embedding, shape.inner);
    if (ok) ok = vector(to.conv, "ssm_conv1d.weight", shape.conv_channels() * shape.conv_kernel);
    if (ok) ok = vector(to.conv_bias, "ssm_conv1d.bias", shape.conv_channels(), false);
    if (ok) ok = vector(to.dt_bias, "ssm_dt.bias", shape.heads);
    if (ok) ok = vector(to.a, "ssm_a", shape.heads);
    if (ok) ok = vector(to.d, "ssm_d", shape.heads);
    if (ok) ok = vector(to.norm, "ssm_norm.weight", shape.inner);
    return ok;
  }

  Result<void> feed_forward(FeedForwardWeights& to, const Layer& layer) {
    const std::uint64_t width = layer.feed_forward;
    Result<void> ok = vector(to.norm, "ffn_norm.weight", model_.embedding);
    if (ok && has("ffn_gate.weight")) {
      ok = matrix(to.gate, "ffn_gate.weight", width, model_.embedding);
      if (ok) ok = matrix(to.up, "ffn_up.weight", width, model_.embedding);
    } else if (ok) {
      // One matrix for both: the gate's rows stand first.
      Weight both;
      ok = matrix(both, "ffn_up.weight", 2 * width, model_.embedding);
      to.gate = both.part(0, layer.feed_forward);
      to.up = both.part(layer.feed_forward, layer.feed_forward);
    }
    if (ok) ok = matrix(to.down, "ffn_down.weight", model_.embedding, width);
    if (ok) ok = vector(to.post_norm, "post_ffw_norm.weight", model_.embedding, false);
    return ok;
  }

 private:
  Result<gguf::Tensor> find(std::string_view name, std::uint64_t rows, std::uint64_t cols) const {
    auto tensor = file_.tensor(prefix_ + std::string(name));
    if (!tensor) return tensor;
    if (tensor->shape[0] != cols || tensor->rows() != rows) {
      return fail(fmt::format("{}: tensor '{}' has {} rows of {}, {} of {} expected", file_.path(), tensor->name,
                              tensor->rows(), tensor->shape[0], rows, cols));
    }
    return tensor;
  }

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
    if (ok) ok = bind.vector(to.post_norm, "post_attention_norm.weight", model.embedding, false);
    if (ok && layer.feed_forward > 0) ok = bind.feed_forward(to.feed_forward.emplace(), layer);
  }
  if (!ok) return std::unexpected(ok.error());
  return weights;
}

}  // namespace quire::model
