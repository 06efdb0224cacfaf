// The architectures that Quire knows, as data: one row each. A row says what the metadata of a file do not say, because
// it is the same for all files of the architecture. hyperparameters.h reads the rest.
//
// Who may call: anyone, from any thread; the table is constant.
// How it fails: find_architecture() gives null for a name that is not in the table.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "quire/backend/backend.h"

namespace quire::model {

// The parts that layers are made of. Each is a class of its own (block.h).
enum class BlockKind : std::uint8_t { Attention, LatentAttention, Mamba1, Mamba2, ShortConv, DeltaRule, FeedForward };

// Whether a block of this kind has a recurrent state. An architecture has at most one such kind.
constexpr bool is_recurrent(BlockKind kind) {
  return kind == BlockKind::Mamba1 || kind == BlockKind::Mamba2 || kind == BlockKind::ShortConv ||
         kind == BlockKind::DeltaRule;
}

// The input of a block.
enum class Join : std::uint8_t {
  After,   // the residual stream, with the outputs of the blocks before it
  Beside,  // the same input as the block before it; both add to the stream
};

// A block of a layer. The hyperparameters of a layer select blocks of its row: attention (or latent attention, if that
// is what the row has) where it has KV heads, Mamba-2 and the like where it is recurrent, a feed-forward block where
// that has a width.
struct BlockSpec {
  BlockKind kind = BlockKind::Attention;
  std::string_view norm = {};       // tensor: norm of its input; none for a block beside another
  std::string_view post_norm = {};  // tensor: norm of its output, before it is added to the stream
  Join join = Join::After;
  std::string_view norm_bias = {};  // tensor: bias of the norm of its input
};

// The norms of the residual stream and of blocks' outputs.
enum class NormKind : std::uint8_t {
  Rms,    // x / rms(x) * weight
  Layer,  // (x - mean(x)) / deviation(x) * weight, plus bias if there is one
};

struct Architecture {
  std::string_view name;   // general.architecture; the metadata keys begin with it
  std::string_view title;  // for people
  std::span<const BlockSpec> blocks;

  constexpr bool has(BlockKind kind) const {
    for (const BlockSpec& block : blocks) {
      if (block.kind == kind) return true;
    }
    return false;
  }
  // Norms have biases. The norm before the output matrix has one then, too.
  constexpr bool norm_biases() const {
    for (const BlockSpec& block : blocks) {
      if (!block.norm_bias.empty()) return true;
    }
    return false;
  }
  // The kind of its recurrent blocks. FeedForward: it has none.
  constexpr BlockKind recurrent_kind() const {
    for (const BlockSpec& block : blocks) {
      if (is_recurrent(block.kind)) return block.kind;
    }
    return BlockKind::FeedForward;
  }
  constexpr bool recurs() const { return recurrent_kind() != BlockKind::FeedForward; }
  // A layer is either recurrent or has attention (attention_interval, attention.head_count_kv).
  constexpr bool alternates() const {
    bool beside = false;
    for (const BlockSpec& block : blocks)
      beside = beside || (block.join == Join::Beside && block.kind != BlockKind::FeedForward);
    return has(BlockKind::Attention) && recurs() && !beside;
  }

  NormKind norm = NormKind::Rms;
  // Where recurrent layers and those with attention alternate: each n-th layer has attention, where a file does not
  // name the interval (full_attention_interval). 0: layers without KV heads (attention.head_count_kv) are recurrent.
  std::uint32_t attention_interval = 0;
  std::string_view final_norm = "output_norm.weight";  // tensor: RMS norm before the output matrix

  // The sliding window in tokens, where a file does not name one. 0: there is none then.
  std::uint32_t default_window = 0;
  // Which layers have the window, where a file does not say so (attention.sliding_window_pattern): all but each n-th.
  // 0: all of them. 1: none.
  std::uint32_t window_period = 1;
  // How rotary embeddings pair the elements of a head.
  RopePairs rope_pairs = RopePairs::Halves;
  // Files with sections of rotary dimensions (rope.dimension_sections: models that see images) pair elements in another
  // order. They are refused.
  bool refuses_rope_sections = false;
  // A file may say that the model was trained without rotary embeddings (rope.scaling.finetuned = false). If so,
  // positions are not rotated.
  bool finetuned_switches_rope = false;
  // The rotary base of layers with a window (rope.freq_base_swa), where a file does not name one. 0: the same base as
  // in all other layers.
  float window_rope_base = 0;
  // Layers with a window have no rotary scaling, also where their base is that of all layers.
  bool windows_are_not_scaled = false;
  // Which layers are not rotated: each n-th. 0: all are rotated. 1: none is.
  std::uint32_t unrotated_period = 0;
  // Layers without a window are not rotated.
  bool rotated_in_windows_only = false;
  // Each position has an embedding in a table (position_embd.weight), which is added to the token's. Contexts end where
  // the table does.
  bool learned_positions = false;
  // YaRN's ramp begins and ends at whole pairs of elements (rope_scaling.h).
  bool yarn_whole_pairs = true;
  // YaRN: rope.scaling.yarn_log_multiplier is a tenth of Hugging Face's mscale_all_dim, mscale is the same, and what
  // they give is applied to the scores (twice, for query and key) and not to the rotation.
  bool yarn_scales_scores = false;
  Activation activation = Activation::Silu;
  bool embedding_times_root_of_width = false;
  // The file's logit_scale is what logits are multiplied by, and is required. Otherwise they are divided by it.
  bool logits_are_multiplied = false;
  // The largest model of the family scales queries by embedding width / heads instead of by the head size. It is
  // recognised by its number of layers. 0: there is no such model.
  std::uint32_t layers_that_scale_by_width = 0;
  // Soft caps of attention scores and logits, where a file does not name them. 0: there is none then.
  float default_attention_cap = 0;
  float default_logit_cap = 0;

  // Mixtures of experts, where a file does not say so (expert_gating_func, expert_weights_norm).
  Router::Scores expert_scores = Router::Scores::Softmax;
  bool expert_weights_normed = false;

  // Tensors that every file has in each layer that can have them. A file without them is refused. A file that has them
  // where the row says false is refused too, because what they do there is unknown.
  bool head_norms = false;          // of each head's query and key
  bool wide_norms = false;          // of all queries of a token at once, and of all keys
  bool gate_in_up = false;          // one matrix for gate and up, the gate's rows first; false: two matrices
  bool ungated = false;             // the feed-forward block is down(act(up)), and has no gate
  bool attention_sinks = false;     // a score per head that joins the softmax and has no position
  bool shared_expert_gate = false;  // the shared expert's output is multiplied by the sigmoid of a logit of its own
  // Here a file may have the tensors where the row says false: they can mean only one thing.
  bool projection_biases = false;  // of queries, keys and values
  bool output_bias = false;        // of the attention's output
  bool all_biases = false;         // of every matrix of attention and of the feed-forward block
  bool convolution_bias = false;   // of Mamba-2
  bool expert_biases = false;      // of the router and of every matrix of the experts
  // The other way round: a file may be without the norm of Mamba-2's output (ssm_norm.weight). It has no norm then.
  bool optional_ssm_norm = false;

  // The rows of a head in attn_q.weight are its query, then a gate: its output is multiplied by the gate's sigmoid.
  bool gated_attention = false;
  // Mamba-1: step size, B and C have norms with weights. False: without weights, if the file says so (ssm.dt_b_c_rms).
  bool step_norms = false;
  // The delta rule: head i of values has key head i % key heads. False: neighbouring heads share a key head.
  bool value_heads_tiled = false;
  // A layer behind the last one (nextn_predict_layers) guesses the token after the next, as Model::head() does.
  bool next_token_head = false;
};

// Sorted by name.
std::span<const Architecture> architectures();

const Architecture* find_architecture(std::string_view name);

}  // namespace quire::model
