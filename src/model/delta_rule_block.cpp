#include "quire/model/delta_rule_block.h"

#include <algorithm>

#include "quire/model/loader.h"

namespace quire::model {

DeltaRuleBlock::DeltaRuleBlock(const Hyperparameters& model)
    : tiled_(model.architecture->value_heads_tiled), width_(model.embedding), shape_(model.recurrent) {}

void DeltaRuleBlock::declare(TensorTable& table) {
  fused_gates_ = table.file_has("ssm_ba.weight");
  table.matrix("attn_qkv.weight", shape_.conv_channels(), width_, qkv_);
  table.matrix("attn_gate.weight", shape_.inner, width_, gate_);
  if (fused_gates_) {
    table.matrix("ssm_ba.weight", 2 * std::uint64_t{shape_.heads}, width_, beta_alpha_);
  } else {
    table.matrix("ssm_alpha.weight", shape_.heads, width_, alpha_);
    table.matrix("ssm_beta.weight", shape_.heads, width_, beta_);
  }
  table.transposed("ssm_conv1d.weight", shape_.conv_channels(), shape_.conv_kernel, conv_);
  table.vector("ssm_dt.bias", shape_.heads, dt_bias_);
  table.vector("ssm_a", shape_.heads, a_);
  table.vector("ssm_norm.weight", shape_.inner / shape_.heads, head_norm_);
  table.matrix("ssm_out.weight", width_, shape_.inner, out_);
}

// A matrix for each head: an element of it for each pair of elements of a key and a value.
LayerDesc DeltaRuleBlock::state(ElementType, ElementType state_type) const {
  return LayerDesc::recurrent((shape_.conv_kernel - 1) * shape_.conv_channels() * sizeof(float),
                              std::uint64_t{shape_.inner} * shape_.state * element_bytes(state_type), state_type);
}

// All heads have the same norm weights. The product wants one for each column.
Result<void> DeltaRuleBlock::compute(const FileSources& file, const Tensor&, const Constants&,
                                     std::vector<HostVector>& computed) {
  const auto one = file.vector(head_norm_);
  if (!one) return std::unexpected(one.error());
  std::vector<float> all;
  all.reserve(shape_.inner);
  for (std::uint32_t head = 0; head < shape_.heads; ++head) all.insert(all.end(), one->begin(), one->end());
  computed.push_back({std::move(all), &norm_});
  return {};
}

std::uint64_t DeltaRuleBlock::scratch_bytes(std::uint32_t rows) const {
  return Scratch::bytes_for(rows,
                            {shape_.conv_channels(), shape_.inner, 2 * std::uint64_t{shape_.heads}, shape_.inner});
}

void DeltaRuleBlock::widen(Backend::Sizes& sizes) const {
  sizes.recurrent_heads = std::max(sizes.recurrent_heads, shape_.heads);
  sizes.cols = std::max(sizes.cols, shape_.inner);
}

void DeltaRuleBlock::forward(const BlockStep& step, const Input& in, Product out) const {
  constexpr float kEpsilon = 1e-6f;  // of the norms of queries and keys; no file names it
  const std::uint32_t rows = in.x.rows, inner = shape_.inner, heads = shape_.heads, keys = shape_.groups * shape_.state;
  const auto channels = static_cast<std::uint32_t>(shape_.conv_channels());
  const std::uint32_t shared = heads / shape_.groups;  // heads of a key head
  Scratch scratch(step.scratch);
  const Tensor qkv = scratch.take(rows, channels), gate = scratch.take(rows, inner);
  const Tensor gates = scratch.take(rows, 2 * heads), read = scratch.take(rows, inner);
  // Where the file has one matrix, betas and alphas of a key head are side by side.
  const Tensor beta = fused_gates_ ? gates : gates.columns(0, heads);
  const Tensor alpha = fused_gates_ ? gates.columns(shared, 2 * heads - shared) : gates.columns(heads, heads);
  const Product products[] = {{.out = qkv, .weight = &qkv_},
                              {.out = gate, .weight = &gate_},
                              {.out = beta, .weight = fused_gates_ ? &beta_alpha_ : &beta_},
                              {.out = alpha, .weight = &alpha_}};
  backend().matmul({products, fused_gates_ ? 3u : 4u}, in);
  backend().convolve(qkv, {}, conv_, {}, {.layer = place().index, .channels = channels, .width = shape_.conv_kernel});
  backend().delta_rule(read, qkv.columns(0, keys), qkv.columns(keys, keys), qkv.columns(2 * keys, inner), alpha, beta,
                       dt_bias_, a_,
                       {.layer = place().index,
                        .heads = heads,
                        .key_heads = shape_.groups,
                        .key_dim = shape_.state,
                        .value_dim = inner / heads,
                        .tiled = tiled_,
                        .gate_run = fused_gates_ ? shared : heads,
                        .gate_step = fused_gates_ ? 2 * shared : heads,
                        .epsilon = kEpsilon});
  out.weight = &out_;
  backend().matmul({&out, 1}, {.kind = Input::Kind::NormedGated,
                               .x = read,
                               .gate = gate,
                               .weight = norm_,
                               .epsilon = step.constants.epsilon,
                               .groups = heads});
}

}  // namespace quire::model
