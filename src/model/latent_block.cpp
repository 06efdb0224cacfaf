#include "quire/model/latent_block.h"

#include <algorithm>

namespace quire::model {

LatentBlock::LatentBlock(const Hyperparameters& model, const Layer& layer)
    : row_(model.architecture), shape_(model.latent), width_(model.embedding), heads_(layer.heads) {}

void LatentBlock::declare(TensorTable& table) {
  const std::uint64_t query = std::uint64_t{heads_} * shape_.query();
  if (shape_.q_rank > 0) {
    table.matrix("attn_q_a.weight", shape_.q_rank, width_, q_a_);
    table.vector("attn_q_a_norm.weight", shape_.q_rank, q_a_norm_);
    table.matrix("attn_q_b.weight", query, shape_.q_rank, q_);
  } else {
    table.matrix("attn_q.weight", query, width_, q_);
  }
  table.matrix("attn_kv_a_mqa.weight", shape_.row(), width_, kv_a_);
  table.vector("attn_kv_a_norm.weight", shape_.kv_rank, kv_a_norm_);
  declare_heads(table);
  table.matrix("attn_output.weight", width_, std::uint64_t{heads_} * shape_.value, out_);
}

// Older files have the projections of keys and values in one matrix: for each head `plain` rows for keys, then `value`
// rows for values. Those for keys are transposed.
void LatentBlock::declare_heads(TensorTable& table) {
  if (table.file_has("attn_kv_b.weight") && !table.file_has("attn_k_b.weight")) {
    table.stack("attn_kv_b.weight", heads_, shape_.kv_rank, {{&k_b_, shape_.plain, true}, {&v_b_, shape_.value}},
                WeightUse::Heads);
    return;
  }
  table.stack("attn_k_b.weight", heads_, shape_.plain, {{&k_b_, shape_.kv_rank}}, WeightUse::Heads);
  table.stack("attn_v_b.weight", heads_, shape_.kv_rank, {{&v_b_, shape_.value}}, WeightUse::Heads);
  table.known("attn_kv_b.weight");  // some files have both
}

LayerDesc LatentBlock::state(ElementType kv_type, ElementType) const {
  return LayerDesc::latent(shape_.row(), kv_type);
}

std::uint64_t LatentBlock::scratch_bytes(std::uint32_t rows) const {
  const std::uint64_t heads = heads_;
  return Scratch::bytes_for(rows, {shape_.q_rank, heads * shape_.query(), shape_.row(), heads * shape_.row(),
                                   heads * shape_.kv_rank, heads * shape_.value});
}

void LatentBlock::widen(Backend::Sizes& sizes) const {
  sizes.heads = std::max(sizes.heads, heads_);
  sizes.attention_cols = std::max(sizes.attention_cols, heads_ * shape_.row());
  sizes.cols =
      std::max({sizes.cols, shape_.q_rank, heads_ * shape_.plain, heads_ * shape_.kv_rank, heads_ * shape_.value});
}

// Queries, and the row that the pool keeps, both before they are rotated. `low`: the vector that queries are computed
// from, if there is one.
void LatentBlock::project(const BlockStep& step, const Input& in, Tensor low, Tensor q, Tensor row) const {
  const float epsilon = step.constants.epsilon;
  const bool direct = shape_.q_rank == 0;
  const Product products[] = {{.out = direct ? q : low, .weight = direct ? &q_ : &q_a_},
                              {.out = row, .weight = &kv_a_}};
  backend().matmul(products, in);
  if (!direct) {
    const Product product{.out = q, .weight = &q_};
    backend().matmul({&product, 1}, Input::normed(low, q_a_norm_, epsilon));
  }
  const Tensor latent = row.columns(0, shape_.kv_rank);
  backend().rms_norm(latent, latent, kv_a_norm_, epsilon);
}

void LatentBlock::forward(const BlockStep& step, const Input& in, Product out) const {
  const std::uint32_t rows = in.x.rows;
  Scratch scratch(step.scratch);
  const Tensor low = scratch.take(rows, shape_.q_rank);
  const Tensor q = scratch.take(rows, heads_ * shape_.query());
  const Tensor row = scratch.take(rows, shape_.row());
  const Tensor absorbed = scratch.take(rows, heads_ * shape_.row());  // queries for the row
  const Tensor attended = scratch.take(rows, heads_ * shape_.kv_rank);
  const Tensor values = scratch.take(rows, heads_ * shape_.value);
  project(step, in, low, q, row);
  backend().matmul_heads({.out = absorbed, .x = q, .weight = &k_b_});
  const AttentionShape shape{.group = place().group,
                             .layer = place().index,
                             .heads = heads_,
                             .kv_heads = 1,
                             .head_dim = shape_.row(),
                             .value_dim = shape_.kv_rank,
                             .scale = step.constants.attention_scale,
                             .soft_cap = step.constants.attention_cap};
  backend().store_kv(
      shape, absorbed, row, {},
      {.cosines = step.cosines, .sines = step.sines, .rotated_from = shape_.kv_rank, .pairs = row_->rope_pairs});
  backend().attention(attended, absorbed, shape);
  backend().matmul_heads({.out = values, .x = attended, .weight = &v_b_});
  out.weight = &out_;
  backend().matmul({&out, 1}, Input::plain(values));
}

}  // namespace quire::model
