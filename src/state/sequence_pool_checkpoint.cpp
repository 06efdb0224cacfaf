// Checkpoints: where the state of a sequence is kept, at the end of a block or inside one.
#include <algorithm>

#include "quire/base/check.h"
#include "quire/state/sequence_pool.h"
#include "quire/state/sequence_pool_internal.h"

namespace quire {

using Kind = PoolEvent::Kind;

void SequencePool::skip_checkpoint(std::uint32_t node, bool asked, std::uint32_t covered) {
  ++counters_.checkpoints_skipped;
  if (covered != kNoIndex) index_->uncover(covered);
  if (index_->by_value()) index_->note_skipped_checkpoint(node, asked);
}

// Makes room for a checkpoint and what comes with it, within the budget of checkpoints. Nothing is evicted that is
// worth as much. `arriving`: the node that gets the checkpoint, if it exists already.
bool SequencePool::make_room_for_checkpoint(std::uint32_t arriving, const Need& need) {
  while (index_->checkpoint_count() + 1 > checkpoint_budget_) {
    arriving_node_ = arriving;
    const bool thinned = checkpoint_budget_ > 0 &&
                         (index_->by_value() ? evict_least_worth(Effort::Gentle) : thin_checkpoints(Effort::Gentle));
    arriving_node_ = kNoIndex;
    if (!thinned) return false;
  }
  return feasible(need) && make_room(need, Effort::Gentle);
}

// A kept copy of the sequence's state. There must be room for it.
PoolResult<SlotId> SequencePool::copy_of_state(const Sequence& sequence) {
  auto slot = states_->alloc_unbound();
  if (!slot) return slot;
  if (auto ok = states_->copy(*slot, sequence.slot); !ok) {
    (void)states_->release(*slot);
    return std::unexpected(ok.error());
  }
  const auto kept = states_->keep(*slot);
  QUIRE_CHECK(kept.has_value(), "the slot was just taken");
  return slot;
}

// At a block boundary: keeps a checkpoint if one is asked for or due, and if there is room for it.
void SequencePool::keep_checkpoint(Sequence& sequence, bool asked) {
  if (sequence.chain == 0 || sequence.chain * block_size() != sequence.length) return;
  const std::uint32_t node = sequence.nodes[sequence.chain - 1];
  const std::uint32_t distance = units_since_checkpoint(node, interval_units_);
  if (distance == 0 || (!asked && distance < interval_units_)) return;
  std::uint32_t covered = kNoIndex;
  if (index_->by_value()) {
    arriving_worth_ = worth_of_new_checkpoint(sequence.length, units_since_checkpoint(node, kGapLooks), asked,
                                              layout().recurrent.bytes());
    // So it is the first to make room.
    covered = index_->cover_before(sequence.name_space, index_->node(node).parent, index_->tokens(node));
  }
  Need need{};
  need[state_class()] = 1;
  PoolResult<SlotId> slot = std::unexpected(PoolError{});
  if (make_room_for_checkpoint(node, need)) slot = copy_of_state(sequence);
  if (!slot) return skip_checkpoint(node, asked, covered);
  slot_infos_[slot->index] = {.node = node, .sequence = kNoIndex};
  index_->set_checkpoint(node, *slot, asked);
  ++counters_.checkpoints_stored;
  events_->record(Kind::CheckpointStored, state_class(), slot->index, sequence.length);
  note_stored(node, state_class());
}

// Copies the half-full last page of each group, all or nothing. There must be room for them.
bool SequencePool::copy_pages(const Sequence& sequence, std::array<PageId, kMaxClasses>& copies) {
  const std::uint32_t block = sequence.length / block_size();
  for (std::uint32_t g = 0; g < groups(); ++g) {
    const auto page = pools_[g]->allocate();
    QUIRE_CHECK(page.has_value(), "room was made");
    copies[g] = *page;
    const PageId from = sequence.groups[g].table().page(block);
    if (pools_[g]->copy_page(page->index, from.index)) {
      ++counters_.pages_copied;
      events_->record(Kind::PageCopied, g, from.index, page->index);
      continue;
    }
    for (std::uint32_t taken = 0; taken <= g; ++taken) (void)pools_[taken]->free(copies[taken]);
    return false;
  }
  return true;
}

// Inside a block: the same as a part of the index, with copies of the half-full pages. The sequence goes on writing its
// own pages.
void SequencePool::keep_part(Sequence& sequence, bool asked) {
  if (!sequence.publishing || sequence.chain != sequence.length / block_size()) return;
  const Namespace name_space = sequence.name_space;
  const std::uint32_t parent = sequence.parent_of(sequence.chain);
  const auto tokens = sequence.tail(block_size(), sequence.length);
  const PrefixIndex::Found found = index_->find_child(name_space, parent, tokens);
  if (found.node != kNoIndex) return;
  if (!asked && units_since_checkpoint(name_space, parent, tokens, interval_units_) < interval_units_) return;
  std::uint32_t covered = kNoIndex;
  if (index_->by_value()) {
    note_evicted_part(sequence, found);
    arriving_worth_ =
        worth_of_new_checkpoint(sequence.length, units_since_checkpoint(name_space, parent, tokens, kGapLooks), asked,
                                layout().recurrent.bytes() + node_bytes_);
    covered = index_->cover_before(name_space, parent, tokens);
  }
  const auto skip = [&] {
    ++counters_.checkpoints_skipped;
    if (covered != kNoIndex) index_->uncover(covered);
    if (index_->by_value()) index_->note_skipped_part(name_space, found.content, asked);
  };
  Need need{};
  for (std::uint32_t c = 0; c < classes(); ++c) need[c] = 1;
  if (!make_room_for_checkpoint(kNoIndex, need)) return skip();
  if (index_->full() && index_->least_recently_used() != kNoIndex) evict_node(index_->least_recently_used());
  if (index_->full()) return skip();  // every node is held
  std::array<PageId, kMaxClasses> copies;
  if (!copy_pages(sequence, copies)) return skip();
  const auto slot = copy_of_state(sequence);
  if (!slot) {
    for (std::uint32_t g = 0; g < groups(); ++g) (void)pools_[g]->free(copies[g]);
    return skip();
  }
  const std::uint32_t node = index_->insert(name_space, parent, tokens, found);
  for (std::uint32_t g = 0; g < groups(); ++g) {
    publish_page(node, g, copies[g], sequence.chain);
    (void)pools_[g]->free(copies[g]);  // only the index has it
  }
  slot_infos_[slot->index] = {.node = node, .sequence = kNoIndex};
  index_->set_checkpoint(node, *slot, asked);
  index_->let_go(node);
  ++counters_.checkpoints_stored;
  ++counters_.parts_stored;
  events_->record(Kind::CheckpointStored, state_class(), slot->index, sequence.length);
}

PoolResult<std::uint32_t> SequencePool::next_checkpoint(SequenceId id) const {
  const Sequence* sequence = find(id);
  if (sequence == nullptr) return std::unexpected(PoolError::invalid_sequence(id.index));
  if (!states_) return std::unexpected(PoolError::invalid_slot(0));
  // The last unit whose state could have been kept. The blocks after the published ones cannot.
  const bool all_published = sequence->chain == sequence->length / block_size();
  const std::uint32_t last = all_published ? sequence->length / unit() * unit() : sequence->chain * block_size();
  const std::uint32_t parent = sequence->parent_of(sequence->chain);
  const auto tail = sequence->tail(block_size(), last);
  const std::uint32_t since =
      tail.empty() ? units_since_checkpoint(parent, interval_units_)
      : index_->find_child(sequence->name_space, parent, tail).node != kNoIndex
          ? 0
          : std::min(interval_units_, units_since_checkpoint(sequence->name_space, parent, tail, interval_units_));
  const std::uint32_t due = last + (interval_units_ - since) * unit();
  const std::uint32_t boundary = (sequence->length / unit() + 1) * unit();
  return std::min(std::max(due, boundary), config_.max_tokens);
}

}  // namespace quire
