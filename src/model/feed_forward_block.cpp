#include "quire/model/feed_forward_block.h"

#include <algorithm>

namespace quire::model {

FeedForwardBlock::FeedForwardBlock(const Hyperparameters& model, const Layer& layer)
    : row_(model.architecture), width_(model.embedding), inner_(layer.feed_forward) {}

void FeedForwardBlock::declare(TensorTable& table) {
  // A bias that the architecture does not require is allowed, since it can mean only one thing.
  const Presence biases = row_->all_biases ? Presence::Required : Presence::Optional;
  if (row_->gate_in_up) {
    table.fused_matrix("ffn_up.weight", width_, {{&gate_, inner_}, {&up_, inner_}});
    table.fused_vector("ffn_up.bias", {{&gate_bias_, inner_}, {&up_bias_, inner_}}, biases);
  } else {
    if (!row_->ungated) {
      table.matrix("ffn_gate.weight", inner_, width_, gate_);
      table.vector("ffn_gate.bias", inner_, gate_bias_, biases);
    }
    table.matrix("ffn_up.weight", inner_, width_, up_);
    table.vector("ffn_up.bias", inner_, up_bias_, biases);
  }
  table.matrix("ffn_down.weight", width_, inner_, down_);
  table.vector("ffn_down.bias", width_, down_bias_, biases);
}

std::uint64_t FeedForwardBlock::scratch_bytes(std::uint32_t rows) const {
  return Scratch::bytes_for(rows, {inner_, row_->ungated ? 0 : inner_});
}

void FeedForwardBlock::widen(Backend::Sizes& sizes) const { sizes.cols = std::max(sizes.cols, inner_); }

void FeedForwardBlock::forward(const BlockStep& step, const Input& in, Product out) const {
  Scratch scratch(step.scratch);
  const Tensor up = scratch.take(in.x.rows, inner_);
  out.weight = &down_;
  out.bias = down_bias_;
  const Product up_product{.out = up, .weight = &up_, .bias = up_bias_};
  if (row_->ungated) {
    backend().matmul({&up_product, 1}, in);
    return backend().matmul({&out, 1}, Input::activated(up, row_->activation));
  }
  const Tensor gate = scratch.take(in.x.rows, inner_);
  const Product products[] = {{.out = gate, .weight = &gate_, .bias = gate_bias_}, up_product};
  backend().matmul(products, in);
  backend().matmul({&out, 1}, Input::gated(gate, up, row_->activation));
}

}  // namespace quire::model
