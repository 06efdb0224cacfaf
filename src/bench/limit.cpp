#include "quire/bench/limit.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

namespace quire::bench {
namespace {

// Whether a token is multiplied by it, or by a part of it. The other tensors of a layer are small: norms, biases and
// the weights of convolutions.
bool is_matrix(const gguf::Tensor& tensor) {
  const std::string_view name = tensor.name;
  const bool convolution = name.ends_with("conv1d.weight") || name.ends_with(".conv.weight");
  return name.starts_with("blk.") && name.ends_with(".weight") && !name.ends_with("_norm.weight") && !convolution &&
         tensor.rows() > 1;
}
// Those of all experts of a layer. A token uses some of them.
bool is_of_experts(const gguf::Tensor& tensor) { return tensor.name.ends_with("_exps.weight"); }

// The share of a layer's experts that a token uses.
double share_of_experts(const gguf::File& file) {
  const auto architecture = file.get<std::string_view>("general.architecture");
  if (!architecture) return 1;
  const auto number = [&](std::string_view name) {
    const auto value = file.get_or<std::uint32_t>(std::string(*architecture) + "." + std::string(name), 0);
    return value ? static_cast<double>(*value) : 0;
  };
  const double all = number("expert_count"), used = number("expert_used_count");
  return all > 0 && used > 0 ? std::min(1.0, used / all) : 1;
}

void count(ModelCost::Matrices& matrices, const gguf::Tensor& tensor) {
  using gguf::Type;
  const bool floats = tensor.type == Type::F32 || tensor.type == Type::F16 || tensor.type == Type::F64;
  matrices.bytes += tensor.data.size();
  auto& elements = floats                      ? matrices.f32_elements
                   : tensor.type == Type::BF16 ? matrices.bf16_elements
                                               : matrices.int8_elements;
  elements += tensor.elements();
}

double seconds_of(double operations, double rate) { return operations > 0 ? operations / rate : 0; }

}  // namespace

ModelCost cost_of(const gguf::File& file, const StateLayout& layout) {
  ModelCost cost;
  for (std::size_t i = 0; i < file.tensor_count(); ++i) {
    const gguf::Tensor tensor = file.tensor(i);
    if (is_matrix(tensor)) count(is_of_experts(tensor) ? cost.experts : cost.layers, tensor);
  }
  cost.expert_share = share_of_experts(file);
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
  // Tokens choose on their own: so many experts are chosen by at least one of them.
  work.bytes += number(cost.experts.bytes) * (1 - std::pow(1 - cost.expert_share, phase.tokens));
  const double expert_tokens = phase.tokens * cost.expert_share;
  // A shared prefix is read once; the other sequences read only the rest.
  work.bytes += phase.sequences * kv_bytes(cost, phase.context) - (phase.sequences - 1) * kv_bytes(cost, phase.shared);
  work.bytes += 2 * phase.sequences * number(cost.state_bytes);
  const auto operations = [&](std::uint64_t ModelCost::Matrices::*elements) {
    return 2 * (phase.tokens * number(cost.layers.*elements) + phase.logits * number(cost.output.*elements) +
                expert_tokens * number(cost.experts.*elements));
  };
  work.int8_ops = operations(&ModelCost::Matrices::int8_elements);
  work.f32_ops = operations(&ModelCost::Matrices::f32_elements);
  work.bf16_ops = operations(&ModelCost::Matrices::bf16_elements);
  return work;
}

std::string_view name(Bound bound) {
  constexpr std::string_view kNames[] = {"read", "int8", "f32", "bf16"};
  return kNames[static_cast<std::size_t>(bound)];
}

Bound longest(const Work& work, const MachineLimits& machine) {
  const double int8 = seconds_of(work.int8_ops, machine.int8), f32 = seconds_of(work.f32_ops, machine.f32),
               bf16 = seconds_of(work.bf16_ops, machine.bf16);
  if (int8 >= f32 && int8 >= bf16) return Bound::int8;
  return f32 >= bf16 ? Bound::f32 : Bound::bf16;
}

Limit limit_of(const Work& work, const MachineLimits& machine) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  const double multiplying = seconds_of(work.int8_ops, machine.int8) + seconds_of(work.f32_ops, machine.f32) +
                             seconds_of(work.bf16_ops, machine.bf16);
  Limit limit{.read = work.bytes > 0 ? work.tokens * machine.read / work.bytes : kInfinite,
              .compute = multiplying > 0 ? work.tokens / multiplying : kInfinite};
  limit.tokens_per_second = std::min(limit.read, limit.compute);
  if (limit.compute < limit.read) limit.bound = longest(work, machine);
  return limit;
}

}  // namespace quire::bench
