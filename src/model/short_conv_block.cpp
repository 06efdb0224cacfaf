#include "quire/model/short_conv_block.h"

#include <algorithm>

namespace quire::model {

ShortConvBlock::ShortConvBlock(const Hyperparameters& model)
    : width_(model.embedding), taps_(model.recurrent.conv_kernel) {}

void ShortConvBlock::declare(TensorTable& table) {
  table.matrix("shortconv.in_proj.weight", 3 * std::uint64_t{width_}, width_, in_);
  table.transposed("shortconv.conv.weight", width_, taps_, conv_);
  table.matrix("shortconv.out_proj.weight", width_, width_, out_);
}

// A state without an SSM part. Its type is still the one that was asked for, as in other recurrent layers.
LayerDesc ShortConvBlock::state(ElementType, ElementType state_type) const {
  return LayerDesc::recurrent(std::uint64_t{taps_ - 1} * width_ * sizeof(float), 0, state_type);
}

std::uint64_t ShortConvBlock::scratch_bytes(std::uint32_t rows) const {
  return Scratch::bytes_for(rows, {3 * std::uint64_t{width_}});
}

void ShortConvBlock::widen(Backend::Sizes& sizes) const { sizes.cols = std::max(sizes.cols, width_); }

void ShortConvBlock::forward(const BlockStep& step, const Input& in, Product out) const {
  Scratch scratch(step.scratch);
  const Tensor wide = scratch.take(in.x.rows, 3 * width_);
  const Product product{.out = wide, .weight = &in_};
  backend().matmul({&product, 1}, in);
  const Tensor b = wide.columns(0, width_), c = wide.columns(width_, width_), x = wide.columns(2 * width_, width_);
  backend().convolve(x, b, conv_, {}, {.layer = place().index, .channels = width_, .width = taps_, .silu = false});
  out.weight = &out_;
  backend().matmul({&out, 1}, Input::gated(c, x, Activation::None));
}

}  // namespace quire::model
