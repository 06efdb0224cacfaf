// The latent attention block (DeepSeek). What the pool keeps of a token is one row for all heads: a vector of kv_rank
// elements, normed, and behind it the rotated part of the key. The key of a head is k_b times that vector, and its
// value v_b times it. Neither is ever computed:
//   q . (k_b latent) = (k_b' q) . latent          so the query is multiplied by k_b', once
//   sum of weight * (v_b latent) = v_b (sum of weight * latent)
// Prefill does the same as decode, because their bits must agree.
#pragma once

#include "quire/model/block.h"

namespace quire::model {

class LatentBlock final : public Block {
 public:
  LatentBlock(const Hyperparameters& model, const Layer& layer);

  void declare(TensorTable& table) override;
  LayerDesc state(ElementType kv_type, ElementType state_type) const override;
  std::uint64_t scratch_bytes(std::uint32_t rows) const override;
  void widen(Backend::Sizes& sizes) const override;
  void forward(const BlockStep& step, const Input& in, Product out) const override;

 private:
  void declare_heads(TensorTable& table);
  void project(const BlockStep& step, const Input& in, Tensor low, Tensor q, Tensor row) const;

  const Architecture* row_;
  LatentShape shape_;
  std::uint32_t width_;  // of the residual stream
  std::uint32_t heads_;

  Weight q_a_;        // [q_rank][width]; not valid: queries are computed from the input itself
  Tensor q_a_norm_;   // [q_rank]
  Weight q_;          // [heads * query][q_rank or width]
  Weight kv_a_;       // [kv_rank + rotated][width]
  Tensor kv_a_norm_;  // [kv_rank]
  Weight k_b_;        // of each head: [kv_rank][plain]
  Weight v_b_;        // of each head: [value][kv_rank]
  Weight out_;        // [width][heads * value]
};

}  // namespace quire::model
