// One step: reserve and commit.
#include <algorithm>
#include <cstring>

#include "quire/base/check.h"
#include "quire/state/sequence_pool.h"
#include "quire/state/sequence_pool_internal.h"

namespace quire {
namespace {

using Kind = PoolEvent::Kind;

}  // namespace

// Whether an entry has to copy its half-full page. Entries are served in order, and a sequence that has copied a page
// gives up its reference. So the last holder of a page may write in place.
bool SequencePool::copies(std::span<const BatchEntry> entries, std::size_t index, std::uint32_t group,
                          bool copy_kept) const {
  const Sequence& sequence = *find(entries[index].sequence);
  if (entries[index].rows == 0 || !sequence.groups[group].must_copy(copy_kept)) return false;
  const PageId page = sequence.groups[group].table().page(sequence.length / block_size());
  if (copy_kept && allocator(group).is_kept(page.index)) return true;
  std::uint32_t holders = allocator(group).references_at(page.index);
  for (std::size_t i = 0; i < index; ++i) {
    const Sequence& earlier = *find(entries[i].sequence);
    const std::uint32_t block = earlier.length / block_size();
    const bool same = entries[i].rows > 0 && earlier.length % block_size() != 0 &&
                      block < earlier.groups[group].table().size() && earlier.groups[group].table().page(block) == page;
    if (same) --holders;
  }
  return holders > 1;
}

PoolResult<SequencePool::Plan> SequencePool::plan(std::span<const BatchEntry> entries) const {
  Plan plan;
  Need without_copies{};
  ++plans_;
  for (std::size_t index = 0; index < entries.size(); ++index) {
    const BatchEntry& entry = entries[index];
    const Sequence* sequence = find(entry.sequence);
    if (sequence == nullptr) return std::unexpected(PoolError::invalid_sequence(entry.sequence.index));
    if (asked_in_[entry.sequence.index] == plans_) {
      return std::unexpected(PoolError::invalid_argument("a sequence is listed twice in one reservation"));
    }
    asked_in_[entry.sequence.index] = plans_;
    if (sequence->has_drafts()) return std::unexpected(PoolError::invalid_argument(kHasDrafts));
    const std::uint64_t target = std::uint64_t{sequence->length} + entry.rows;
    if (target > config_.max_tokens) return std::unexpected(PoolError::too_long("tokens", target, config_.max_tokens));
    for (std::uint32_t g = 0; g < groups(); ++g) {
      const std::uint32_t missing = sequence->groups[g].pages_missing(static_cast<std::uint32_t>(target));
      plan.need[g] += missing + (copies(entries, index, g, true) ? 1 : 0);
      without_copies[g] += missing + (copies(entries, index, g, false) ? 1 : 0);
    }
  }
  if (feasible(plan.need)) return plan;
  if (!feasible(without_copies)) return std::unexpected(refusal(without_copies));
  return Plan{without_copies, true};
}

// Removes the half-full last page of an entry from the index, so that it can be written without a copy. Only for a page
// that nobody but the index shares, once the entries before this one have their copies.
void SequencePool::unpublish_last_page(std::span<const BatchEntry> entries, std::size_t index) {
  const Sequence& sequence = *find(entries[index].sequence);
  const std::uint32_t block = sequence.length / block_size();
  for (std::uint32_t g = 0; g < groups(); ++g) {
    if (!copies(entries, index, g, true) || copies(entries, index, g, false)) continue;
    const PageId page = sequence.groups[g].table().page(block);
    const std::uint32_t node = page_infos_[g][page.index].node;
    if (index_->node(node).holders > 0) {
      // A window group: other sequences are on this path, but their windows begin after this page.
      note_dropping(node, g);
      page_infos_[g][page.index].node = kNoIndex;
      index_->set_page(node, g, PageId{});
      const auto ok = pools_[g]->drop(page);
      QUIRE_CHECK(ok.has_value(), "the page is kept");
      continue;
    }
    while (page_infos_[g][page.index].node == node) {
      std::uint32_t leaf = node;
      while (!index_->is_leaf(leaf)) leaf = index_->node(leaf).first_child;
      evict_node(leaf);
    }
  }
}

PoolResult<void> SequencePool::can_reserve(std::span<const BatchEntry> entries) const {
  const auto planned = plan(entries);
  if (!planned) return std::unexpected(planned.error());
  return {};
}

bool SequencePool::is_reserved(SequenceId id, std::uint32_t tokens) const {
  const Sequence* sequence = find(id);
  return sequence != nullptr && std::uint64_t{sequence->length} + tokens <= sequence->writable_until;
}

PoolResult<void> SequencePool::do_reserve(std::span<const BatchEntry> entries) {
  const auto planned = plan(entries);
  if (!planned) return refuse(planned.error());
  if (planned->unpublish) {
    for (std::size_t index = 0; index < entries.size(); ++index) unpublish_last_page(entries, index);
  }
  if (auto ok = make_room(planned->need, Effort::Everything); !ok) return refuse(ok.error());

  std::size_t grown = 0;
  const auto undo_all = [&] {
    while (grown-- > 0) {
      Sequence& sequence = *find(entries[grown / groups()].sequence);
      sequence.groups[grown % groups()].undo_finished(growths_[grown]);
    }
  };
  for (const BatchEntry& entry : entries) {
    Sequence& sequence = *find(entry.sequence);
    for (PagedSeqState& group : sequence.groups) {
      const auto growth = group.grow(sequence.length + entry.rows);
      if (!growth) {
        undo_all();
        return refuse(growth.error());
      }
      group.finish(*growth);  // now, so that the next holder of the copied page may write in place
      growths_[grown++] = *growth;
    }
  }
  grown = 0;
  for (const BatchEntry& entry : entries) {
    Sequence& sequence = *find(entry.sequence);
    std::uint32_t until = sequence.groups.empty() ? sequence.length + entry.rows : config_.max_tokens;
    for (std::uint32_t g = 0; g < groups(); ++g) {
      note_pages(sequence, g, growths_[grown++]);
      until = std::min(until, sequence.groups[g].capacity());
    }
    // An entry without tokens does not make a shared half-full page writable.
    sequence.writable_until =
        entry.rows == 0 ? std::max(sequence.writable_until, sequence.length) : std::max(until, sequence.writable_until);
  }
  return {};
}

void SequencePool::note_pages(Sequence& sequence, std::uint32_t group, const PagedSeqState::Growth& growth) {
  const BlockTable& table = sequence.groups[group].table();
  const auto note = [&](std::uint32_t block) { page_infos_[group][table.page(block).index] = {kNoIndex, block}; };
  for (std::uint32_t block = growth.old_blocks; block < table.size(); ++block) note(block);
  if (growth.replaced.valid()) {
    note(growth.replaced_block);
    ++counters_.pages_copied;
    events_->record(Kind::PageCopied, group, growth.replaced.index, table.page(growth.replaced_block).index);
  }
}

PoolResult<void> SequencePool::can_ever_fit(std::uint32_t tokens, std::uint32_t chunk) const {
  if (tokens > config_.max_tokens) return std::unexpected(PoolError::too_long("tokens", tokens, config_.max_tokens));
  std::uint64_t slabs = 0;
  Need need{};
  for (std::uint32_t g = 0; g < groups(); ++g) {
    need[g] = most_pages(g, tokens, chunk);
    slabs += divide_up(need[g], allocator(g).cells_per_slab());
  }
  if (states_) {
    need[state_class()] = 1;
    slabs += 1;
  }
  if (slabs <= arena_->total_slabs()) return {};
  std::uint64_t wanted = 0;
  for (std::uint32_t c = 0; c < classes(); ++c) wanted += need[c] * object_bytes(c);
  return std::unexpected(PoolError::exhausted("bytes", wanted, arena_->slab_bytes() * arena_->total_slabs()));
}

PoolResult<void> SequencePool::do_commit(SequenceId id, std::span<const Token> tokens, bool checkpoint) {
  Sequence* sequence = find(id);
  if (sequence == nullptr) return std::unexpected(PoolError::invalid_sequence(id.index));
  const std::uint64_t target = sequence->length + tokens.size();
  if (target > sequence->writable_until) {
    return std::unexpected(PoolError::not_reserved(target, sequence->writable_until));
  }
  if (sequence->has_drafts()) {
    if (auto ok = may_commit(*sequence, tokens.size()); !ok) return ok;
    if (states_ && sequence->length == sequence->draft_begin && !tokens.empty()) swap_states(*sequence);
  }
  Token* to = sequence->tokens.get() + sequence->length;
  if (tokens.size() == 1) {
    *to = tokens.front();
  } else if (!tokens.empty()) {
    std::memcpy(to, tokens.data(), tokens.size_bytes());
  }
  sequence->length = static_cast<std::uint32_t>(target);
  for (PagedSeqState& group : sequence->groups) group.set_length(sequence->length);
  if (states_) {
    const auto ok = states_->at(sequence->slot.index).step(static_cast<std::uint32_t>(tokens.size()));
    QUIRE_CHECK(ok.has_value(), "the capacity of a state is the longest sequence");
  }
  if (sequence->length < sequence->next_boundary && !has_windows_ && !checkpoint)
    return {};  // the common case in decode: neither a block ends here nor can a checkpoint be kept
  pass_boundary(*sequence, checkpoint);
  return {};
}

// Publishes full blocks, gives back pages before the windows, and keeps a checkpoint if one is due.
void SequencePool::pass_boundary(Sequence& sequence, bool checkpoint) {
  sequence.next_boundary = (sequence.length / stride() + 1) * stride();
  if (sequence.publishing && (sequence.chain + 1) * block_size() <= sequence.length) publish(sequence);
  for (std::uint32_t g = 0; g < groups(); ++g) {
    if (layout().groups[g].window != 0) sequence.groups[g].give_back_before(window_start(g, sequence.length));
  }
  if (states_ && sequence.length % unit() == 0) {
    sequence.length % block_size() == 0 ? keep_checkpoint(sequence, checkpoint) : keep_part(sequence, checkpoint);
  }
  keep_within_cap(sequence.name_space);
}

}  // namespace quire
