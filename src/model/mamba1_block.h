// The Mamba-1 block: one projection to convolution input and gate; a short convolution; a projection to the step size
// (of low rank), B and C; the recurrence of each channel; the gate, and the output projection. Jamba norms step, B and
// C with weights, Falcon-Mamba without.
#pragma once

#include "quire/model/block.h"

namespace quire::model {

class Mamba1Block final : public Block {
 public:
  explicit Mamba1Block(const Hyperparameters& model);

  void declare(TensorTable& table) override;
  LayerDesc state(ElementType kv_type, ElementType state_type) const override;
  Result<void> compute(const FileSources& file, const Tensor& norm, const Constants& constants,
                       std::vector<HostVector>& computed) override;
  std::uint64_t scratch_bytes(std::uint32_t rows) const override;
  void widen(Backend::Sizes& sizes) const override;
  void forward(const BlockStep& step, const Input& in, Product out) const override;

 private:
  bool has_norms_, norms_have_weights_;
  std::uint32_t width_;  // of the residual stream
  RecurrentShape shape_;

  Weight in_;                         // [inner | inner][width]: convolution input, gate
  Weight x_;                          // [rank | state | state][inner]: step size, B, C
  Weight dt_;                         // [inner][rank]
  Weight out_;                        // [width][inner]
  Tensor conv_, conv_bias_;           // [conv_kernel][inner], transposed from the file's; [inner]
  Tensor dt_bias_, d_;                // [inner]
  Tensor a_;                          // [state][inner], transposed from the file's
  Tensor dt_norm_, b_norm_, c_norm_;  // [rank], [state], [state]
};

}  // namespace quire::model
