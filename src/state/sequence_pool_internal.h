// The record of a live sequence. Only the files that implement SequencePool include this.
#pragma once

#include <memory>
#include <vector>

#include "quire/state/sequence_pool.h"

namespace quire {

inline constexpr const char* kHasDrafts = "the sequence has drafts: end_draft() first";

struct SequencePool::Sequence {
  std::uint32_t generation = 0;
  bool live = false;
  bool publishing = true;  // full blocks go into the prefix index
  RequestId request = 0;
  Namespace name_space = 0;
  std::uint32_t length = 0;          // tokens committed
  std::uint32_t next_boundary = 0;   // the first multiple of stride() after length
  std::uint32_t writable_until = 0;  // end of the reserved positions; nobody else can see their pages
  std::uint32_t chain = 0;           // blocks published: nodes[0 .. chain) are held
  EvictedBlocks::Use missed;         // recurrent models: the last checkpoint on its path that had been evicted
  SlotId slot;
  // While it has drafts: where they begin and end, and what had been reserved before. draft_end is 0 without drafts.
  std::uint32_t draft_begin = 0, draft_end = 0, reserved_before = 0;
  SlotId scratch;  // of a recurrent model
  std::vector<PagedSeqState> groups;
  std::vector<std::uint32_t> nodes;  // [max_blocks]
  std::unique_ptr<Token[]> tokens;   // [max_tokens], not initialized

  bool has_drafts() const { return draft_end != 0; }
  // Sets the length and drops any reservation beyond it.
  void stand_at(std::uint32_t position, std::uint32_t stride) {
    length = writable_until = position;
    next_boundary = (position / stride + 1) * stride;
  }
  std::span<const Token> block(std::uint32_t index, std::uint32_t block_size) const {
    return {tokens.get() + std::size_t{index} * block_size, block_size};
  }
  // The tokens after the published blocks, up to `until`.
  std::span<const Token> tail(std::uint32_t block_size, std::uint32_t until) const {
    return {tokens.get() + std::size_t{chain} * block_size, until - chain * block_size};
  }
  std::uint32_t parent_of(std::uint32_t block) const { return block == 0 ? kNoIndex : nodes[block - 1]; }
};

inline SequencePool::Sequence* SequencePool::find(SequenceId id) {
  if (id.index >= config_.max_sequences) return nullptr;
  Sequence& sequence = sequences_.data()[id.index];
  return sequence.live && sequence.generation == id.generation ? &sequence : nullptr;
}
inline const SequencePool::Sequence* SequencePool::find(SequenceId id) const {
  return const_cast<SequencePool*>(this)->find(id);
}

}  // namespace quire
