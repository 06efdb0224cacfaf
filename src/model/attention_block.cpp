#include "quire/model/attention_block.h"

#include <algorithm>

#include "quire/model/key_balance.h"
#include "quire/model/loader.h"

namespace quire::model {

AttentionBlock::AttentionBlock(const Hyperparameters& model, const Layer& layer)
    : row_(model.architecture),
      width_(model.embedding),
      heads_(layer.heads),
      kv_heads_(layer.kv_heads),
      head_dim_(model.key_length),
      value_dim_(model.value_length),
      window_(layer.window),
      rotated_(!layer.unrotated) {}

void AttentionBlock::declare(TensorTable& table) {
  const std::uint64_t query = (row_->gated_attention ? 2 : 1) * std::uint64_t{heads_} * head_dim_;
  const std::uint64_t key = std::uint64_t{kv_heads_} * head_dim_;
  const std::uint64_t value = std::uint64_t{kv_heads_} * value_dim_, output = std::uint64_t{heads_} * value_dim_;
  // A bias that the architecture does not require is allowed, since it can mean only one thing.
  const Presence biases = row_->projection_biases ? Presence::Required : Presence::Optional;
  if (table.file_has("attn_qkv.weight")) {
    table.fused_matrix("attn_qkv.weight", width_, {{&q_, query}, {&k_, key}, {&v_, value}});
    table.fused_vector("attn_qkv.bias", {{&q_bias_, query}, {&k_bias_, key}, {&v_bias_, value}}, biases);
  } else {
    table.matrix("attn_q.weight", query, width_, q_);
    table.matrix("attn_k.weight", key, width_, k_);
    table.matrix("attn_v.weight", value, width_, v_);
    table.vector("attn_q.bias", query, q_bias_, biases);
    table.vector("attn_k.bias", key, k_bias_, biases);
    table.vector("attn_v.bias", value, v_bias_, biases);
  }
  table.matrix("attn_output.weight", width_, output, out_);
  table.vector("attn_output.bias", width_, out_bias_, Presence::Optional);
  if (row_->head_norms) {
    table.vector("attn_q_norm.weight", head_dim_, q_norm_);
    table.vector("attn_k_norm.weight", head_dim_, k_norm_);
  } else if (row_->wide_norms) {
    table.vector("attn_q_norm.weight", query, q_norm_);
    table.vector("attn_k_norm.weight", key, k_norm_);
  }
}

LayerDesc AttentionBlock::state(ElementType kv_type, ElementType) const {
  return LayerDesc::attention(kv_heads_, head_dim_, kv_type, window_);
}

Result<void> AttentionBlock::compute(const FileSources& file, const Tensor& norm, const Constants& constants,
                                     std::vector<HostVector>& computed) {
  key_balance_ = {};
  const auto input_norm = file.vector(norm), bias = file.vector(k_bias_), head_norm = file.vector(k_norm_);
  for (const auto* read : {&input_norm, &bias, &head_norm}) {
    if (!*read) return std::unexpected(read->error());
  }
  auto factors =
      key_balance({.projection = *file.matrix(k_), .input_norm = *input_norm, .bias = *bias, .head_norm = *head_norm},
                  {.head_dim = head_dim_,
                   .rotary_pairs = rotated_ ? static_cast<std::uint32_t>(constants.frequencies.size()) : 0,
                   .order = row_->rope_pairs});
  if (!factors) return std::unexpected(factors.error());
  const bool any = std::ranges::any_of(*factors, [](float factor) { return factor != 1; });
  if (any) computed.push_back({std::move(*factors), &key_balance_});
  return {};
}

std::uint64_t AttentionBlock::scratch_bytes(std::uint32_t rows) const {
  const std::uint64_t query = std::uint64_t{heads_} * head_dim_, key = std::uint64_t{kv_heads_} * head_dim_;
  const std::uint64_t gated = row_->gated_attention ? query : 0;
  return Scratch::bytes_for(rows, {query, key, key, query, gated, 2 * gated});
}

void AttentionBlock::widen(Backend::Sizes& sizes) const {
  sizes.heads = std::max(sizes.heads, heads_);
  sizes.attention_cols = std::max(sizes.attention_cols, heads_ * head_dim_);
  sizes.cols = std::max(sizes.cols, heads_ * head_dim_);
}

void AttentionBlock::forward(const BlockStep& step, const Input& in, Product out) const {
  const std::uint32_t rows = in.x.rows;
  Scratch scratch(step.scratch);
  const Tensor q = scratch.take(rows, heads_ * head_dim_);
  const Tensor k = scratch.take(rows, kv_heads_ * head_dim_);
  const Tensor v = scratch.take(rows, kv_heads_ * head_dim_);
  const Tensor attended = scratch.take(rows, heads_ * head_dim_);
  const bool gated = row_->gated_attention;
  const Tensor gate = gated ? scratch.take(rows, heads_ * head_dim_) : Tensor{};
  const Tensor both = gated ? scratch.take(rows, 2 * heads_ * head_dim_) : Tensor{};
  const Product products[] = {{.out = gated ? both : q, .weight = &q_, .bias = q_bias_},
                              {.out = k, .weight = &k_, .bias = k_bias_},
                              {.out = v, .weight = &v_, .bias = v_bias_}};
  backend().matmul(products, in);
  if (gated) backend().split_query_gate(q, gate, both, head_dim_);
  const AttentionShape shape{.group = place().group,
                             .layer = place().index,
                             .heads = heads_,
                             .kv_heads = kv_heads_,
                             .head_dim = head_dim_,
                             .scale = step.constants.attention_scale,
                             .soft_cap = step.constants.attention_cap,
                             .window = window_};
  HeadChanges changes{.q_norm = q_norm_,
                      .k_norm = k_norm_,
                      .epsilon = step.constants.epsilon,
                      .pairs = row_->rope_pairs,
                      .key_balance = key_balance_};
  if (rotated_) {
    changes.cosines = window_ != 0 ? step.window_cosines : step.cosines;
    changes.sines = window_ != 0 ? step.window_sines : step.sines;
  }
  backend().store_kv(shape, q, k, v, changes);
  backend().attention(attended, q, shape);
  out.weight = &out_;
  out.bias = out_bias_;
  backend().matmul({&out, 1}, gated ? Input::gated(gate, attended, Activation::Sigmoid) : Input::plain(attended));
}

}  // namespace quire::model
