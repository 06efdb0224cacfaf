// The Mamba-2 block: one projection to gate, convolution input and step sizes; a short convolution; the recurrence; a
// gated norm, and the output projection. Convolution state and recurrent state are in the pool.
#pragma once

#include "quire/model/block.h"

namespace quire::model {

class Mamba2Block final : public Block {
 public:
  explicit Mamba2Block(const Hyperparameters& model);

  void declare(TensorTable& table) override;
  LayerDesc state(ElementType kv_type, ElementType state_type) const override;
  std::uint64_t scratch_bytes(std::uint32_t rows) const override;
  void widen(Backend::Sizes& sizes) const override;
  void forward(const BlockStep& step, const Input& in, Product out) const override;

 private:
  bool needs_conv_bias_, needs_norm_;
  std::uint32_t width_;  // of the residual stream
  RecurrentShape shape_;

  Weight in_;                // [inner | conv channels | heads][width]: gate, convolution input, step sizes
  Weight out_;               // [width][inner]
  Tensor conv_, conv_bias_;  // [conv_kernel][conv channels], transposed from the file's; [conv channels]
  Tensor dt_bias_, a_, d_;   // [heads]
  Tensor norm_;              // [inner]; not valid: none
};

}  // namespace quire::model
