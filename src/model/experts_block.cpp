#include "quire/model/experts_block.h"

#include <algorithm>

namespace quire::model {

ExpertsBlock::ExpertsBlock(const Hyperparameters& model, const Layer& layer)
    : row_(model.architecture), shape_(model.experts), width_(model.embedding), inner_(layer.feed_forward) {}

void ExpertsBlock::declare(TensorTable& table) {
  const std::uint64_t count = shape_.count;
  const Presence biases = row_->expert_biases ? Presence::Required : Presence::Optional;
  table.f32_matrix("ffn_gate_inp.weight", count, width_, router_);
  table.vector("ffn_gate_inp.bias", count, router_bias_, biases);
  table.vector("exp_probs_b.bias", count, selection_bias_, Presence::Optional);
  if (table.file_has("ffn_gate_up_exps.weight")) {
    table.stack("ffn_gate_up_exps.weight", count, width_, {{&gate_, inner_}, {&up_, inner_}});
  } else {
    table.stack("ffn_gate_exps.weight", count, width_, {{&gate_, inner_}});
    table.stack("ffn_up_exps.weight", count, width_, {{&up_, inner_}});
    table.vector("ffn_gate_exps.bias", count * inner_, gate_bias_, biases);
    table.vector("ffn_up_exps.bias", count * inner_, up_bias_, biases);
  }
  table.stack("ffn_down_exps.weight", count, inner_, {{&down_, width_}});
  table.vector("ffn_down_exps.bias", count * width_, down_bias_, biases);
  if (shape_.shared_inner == 0) return;
  table.matrix("ffn_gate_shexp.weight", shape_.shared_inner, width_, shared_gate_);
  table.matrix("ffn_up_shexp.weight", shape_.shared_inner, width_, shared_up_);
  table.matrix("ffn_down_shexp.weight", width_, shape_.shared_inner, shared_down_);
  if (gated_shared()) table.f32_matrix("ffn_gate_inp_shexp.weight", 1, width_, shared_router_);
}

std::uint64_t ExpertsBlock::scratch_bytes(std::uint32_t rows) const {
  const std::uint64_t used = shape_.used, inner = used * inner_, shared = shape_.shared_inner;
  return Scratch::bytes_for(rows, {shape_.count, used, used, inner, inner, shared, shared, 1, 1, 1, width_});
}

void ExpertsBlock::widen(Backend::Sizes& sizes) const {
  sizes.cols = std::max({sizes.cols, inner_, shape_.shared_inner});
  sizes.experts = std::max(sizes.experts, shape_.count);
  sizes.experts_used = std::max(sizes.experts_used, shape_.used);
  sizes.expert_inner = std::max({sizes.expert_inner, inner_, gated_shared() ? shape_.shared_inner : 0});
  sizes.expert_width = std::max(sizes.expert_width, width_);
}

// `out` may be what `in` reads from, so nothing is added to it before everything has been read.
void ExpertsBlock::forward(const BlockStep& step, const Input& in, Product out) const {
  const std::uint32_t rows = in.x.rows, used = shape_.used;
  Scratch scratch(step.scratch);
  const Tensor logits = scratch.take(rows, shape_.count);
  const Choices choices{scratch.take(rows, used), scratch.take(rows, used)};
  const Shared shared{.gate = scratch.take(rows, shape_.shared_inner),
                      .up = scratch.take(rows, shape_.shared_inner),
                      .logit = scratch.take(rows, 1),
                      .out = scratch.take(rows, width_)};
  const Product router{.out = logits, .weight = &router_, .bias = router_bias_};
  if (shape_.shared_inner == 0) {
    backend().matmul({&router, 1}, in);
  } else if (gated_shared()) {
    const Product products[] = {router, {.out = shared.logit, .weight = &shared_router_}};
    backend().matmul(products, in);
    compute_gated(in, shared, scratch);
  } else {
    const Product products[] = {
        router, {.out = shared.gate, .weight = &shared_gate_}, {.out = shared.up, .weight = &shared_up_}};
    backend().matmul(products, in);
  }
  backend().route(choices, logits, selection_bias_,
                  {.scores = shape_.scores,
                   .experts = shape_.count,
                   .used = used,
                   .groups = shape_.groups,
                   .groups_used = shape_.groups_used,
                   .normed = shape_.normed,
                   .scale = step.constants.expert_scale});
  out.weight = &down_;
  out.bias = down_bias_;
  backend().experts({.gate = {.out = scratch.take(rows * used, inner_), .weight = &gate_, .bias = gate_bias_},
                     .up = {.out = scratch.take(rows * used, inner_), .weight = &up_, .bias = up_bias_},
                     .down = out,
                     .activation = row_->activation},
                    in, choices);
  if (shape_.shared_inner == 0) return;
  if (!out.add) out.scale = 1;
  if (gated_shared()) return backend().add(out.out, shared.out, out.scale);
  out.add = true;
  out.weight = &shared_down_;
  out.bias = {};
  backend().matmul({&out, 1}, Input::gated(shared.gate, shared.up, row_->activation));
}

// A shared expert with a gate is the only one of a mixture: its router's weight is the sigmoid of one logit.
void ExpertsBlock::compute_gated(const Input& in, const Shared& shared, Scratch& scratch) const {
  const Choices choices{scratch.take(in.x.rows, 1), scratch.take(in.x.rows, 1)};
  backend().route(choices, shared.logit, {}, {.scores = Router::Scores::Sigmoid, .experts = 1, .used = 1});
  backend().experts({.gate = {.out = shared.gate, .weight = &shared_gate_},
                     .up = {.out = shared.up, .weight = &shared_up_},
                     .down = {.out = shared.out, .weight = &shared_down_},
                     .activation = row_->activation},
                    in, choices);
}

}  // namespace quire::model
