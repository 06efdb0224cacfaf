// Drafts: tokens that a sequence may turn out not to have.
#include <algorithm>
#include <utility>

#include "quire/base/check.h"
#include "quire/state/sequence_pool.h"
#include "quire/state/sequence_pool_internal.h"

namespace quire {
namespace {

using Kind = PoolEvent::Kind;

}  // namespace

PoolResult<void> SequencePool::do_draft(SequenceId id, std::uint32_t certain, std::uint32_t drafts) {
  Sequence* sequence = find(id);
  if (sequence == nullptr) return std::unexpected(PoolError::invalid_sequence(id.index));
  if (sequence->has_drafts()) return std::unexpected(PoolError::invalid_argument(kHasDrafts));
  if (certain == 0 || drafts == 0) {
    return std::unexpected(PoolError::invalid_argument("drafts follow at least one token, and are at least one"));
  }
  const std::uint64_t begin = std::uint64_t{sequence->length} + certain, end = begin + drafts;
  if (begin > sequence->writable_until) {
    return std::unexpected(PoolError::not_reserved(begin, sequence->writable_until));
  }
  if (end > config_.max_tokens) return std::unexpected(PoolError::too_long("tokens", end, config_.max_tokens));
  const auto target = static_cast<std::uint32_t>(end);
  // The certain tokens were reserved, so no half-full page has to be copied.
  Need need{};
  for (std::uint32_t g = 0; g < groups(); ++g) need[g] = sequence->groups[g].pages_missing(target);
  if (states_) need[state_class()] = 1;
  if (!feasible(need)) return refuse(refusal(need));
  if (auto ok = make_room(need, Effort::Everything); !ok) return refuse(ok.error());
  if (states_) {
    const auto scratch = take_scratch(id.index);
    if (!scratch) return refuse(scratch.error());
    sequence->scratch = *scratch;
  }
  for (std::uint32_t g = 0; g < groups(); ++g) {
    const auto growth = sequence->groups[g].grow(target);
    QUIRE_CHECK(growth.has_value(), "there is room, and nothing is copied");
    note_pages(*sequence, g, *growth);
  }
  sequence->draft_begin = static_cast<std::uint32_t>(begin);
  sequence->draft_end = target;
  sequence->reserved_before = sequence->writable_until;
  sequence->writable_until = std::max(sequence->writable_until, target);
  return {};
}

PoolResult<void> SequencePool::do_end_draft(SequenceId id) {
  Sequence* sequence = find(id);
  if (sequence == nullptr) return std::unexpected(PoolError::invalid_sequence(id.index));
  if (!sequence->has_drafts()) return std::unexpected(PoolError::invalid_argument("the sequence has no drafts"));
  sequence->writable_until = std::max(sequence->length, sequence->reserved_before);
  for (PagedSeqState& group : sequence->groups) group.truncate(sequence->writable_until);
  drop_scratch(*sequence);
  sequence->draft_end = 0;
  return {};
}

PoolResult<StateView> SequencePool::scratch_view(SequenceId id) const {
  const Sequence* sequence = find(id);
  if (sequence == nullptr) return std::unexpected(PoolError::invalid_sequence(id.index));
  if (!sequence->scratch.valid()) return std::unexpected(PoolError::invalid_slot(0));
  return states_->at(sequence->scratch.index).state().view();
}

// Every byte of a state is written by kernels, except between its parts: saved states are compared byte by byte.
PoolResult<SlotId> SequencePool::take_scratch(std::uint32_t sequence) {
  const StateShape& shape = layout().recurrent;
  const bool gaps = shape.num_layers * (shape.conv_bytes + shape.ssm_bytes) != shape.bytes();
  const auto slot = gaps ? states_->alloc_clean() : states_->alloc_unbound();
  if (!slot) return slot;
  slot_infos_[slot->index] = {.node = kNoIndex, .sequence = sequence, .scratch = true};
  events_->record(Kind::SlotTaken, state_class(), slot->index, sequences_[sequence].request);
  return slot;
}

void SequencePool::drop_scratch(Sequence& sequence) {
  if (!sequence.scratch.valid()) return;
  slot_infos_[sequence.scratch.index] = SlotInfo{};
  events_->record(Kind::SlotReleased, state_class(), sequence.scratch.index);
  states_->abandon(sequence.scratch);
  sequence.scratch = SlotId{};
}

PoolResult<void> SequencePool::may_commit(const Sequence& sequence, std::size_t tokens) const {
  const std::uint64_t end = sequence.length + tokens;
  if (end > sequence.draft_end) return std::unexpected(PoolError::not_reserved(end, sequence.draft_end));
  if (!states_ || tokens == 0) return {};
  const bool certain = sequence.length < sequence.draft_begin;
  if (end == (certain ? sequence.draft_begin : sequence.draft_end)) return {};
  return std::unexpected(
      PoolError::invalid_argument("a recurrent state exists before the drafts and after all of them"));
}

// The scratch state becomes the sequence's own. It stands where the other one stood; commit() moves it on.
void SequencePool::swap_states(Sequence& sequence) {
  SequenceSlot& from = states_->at(sequence.slot.index);
  SequenceSlot& to = states_->at(sequence.scratch.index);
  to.state().forget();
  const auto ok = to.step(from.position());
  QUIRE_CHECK(ok.has_value(), "the other state stands there");
  to.bind(from.request());
  from.forget();
  std::swap(sequence.slot, sequence.scratch);
  slot_infos_[sequence.slot.index].scratch = false;
  slot_infos_[sequence.scratch.index].scratch = true;
}

}  // namespace quire
