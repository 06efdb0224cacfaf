// The feed-forward block: down(act(gate(x)) * up(x)), or without a gate down(act(up(x))).
#pragma once

#include "quire/model/block.h"

namespace quire::model {

class FeedForwardBlock final : public Block {
 public:
  FeedForwardBlock(const Hyperparameters& model, const Layer& layer);

  void declare(TensorTable& table) override;
  std::uint64_t scratch_bytes(std::uint32_t rows) const override;
  void widen(Backend::Sizes& sizes) const override;
  void forward(const BlockStep& step, const Input& in, Product out) const override;

 private:
  const Architecture* row_;
  std::uint32_t width_;  // of the residual stream
  std::uint32_t inner_;

  Weight gate_, up_;  // [inner][width]
  Weight down_;       // [width][inner]
  Tensor gate_bias_, up_bias_, down_bias_;
};

}  // namespace quire::model
