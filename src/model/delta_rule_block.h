// The gated delta rule of Qwen3-Next and Qwen3.5: projections to queries, keys and values, to a gate, and to two
// numbers for each head; a short convolution over queries, keys and values; the recurrence, with a matrix for each
// head; a norm of each head's output, times the gate; the output projection.
#pragma once

#include "quire/model/block.h"

namespace quire::model {

class DeltaRuleBlock final : public Block {
 public:
  explicit DeltaRuleBlock(const Hyperparameters& model);

  void declare(TensorTable& table) override;
  LayerDesc state(ElementType kv_type, ElementType state_type) const override;
  Result<void> compute(const FileSources& file, const Tensor& norm, const Constants& constants,
                       std::vector<HostVector>& computed) override;
  std::uint64_t scratch_bytes(std::uint32_t rows) const override;
  void widen(Backend::Sizes& sizes) const override;
  void forward(const BlockStep& step, const Input& in, Product out) const override;

 private:
  bool tiled_;
  bool fused_gates_ = false;  // the file has alpha and beta in one matrix
  std::uint32_t width_;       // of the residual stream
  RecurrentShape shape_;

  Weight qkv_;               // [keys | keys | inner][width]
  Weight gate_;              // [inner][width]
  Weight alpha_, beta_;      // [heads][width] each
  Weight beta_alpha_;        // [2 * heads][width]: for each key head the betas of its heads, then their alphas
  Weight out_;               // [width][inner]
  Tensor conv_;              // [conv_kernel][conv channels], transposed from the file's
  Tensor dt_bias_, a_;       // [heads]
  Tensor head_norm_, norm_;  // [inner / heads], the same for all heads; [inner]
};

}  // namespace quire::model
