// The gated short convolution of LFM2: one projection to three streams B, C and x; a convolution of B * x over a few
// tokens, times C; the output projection. It remembers the last inputs of the convolution and nothing else.
#pragma once

#include "quire/model/block.h"

namespace quire::model {

class ShortConvBlock final : public Block {
 public:
  explicit ShortConvBlock(const Hyperparameters& model);

  void declare(TensorTable& table) override;
  LayerDesc state(ElementType kv_type, ElementType state_type) const override;
  std::uint64_t scratch_bytes(std::uint32_t rows) const override;
  void widen(Backend::Sizes& sizes) const override;
  void forward(const BlockStep& step, const Input& in, Product out) const override;

 private:
  std::uint32_t width_;  // of the residual stream
  std::uint32_t taps_;

  Weight in_;    // [width | width | width][width]: B, C, x
  Weight out_;   // [width][width]
  Tensor conv_;  // [taps][width], transposed from the file's
};

}  // namespace quire::model
