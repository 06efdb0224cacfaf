// The attention block: projections, norms and rotation of heads, attention over the KV pages of the pool, and the
// output projection.
#pragma once

#include "quire/model/block.h"

namespace quire::model {

class AttentionBlock final : public Block {
 public:
  AttentionBlock(const Hyperparameters& model, const Layer& layer);

  void declare(TensorTable& table) override;
  LayerDesc state(ElementType kv_type, ElementType state_type) const override;
  Result<void> compute(const FileSources& file, const Tensor& norm, const Constants& constants,
                       std::vector<HostVector>& computed) override;
  std::uint64_t scratch_bytes(std::uint32_t rows) const override;
  void widen(Backend::Sizes& sizes) const override;
  void forward(const BlockStep& step, const Input& in, Product out) const override;

 private:
  const Architecture* row_;
  std::uint32_t width_;  // of the residual stream
  std::uint32_t heads_, kv_heads_, head_dim_;
  std::uint32_t value_dim_;  // equal to head_dim_ in a model that can be run
  std::uint32_t window_;
  bool rotated_;

  Weight q_, k_, v_;  // [heads * head_dim][width], and so on; with gates q is [heads * 2 * head_dim]
  Weight out_;        // [width][heads * head_dim]
  Tensor q_bias_, k_bias_, v_bias_, out_bias_;
  Tensor q_norm_, k_norm_;  // [head_dim], applied head by head; or of all heads, over all of them
  Tensor key_balance_;      // [kv_heads * head_dim], for keys in 8 bits; not valid: all are 1
};

}  // namespace quire::model
