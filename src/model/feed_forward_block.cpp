#include "quire/model/feed_forward_block.h"

#include <algorithm>

namespace quire::model {

FeedForwardBlock::FeedForwardBlock(const Hyperparameters& model, const Layer& layer)
    : row_(model.architecture), width_(model.embedding), inner_(layer.feed_forward) {}

void FeedForwardBlock::declare(TensorTable& table) {
  if (row_->gate_in_up) {
    table.fused_matrix("ffn_up.weight", width_, {{&gate_, inner_}, {&up_, inner_}});
  } else {
    table.matrix("ffn_gate.weight", inner_, width_, gate_);
    table.matrix("ffn_up.weight", inner_, width_, up_);
  }
  table.matrix("ffn_down.weight", width_, inner_, down_);
}

std::uint64_t FeedForwardBlock::scratch_bytes(std::uint32_t rows) const {
  return Scratch::bytes_for(rows, {inner_, inner_});
}

void FeedForwardBlock::widen(Backend::Sizes& sizes) const { sizes.cols = std::max(sizes.cols, inner_); }

void FeedForwardBlock::forward(const BlockStep& step, const Input& in, Product out) const {
  Scratch scratch(step.scratch);
  const Tensor gate = scratch.take(in.x.rows, inner_), up = scratch.take(in.x.rows, inner_);
  const Product products[] = {{.out = gate, .weight = &gate_}, {.out = up, .weight = &up_}};
  backend().matmul(products, in);
  out.weight = &down_;
  backend().matmul({&out, 1}, Input::gated(gate, up, row_->activation));
}

}  // namespace quire::model
