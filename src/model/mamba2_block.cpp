#include "quire/model/mamba2_block.h"

#include <algorithm>

namespace quire::model {

Mamba2Block::Mamba2Block(const Hyperparameters& model)
    : needs_conv_bias_(model.architecture->convolution_bias),
      needs_norm_(!model.architecture->optional_ssm_norm),
      width_(model.embedding),
      shape_(model.recurrent) {}

void Mamba2Block::declare(TensorTable& table) {
  table.matrix("ssm_in.weight", shape_.projection(), width_, in_);
  table.transposed("ssm_conv1d.weight", shape_.conv_channels(), shape_.conv_kernel, conv_);
  table.vector("ssm_conv1d.bias", shape_.conv_channels(), conv_bias_,
               needs_conv_bias_ ? Presence::Required : Presence::Optional);
  table.vector("ssm_dt.bias", shape_.heads, dt_bias_);
  table.vector("ssm_a", shape_.heads, a_);
  table.vector("ssm_d", shape_.heads, d_);
  table.vector("ssm_norm.weight", shape_.inner, norm_, needs_norm_ ? Presence::Required : Presence::Optional);
  table.matrix("ssm_out.weight", width_, shape_.inner, out_);
}

// The convolution sees the current token and the conv_kernel - 1 tokens before it, which are the convolution state.
// It is f32, whatever the type of the SSM state: it is small beside it.
LayerDesc Mamba2Block::state(ElementType, ElementType state_type) const {
  return LayerDesc::recurrent((shape_.conv_kernel - 1) * shape_.conv_channels() * sizeof(float),
                              std::uint64_t{shape_.inner} * shape_.state * element_bytes(state_type), state_type);
}

std::uint64_t Mamba2Block::scratch_bytes(std::uint32_t rows) const {
  return Scratch::bytes_for(rows, {shape_.projection(), shape_.inner});
}

void Mamba2Block::widen(Backend::Sizes& sizes) const {
  sizes.recurrent_heads = std::max(sizes.recurrent_heads, shape_.heads);
  sizes.cols = std::max(sizes.cols, shape_.inner);
}

void Mamba2Block::forward(const BlockStep& step, const Input& in, Product out) const {
  const Mamba2Shape shape{.layer = place().index,
                          .heads = shape_.heads,
                          .head_dim = shape_.inner / shape_.heads,
                          .groups = shape_.groups,
                          .state_dim = shape_.state,
                          .conv_width = shape_.conv_kernel};
  const std::uint32_t rows = in.x.rows, inner = shape_.inner, shared = shape_.groups * shape_.state;
  Scratch scratch(step.scratch);
  const Tensor wide = scratch.take(rows, static_cast<std::uint32_t>(shape_.projection()));
  const Tensor scanned = scratch.take(rows, inner);
  const Product product{.out = wide, .weight = &in_};
  backend().matmul({&product, 1}, in);
  const Tensor gate = wide.columns(0, inner);
  const Tensor convolved = wide.columns(inner, shape.conv_channels());
  const Tensor dt = wide.columns(inner + shape.conv_channels(), shape_.heads);
  backend().convolve(convolved, {}, conv_, conv_bias_, shape.convolution());
  backend().mamba2_scan(scanned, convolved.columns(0, inner), convolved.columns(inner, shared),
                        convolved.columns(inner + shared, shared), dt, dt_bias_, a_, d_, shape);
  out.weight = &out_;
  if (!norm_.valid()) return backend().matmul({&out, 1}, Input::gated(gate, scanned, Activation::Silu));
  backend().matmul({&out, 1}, {.kind = Input::Kind::GatedNormed,
                               .x = scanned,
                               .gate = gate,
                               .weight = norm_,
                               .epsilon = step.constants.epsilon,
                               .groups = shape_.groups});
}

}  // namespace quire::model
