#include "quire/bench/limit.h"

#include <algorithm>
#include <limits>

namespace quire::bench {
namespace {

// The matrices of a layer, without "blk.7.". The other tensors of a layer are small (norms, biases, ...).
constexpr std::string_view kMatrices[] = {
    "attn_q.weight",        "attn_k.weight",    "attn_v.weight",   "attn_qkv.weight",
    "attn_output.weight",   "ffn_gate.weight",  "ffn_up.weight",   "ffn_down.weight",
    "ssm_in.weight",        "ssm_out.weight",   "attn_q_a.weight", "attn_q_b.weight",
    "attn_kv_a_mqa.weight", "attn_kv_b.weight", "attn_k_b.weight", "attn_v_b.weight",
};

bool is_layer_matrix(std::string_view name) {
  constexpr std::string_view kPrefix = "blk.";
  if (!name.starts_with(kPrefix)) return false;
  name.remove_prefix(kPrefix.size());
  return std::ranges::find(kMatrices, name.substr(name.find('.') + 1)) != std::end(kMatrices);
}

void count(ModelCost::Matrices& matrices, const gguf::Tensor& tensor) {
  using gguf::Type;
  const bool floats =
      tensor.type == Type::F32 || tensor.type == Type::F16 || tensor.type == Type::BF16 || tensor.type == Type::F64;
  matrices.bytes += tensor.data.size();
  (floats ? matrices.f32_elements : matrices.int8_elements) += tensor.elements();
}

}  // namespace

ModelCost cost_of(const gguf::File& file, const StateLayout& layout) {
  ModelCost cost;
  for (std::size_t i = 0; i < file.tensor_count(); ++i) {
    if (const gguf::Tensor tensor = file.tensor(i); is_layer_matrix(tensor.name)) count(cost.layers, tensor);
  }
  auto output = file.find_tensor("output.weight");
  if (!output) output = file.find_tensor("token_embd.weight");
  if (output) count(cost.output, *output);
  for (const PageShape& group : layout.groups) cost.attention.push_back({group.bytes_per_token(), group.window});
  if (layout.has_recurrent()) cost.state_bytes = layout.recurrent.bytes();
  return cost;
}

double kv_bytes(const ModelCost& cost, double context) {
  double bytes = 0;
  for (const ModelCost::Attention& group : cost.attention) {
    const double seen = group.window == 0 ? context : std::min(context, static_cast<double>(group.window));
    bytes += seen * static_cast<double>(group.bytes_per_token);
  }
  return bytes;
}

Work work_of(const ModelCost& cost, const Phase& phase) {
  const auto number = [](std::uint64_t value) { return static_cast<double>(value); };
  Work work{.tokens = phase.tokens};
  work.bytes = number(cost.layers.bytes) + (phase.logits > 0 ? number(cost.output.bytes) : 0);
  // A shared prefix is read once; the other sequences read only the rest.
  work.bytes += phase.sequences * kv_bytes(cost, phase.context) - (phase.sequences - 1) * kv_bytes(cost, phase.shared);
  work.bytes += 2 * phase.sequences * number(cost.state_bytes);
  work.int8_ops =
      2 * (phase.tokens * number(cost.layers.int8_elements) + phase.logits * number(cost.output.int8_elements));
  work.f32_ops =
      2 * (phase.tokens * number(cost.layers.f32_elements) + phase.logits * number(cost.output.f32_elements));
  return work;
}

std::string_view name(Bound bound) {
  constexpr std::string_view kNames[] = {"read", "int8", "f32"};
  return kNames[static_cast<std::size_t>(bound)];
}

Limit limit_of(const Work& work, const MachineLimits& machine) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  const double int8_seconds = work.int8_ops > 0 ? work.int8_ops / machine.int8 : 0;
  const double f32_seconds = work.f32_ops > 0 ? work.f32_ops / machine.f32 : 0;
  const double multiplying = int8_seconds + f32_seconds;
  Limit limit{.read = work.bytes > 0 ? work.tokens * machine.read / work.bytes : kInfinite,
              .compute = multiplying > 0 ? work.tokens / multiplying : kInfinite};
  limit.tokens_per_second = std::min(limit.read, limit.compute);
  if (limit.compute < limit.read) limit.bound = int8_seconds >= f32_seconds ? Bound::int8 : Bound::f32;
  return limit;
}

}  // namespace quire::bench
