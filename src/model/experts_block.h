// The feed-forward block with a mixture of experts: a router chooses a few experts for each token, and their outputs
// are added up with the router's weights. A shared expert, where there is one, computes all tokens and is added too.
#pragma once

#include "quire/model/block.h"

namespace quire::model {

class ExpertsBlock final : public Block {
 public:
  ExpertsBlock(const Hyperparameters& model, const Layer& layer);

  void declare(TensorTable& table) override;
  std::uint64_t scratch_bytes(std::uint32_t rows) const override;
  void widen(Backend::Sizes& sizes) const override;
  void forward(const BlockStep& step, const Input& in, Product out) const override;

 private:
  bool gated_shared() const { return shape_.shared_inner > 0 && row_->shared_expert_gate; }
  // Results of the shared expert: [rows][shared_inner] twice, [rows][1], [rows][width].
  struct Shared {
    Tensor gate, up, logit, out;
  };
  void compute_gated(const Input& in, const Shared& shared, Scratch& scratch) const;

  const Architecture* row_;
  ExpertShape shape_;
  std::uint32_t width_;  // of the residual stream
  std::uint32_t inner_;  // of an expert

  Weight router_;                           // [experts][width], f32
  Tensor router_bias_;                      // [experts]
  Tensor selection_bias_;                   // [experts]: for the choice, not for the weights
  Weight gate_, up_;                        // [experts][inner][width]
  Weight down_;                             // [experts][width][inner]
  Tensor gate_bias_, up_bias_, down_bias_;  // [experts][rows of the matrix]

  Weight shared_gate_, shared_up_;  // [shared_inner][width]
  Weight shared_down_;              // [width][shared_inner]
  Weight shared_router_;            // [1][width], f32
};

}  // namespace quire::model
