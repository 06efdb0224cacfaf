#include "quire/bench/synth/plan.h"

#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "quire/bench/synth/outliers.h"

namespace quire::synth {

using gguf::Type;

std::uint64_t Tensor::elements() const {
  std::uint64_t product = 1;
  for (const std::uint64_t length : shape) product *= length;
  return product;
}

std::uint64_t Tensor::bytes() const { return *gguf::byte_size(type, elements()); }

float Tensor::deviation(float times) const {
  return times / std::sqrt(static_cast<float>(inputs != 0 ? inputs : shape[0]));
}

Result<Plan> Plan::make(const Shape& shape, const Mix& mix) {
  Plan plan(shape, mix);
  if (auto ok = plan.add_all(); !ok) return std::unexpected(ok.error());
  return plan;
}

Summary Plan::summary() const {
  Summary sum;
  for (const Tensor& tensor : tensors_) {
    sum.parameters += tensor.elements();
    sum.bytes += tensor.bytes();
  }
  for (const auto& [change, count] : changes_) {
    const auto& [wanted, columns, given] = change;
    sum.notes.push_back(fmt::format("rows of {} are not whole blocks of {}: {} tensor{} of type {} instead", columns,
                                    gguf::type_name(wanted), count, count == 1 ? " is" : "s are",
                                    gguf::type_name(given)));
  }
  return sum;
}

void Plan::vector(std::string_view name, Kind kind, std::vector<std::uint64_t> shape) {
  tensors_.push_back({prefix_ + std::string(name), kind, Type::F32, std::move(shape)});
}

Result<void> Plan::matrix(std::string_view name, std::uint64_t columns, std::uint64_t rows, Role role,
                          std::uint32_t index, std::uint32_t count) {
  return add(name, {columns, rows}, role, index, count, false);
}

Result<void> Plan::stack(std::string_view name, std::vector<std::uint64_t> shape, Role role, std::uint32_t index,
                         std::uint32_t count) {
  return add(name, std::move(shape), role, index, count, true);
}

Result<void> Plan::add(std::string_view name, std::vector<std::uint64_t> shape, Role role, std::uint32_t index,
                       std::uint32_t count, bool stacked) {
  const std::uint64_t columns = shape[0];
  const Type wanted = mix_.choose(role, index, count, stacked);
  const auto type = fit(wanted, role, columns);
  if (!type) return fail(fmt::format("tensor '{}{}': {}", prefix_, name, type.error().message));
  if (*type != wanted) ++changes_[{wanted, columns, *type}];
  tensors_.push_back({prefix_ + std::string(name), Kind::matrix, *type, std::move(shape)});
  return {};
}

// Scales these channels of each of `heads` heads in the tensor that was added last.
void Plan::scale(const std::vector<std::uint32_t>& channels, std::uint32_t heads, float factor) {
  Tensor& tensor = tensors_.back();
  tensor.factor = factor;
  for (std::uint64_t head = 0; head < heads; ++head) {
    for (const std::uint32_t channel : channels) tensor.scaled.push_back(head * shape_.head_dim + channel);
  }
}

Result<void> Plan::add_all() {
  const std::uint64_t width = shape_.embedding, vocabulary = shape_.vocabulary;
  Result<void> ok = matrix("token_embd.weight", width, vocabulary, shape_.tied ? Role::output : Role::other);
  if (ok && !shape_.tied) ok = matrix("output.weight", width, vocabulary, Role::output);
  vector(family_.output_norm, Kind::norm, {width});
  if (shape_.rope_stretch != 1) vector("rope_freqs.weight", Kind::rope, {shape_.head_dim / 2});
  const bool delta_rule = family_.recurrence == Recurrence::delta_rule;
  for (std::uint32_t i = 0; i < shape_.layers; ++i) {
    if (has_attention(shape_, i) || (delta_rule && has_recurrence(shape_, i))) ++value_count_;
  }
  for (std::uint32_t i = 0; ok && i < shape_.layers; ++i) ok = add_layer(i);
  return ok;
}

Result<void> Plan::add_layer(std::uint32_t layer) {
  prefix_ = fmt::format("blk.{}.", layer);
  vector("attn_norm.weight", Kind::norm, {shape_.embedding});
  Result<void> ok;
  if (has_attention(shape_, layer)) ok = family_.latent ? add_latent_attention() : add_attention(layer);
  if (ok && has_recurrence(shape_, layer)) ok = add_recurrence();
  if (!ok || !family_.has_feed_forward()) return ok;
  vector(family_.feed_forward_norm, Kind::norm, {shape_.embedding});
  return has_experts(shape_, layer) ? add_experts(layer) : add_feed_forward(layer);
}

// Where keys are normed, outlier channels come from the norm's weight; where they have a bias, from the bias, as in
// Qwen2 itself. Otherwise from the projection.
Result<void> Plan::add_attention(std::uint32_t layer) {
  const bool normed = family_.head_norms != HeadNorms::none, biased = family_.biases != Biases::none;
  const std::vector<std::uint32_t> outliers = key_outliers(shape_, layer);
  const std::uint64_t width = shape_.embedding, head = shape_.head_dim, queries = shape_.heads * head;
  const std::uint32_t index = values_++;
  Result<void> ok = matrix("attn_q.weight", width, family_.gated ? 2 * queries : queries);
  if (ok && !normed) scale(outliers, shape_.heads, 1 / kOutlierFactor);
  if (ok) ok = matrix("attn_k.weight", width, shape_.kv_heads * head);
  if (ok && !normed && !biased) scale(outliers, shape_.kv_heads, kOutlierFactor);
  if (ok) ok = matrix("attn_v.weight", width, shape_.kv_heads * head, Role::attention_value, index, value_count_);
  if (ok) ok = matrix("attn_output.weight", queries, width, Role::attention_output, index, value_count_);
  add_attention_vectors(layer);
  return ok;
}

void Plan::add_attention_vectors(std::uint32_t layer) {
  const std::vector<std::uint32_t> outliers = key_outliers(shape_, layer);
  const std::uint64_t head = shape_.head_dim;
  if (family_.biases != Biases::none) {
    vector("attn_q.bias", Kind::bias, {shape_.heads * head});
    scale(outliers, shape_.heads, 1 / kOutlierFactor);
    vector("attn_k.bias", Kind::key_bias, {shape_.kv_heads * head});
    scale(outliers, shape_.kv_heads, kOutlierFactor);
    vector("attn_v.bias", Kind::bias, {shape_.kv_heads * head});
  }
  if (family_.biases == Biases::all) vector("attn_output.bias", Kind::bias, {shape_.embedding});
  if (family_.sinks) vector("attn_sinks.weight", Kind::score, {shape_.heads});
  if (family_.head_norms == HeadNorms::head) {
    vector("attn_q_norm.weight", Kind::norm, {head});
    scale(outliers, 1, 1 / kOutlierFactor);
    vector("attn_k_norm.weight", Kind::norm, {head});
    scale(outliers, 1, kOutlierFactor);
  } else if (family_.head_norms == HeadNorms::width) {
    vector("attn_q_norm.weight", Kind::norm, {shape_.heads * head});
    vector("attn_k_norm.weight", Kind::norm, {shape_.kv_heads * head});
  }
}

Result<void> Plan::add_latent_attention() {
  const std::uint64_t width = shape_.embedding, heads = shape_.heads, rank = shape_.kv_rank;
  const std::uint64_t queries = heads * shape_.head_dim, unrotated = shape_.head_dim - shape_.rope_dim;
  Result<void> ok;
  if (shape_.q_rank != 0) {
    ok = matrix("attn_q_a.weight", width, shape_.q_rank);
    vector("attn_q_a_norm.weight", Kind::norm, {shape_.q_rank});
    if (ok) ok = matrix("attn_q_b.weight", shape_.q_rank, queries);
  } else {
    ok = matrix("attn_q.weight", width, queries);
  }
  if (ok) ok = matrix("attn_kv_a_mqa.weight", width, rank + shape_.rope_dim);
  vector("attn_kv_a_norm.weight", Kind::norm, {rank});
  // Transposed in the file: a key is a sum over the latent row, which is not a row of this matrix.
  if (ok) ok = stack("attn_k_b.weight", {unrotated, rank, heads});
  if (ok) tensors_.back().inputs = rank;
  if (ok) ok = stack("attn_v_b.weight", {rank, shape_.value_dim, heads});
  if (ok) ok = matrix("attn_output.weight", heads * shape_.value_dim, width, Role::attention_output);
  return ok;
}

Result<void> Plan::add_recurrence() {
  switch (family_.recurrence) {
    case Recurrence::none: break;
    case Recurrence::mamba1: return add_mamba1();
    case Recurrence::mamba2: return add_mamba2();
    case Recurrence::delta_rule: return add_delta_rule();
    case Recurrence::convolution: return add_convolution();
  }
  return {};
}

Result<void> Plan::add_mamba1() {
  const std::uint64_t width = shape_.embedding, inner = shape_.inner, state = shape_.state, rank = shape_.dt_rank;
  Result<void> ok = matrix("ssm_in.weight", width, 2 * inner);  // x and the gate
  vector("ssm_conv1d.weight", Kind::matrix, {shape_.conv, inner});
  vector("ssm_conv1d.bias", Kind::bias, {inner});
  if (ok) ok = matrix("ssm_x.weight", inner, rank + 2 * state);  // dt, B, C
  if (ok) ok = matrix("ssm_dt.weight", rank, inner);
  vector("ssm_dt.bias", Kind::step, {inner});
  vector("ssm_a", Kind::ladder, {state, inner});
  vector("ssm_d", Kind::norm, {inner});
  if (ok) ok = matrix("ssm_out.weight", inner, width);
  return ok;
}

Result<void> Plan::add_mamba2() {
  const std::uint64_t width = shape_.embedding, inner = shape_.inner, heads = shape_.ssm_heads;
  const std::uint64_t convolved = inner + 2 * std::uint64_t{shape_.groups} * shape_.state;  // x, B, C
  Result<void> ok = matrix("ssm_in.weight", width, inner + convolved + heads);
  // These tensors have two dimensions but are small, and F32 in every file.
  vector("ssm_conv1d.weight", Kind::matrix, {shape_.conv, convolved});
  vector("ssm_conv1d.bias", Kind::bias, {convolved});
  vector("ssm_dt.bias", Kind::step, {heads});
  vector("ssm_a", Kind::decay, {1, heads});
  vector("ssm_d", Kind::norm, {1, heads});
  if (family_.ssm_norm) vector("ssm_norm.weight", Kind::norm, {inner / shape_.groups, shape_.groups});
  if (ok) ok = matrix("ssm_out.weight", inner, width);
  return ok;
}

// Queries, keys and values are one matrix, and quantised as values are.
Result<void> Plan::add_delta_rule() {
  const std::uint64_t width = shape_.embedding, inner = shape_.inner, heads = shape_.ssm_heads;
  const std::uint64_t convolved = inner + 2 * std::uint64_t{shape_.groups} * shape_.state;
  Result<void> ok = matrix("attn_qkv.weight", width, convolved, Role::attention_value, values_++, value_count_);
  if (ok) ok = matrix("attn_gate.weight", width, inner);
  vector("ssm_conv1d.weight", Kind::matrix, {shape_.conv, convolved});
  vector("ssm_dt.bias", Kind::step, {heads});
  vector("ssm_a", Kind::decay, {heads});
  if (ok) ok = matrix("ssm_alpha.weight", width, heads);
  if (ok) ok = matrix("ssm_beta.weight", width, heads);
  vector("ssm_norm.weight", Kind::norm, {shape_.state});
  if (ok) ok = matrix("ssm_out.weight", inner, width);
  return ok;
}

Result<void> Plan::add_convolution() {
  const std::uint64_t width = shape_.embedding;
  Result<void> ok = matrix("shortconv.in_proj.weight", width, 3 * width);
  vector("shortconv.conv.weight", Kind::matrix, {shape_.conv, width});
  if (ok) ok = matrix("shortconv.out_proj.weight", width, width);
  return ok;
}

Result<void> Plan::add_feed_forward(std::uint32_t layer) {
  const std::uint64_t width = shape_.embedding, wide = shape_.feed_forward;
  Result<void> ok = matrix("ffn_gate.weight", width, wide);
  if (ok) ok = matrix("ffn_up.weight", width, wide);
  if (ok) scale(feed_forward_outliers(shape_, layer), 1, kOutlierFactor);
  if (ok) ok = matrix("ffn_down.weight", wide, width, Role::feed_forward_down, layer, shape_.layers);
  return ok;
}

// The router is F32 in every file.
Result<void> Plan::add_experts(std::uint32_t layer) {
  const std::uint64_t width = shape_.embedding, wide = shape_.expert_feed_forward, experts = shape_.experts;
  vector("ffn_gate_inp.weight", Kind::matrix, {width, experts});
  if (family_.choice_bias) vector("exp_probs_b.bias", Kind::bias, {experts});
  Result<void> ok = stack("ffn_gate_exps.weight", {width, wide, experts});
  if (ok) ok = stack("ffn_up_exps.weight", {width, wide, experts});
  if (ok) ok = stack("ffn_down_exps.weight", {wide, width, experts}, Role::feed_forward_down, layer, shape_.layers);
  if (family_.biases == Biases::all) {
    vector("ffn_gate_inp.bias", Kind::bias, {experts});
    vector("ffn_gate_exps.bias", Kind::bias, {wide, experts});
    vector("ffn_up_exps.bias", Kind::bias, {wide, experts});
    vector("ffn_down_exps.bias", Kind::bias, {width, experts});
  }
  if (!ok || shape_.shared_feed_forward == 0) return ok;
  const std::uint64_t shared = shape_.shared_feed_forward;
  ok = matrix("ffn_gate_shexp.weight", width, shared);
  if (ok) ok = matrix("ffn_up_shexp.weight", width, shared);
  if (ok) ok = matrix("ffn_down_shexp.weight", shared, width, Role::feed_forward_down, layer, shape_.layers);
  return ok;
}

}  // namespace quire::synth
