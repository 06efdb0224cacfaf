#include "quire/model/block.h"

#include "quire/model/attention_block.h"
#include "quire/model/delta_rule_block.h"
#include "quire/model/experts_block.h"
#include "quire/model/feed_forward_block.h"
#include "quire/model/latent_block.h"
#include "quire/model/mamba1_block.h"
#include "quire/model/mamba2_block.h"
#include "quire/model/short_conv_block.h"

namespace quire::model {

std::unique_ptr<Block> make_block(BlockKind kind, const Hyperparameters& model, const Layer& layer) {
  switch (kind) {
    case BlockKind::Attention: return std::make_unique<AttentionBlock>(model, layer);
    case BlockKind::LatentAttention: return std::make_unique<LatentBlock>(model, layer);
    case BlockKind::Mamba1: return std::make_unique<Mamba1Block>(model);
    case BlockKind::Mamba2: return std::make_unique<Mamba2Block>(model);
    case BlockKind::ShortConv: return std::make_unique<ShortConvBlock>(model);
    case BlockKind::DeltaRule: return std::make_unique<DeltaRuleBlock>(model);
    case BlockKind::FeedForward:
      if (layer.experts) return std::make_unique<ExpertsBlock>(model, layer);
      return std::make_unique<FeedForwardBlock>(model, layer);
  }
  return nullptr;
}

}  // namespace quire::model
