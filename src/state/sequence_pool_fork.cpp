// Fork and rewind.
#include <algorithm>
#include <cstring>

#include "quire/base/check.h"
#include "quire/state/sequence_pool.h"
#include "quire/state/sequence_pool_internal.h"

namespace quire {
namespace {

using Kind = PoolEvent::Kind;

}  // namespace

SequencePool::ResumePoint SequencePool::resume_point(const Sequence& sequence, std::uint32_t position) const {
  if (position == 0) return {};
  bool in_place = !states_ || position == sequence.length;
  for (std::uint32_t g = 0; g < groups(); ++g) {
    in_place = in_place && window_start(g, position) / block_size() >= sequence.groups[g].table().first();
  }
  if (in_place) return {position, true};
  for (std::uint32_t blocks = std::min(position / block_size(), sequence.chain);; --blocks) {
    const auto after = std::span(sequence.tokens.get(), position).subspan(std::size_t{blocks} * block_size());
    const std::uint32_t part = resumable_part(sequence.name_space, sequence.parent_of(blocks), after);
    if (part != kNoIndex) return {index_->end(part), false, part};
    if (blocks == 0) return {};
    if (resumable(sequence.nodes[blocks - 1])) return {blocks * block_size(), false};
  }
}

PoolResult<SequencePool::Forked> SequencePool::do_fork(SequenceId id, std::uint32_t position, RequestId request) {
  Sequence* parent = find(id);
  if (parent == nullptr) return std::unexpected(PoolError::invalid_sequence(id.index));
  if (parent->has_drafts()) return std::unexpected(PoolError::invalid_argument(kHasDrafts));
  if (position > parent->length) return std::unexpected(PoolError::not_written(position));
  if (free_sequences_.empty()) return refuse(PoolError::exhausted("sequences", 1, 0));
  const ResumePoint point = resume_point(*parent, position);
  const std::uint32_t blocks = std::min(point.position / block_size(), parent->chain);

  Match through_index{.hit = {.tokens = point.position}, .blocks = blocks};
  if (point.part != kNoIndex) {
    through_index.partial_node = point.part;
    through_index.partial_tokens = index_->count(point.part);
  }
  Need need{};
  if (point.in_place) {
    if (states_) need[state_class()] = 1;
  } else {
    need = need_to_attach(through_index, parent->nodes);
  }
  if (!feasible(need)) return refuse(refusal(need));

  const std::uint32_t index = free_sequences_.back();
  Sequence& child = sequences_[index];
  child.live = true;
  child.publishing = config_.prefix_cache && (parent->publishing || point.position / block_size() <= parent->chain);
  child.request = request_or_own(request);
  child.name_space = parent->name_space;
  PoolResult<void> ok;
  if (point.in_place) {
    for (std::uint32_t b = 0; b < blocks; ++b) {
      index_->hold(parent->nodes[b]);
      child.nodes[b] = parent->nodes[b];
    }
    child.chain = blocks;
    child.stand_at(point.position, stride());
    for (std::uint32_t g = 0; g < groups(); ++g) child.groups[g].share(parent->groups[g], point.position);
    if (states_) ok = give_slot(child, kNoIndex);
    if (states_ && ok && point.position > 0) ok = states_->copy(child.slot, parent->slot);
  } else {
    ok = attach(child, through_index, parent->nodes);
  }
  if (!ok) {
    detach(child);
    return refuse(ok.error());
  }
  free_sequences_.pop_back();
  std::memcpy(child.tokens.get(), parent->tokens.get(), point.position * sizeof(Token));
  // The page that the parent is filling may be in two tables now: the parent must reserve again.
  if (point.in_place && parent->length % block_size() != 0 &&
      point.position > parent->length / block_size() * block_size()) {
    parent->writable_until = parent->length;
  }
  ++counters_.forks;
  ++counters_.sequences;
  counters_.sequences_high_water = std::max(counters_.sequences_high_water, counters_.sequences);
  events_->record(Kind::SequenceForked, 0, index, id.index);
  return Forked{{index, child.generation}, point.position};
}

PoolResult<std::uint32_t> SequencePool::do_rewind(SequenceId id, std::uint32_t position) {
  Sequence* sequence = find(id);
  if (sequence == nullptr) return std::unexpected(PoolError::invalid_sequence(id.index));
  if (sequence->has_drafts()) return std::unexpected(PoolError::invalid_argument(kHasDrafts));
  if (position > sequence->length) return std::unexpected(PoolError::not_written(position));
  if (position == sequence->length) return position;
  const ResumePoint point = resume_point(*sequence, position);
  const std::uint32_t blocks = point.position / block_size();

  // The state of the new position comes first, because it can fail.
  if (states_) {
    SequenceSlot& slot = states_->at(sequence->slot.index);
    if (point.position == 0) {
      if (auto ok = slot.state().reset(); !ok) return std::unexpected(ok.error());
    } else {
      const std::uint32_t node = point.part != kNoIndex ? point.part : sequence->nodes[blocks - 1];
      const SlotId checkpoint = index_->checkpoint(node);
      if (auto ok = states_->copy(sequence->slot, checkpoint); !ok) return std::unexpected(ok.error());
      index_->touch_checkpoint(node);
      if (point.part != kNoIndex) {  // the last to be evicted, like its checkpoint
        ++counters_.parts_reused;
        index_->hold(node);
        index_->let_go(node);
      }
      ++counters_.checkpoints_restored;
      events_->record(Kind::CheckpointRestored, state_class(), checkpoint.index, sequence->slot.index);
    }
  }
  for (std::uint32_t g = 0; g < groups(); ++g) {
    PagedSeqState& group = sequence->groups[g];
    group.truncate(point.position);
    const std::uint32_t first = window_start(g, point.position) / block_size();
    while (group.table().first() > first && point.position > 0) {
      const std::uint32_t block = group.table().first() - 1;
      const PageId page = index_->page(block == blocks ? point.part : sequence->nodes[block], g);
      const auto ok = pools_[g]->acquire(page);
      QUIRE_CHECK(ok.has_value(), "a resumable node has its window");
      group.take_back(page);
    }
  }
  while (sequence->chain > blocks) let_go(sequence->nodes[--sequence->chain]);
  sequence->publishing = config_.prefix_cache && (sequence->publishing || sequence->chain == blocks);
  sequence->stand_at(point.position, stride());
  keep_within_cap(sequence->name_space);
  ++counters_.rewinds;
  events_->record(Kind::SequenceRewound, 0, id.index, point.position);
  return point.position;
}

}  // namespace quire
