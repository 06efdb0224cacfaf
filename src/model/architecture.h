// The architectures that Quire knows, as data: one row each. A row says what cannot be read from a file's metadata
// because every file of the architecture leaves it unsaid; hyperparameters.h reads the rest.
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
enum class BlockKind : std::uint8_t { Attention, Mamba2, FeedForward };

// What a block reads.
enum class Join : std::uint8_t {
  After,   // the residual stream, with what the blocks before it have added
  Beside,  // what the block before it reads; both add to the stream
};

// A block of a layer. A layer has those of its row's blocks that its numbers speak of: attention where it has KV heads,
// Mamba-2 where it is recurrent, a feed-forward part where that has a width.
struct BlockSpec {
  BlockKind kind = BlockKind::Attention;
  std::string_view norm = {};       // tensor: RMS norm of what it reads; none for a block beside another
  std::string_view post_norm = {};  // tensor: RMS norm of its output, before that is added
  Join join = Join::After;
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
  // A layer is either recurrent or has attention: those without KV heads (attention.head_count_kv) are recurrent.
  constexpr bool alternates() const {
    bool beside = false;
    for (const BlockSpec& block : blocks)
      beside = beside || (block.join == Join::Beside && block.kind != BlockKind::FeedForward);
    return has(BlockKind::Attention) && has(BlockKind::Mamba2) && !beside;
  }

  // The window of layers that look back only so far, in tokens, where a file does not name one; 0: then there is none.
  std::uint32_t default_window = 0;
  // Which layers have the window, where a file does not say so (attention.sliding_window_pattern): all but each n-th.
  // 0: all of them. 1: none.
  std::uint32_t window_period = 1;
  // How rotary embeddings pair the elements of a head.
  RopePairs rope_pairs = RopePairs::Halves;
  // A file that says that it was not trained so (rope.scaling.finetuned) does not rotate positions at all.
  bool finetuned_switches_rope = false;
  // Layers with a window rotate with a base of their own (rope.freq_base_swa), which is this where a file names none;
  // 0: with the same as all others.
  float window_rope_base = 0;
  Activation activation = Activation::Silu;
  bool embedding_times_root_of_width = false;
  // The largest model of the family scales queries by the width of the embedding per head instead of the head's own
  // length; it is known by its number of layers. 0: there is none.
  std::uint32_t layers_that_scale_by_width = 0;
  // Soft caps of scores and logits where a file does not name them; 0: then there is none.
  float default_attention_cap = 0;
  float default_logit_cap = 0;

  // Tensors that every file has in each layer that they can be in. One without them is refused, and so is one that has
  // them where the row says no: nobody knows what they do there.
  bool head_norms = false;  // of each head's query and key
  bool gate_in_up = false;  // one matrix for both, the gate's rows first; no: each has its own
  // The same, but where the row says no, a file may have them: they can mean only one thing.
  bool projection_biases = false;  // of queries, keys and values
  bool convolution_bias = false;   // of Mamba-2
};

// Sorted by name.
std::span<const Architecture> architectures();

const Architecture* find_architecture(std::string_view name);

}  // namespace quire::model
