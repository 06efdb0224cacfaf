// Making room. Counting decides whether a need can be met. Then cached content is evicted, and objects are moved
// together until enough slabs are free. What is evicted first by value is in sequence_pool_value.cpp; the rest of the
// order, and all of it for Eviction::Lru, is here.
#include <cmath>
#include <limits>

#include "quire/base/check.h"
#include "quire/state/content_observer.h"
#include "quire/state/sequence_pool.h"
#include "quire/state/sequence_pool_internal.h"

namespace quire {
namespace {

using Kind = PoolEvent::Kind;

constexpr std::uint32_t kCheckpointLooks = 64;  // candidates examined per drop
constexpr std::uint32_t kWindowLooks = 64;      // cached pages examined for one above its tenant's floor

}  // namespace

// Everything cached can be evicted and everything unpinned can be moved. So two things count: the slabs that the held
// objects need when packed, and the slabs that pinned objects block. `freed`: objects that will no longer be held.
bool SequencePool::feasible(const Need& more, const Need& freed) const {
  std::uint64_t slabs = 0;
  for (std::uint32_t c = 0; c < classes(); ++c) {
    const BlockAllocator& a = allocator(c);
    const std::uint64_t objects = std::uint64_t{a.held_count()} - freed[c] + more[c];
    slabs += std::max<std::uint64_t>(divide_up<std::uint64_t>(objects, a.cells_per_slab()), a.pinned_slabs());
  }
  return slabs <= arena_->total_slabs();
}

PoolError SequencePool::refusal(const Need& need) const {
  std::uint64_t wanted = 0, held = 0;
  for (std::uint32_t c = 0; c < classes(); ++c) {
    wanted += need[c] * object_bytes(c);
    held += allocator(c).held_count() * object_bytes(c);
  }
  const std::uint64_t total = arena_->slab_bytes() * arena_->total_slabs();
  return PoolError::exhausted("bytes", wanted, total - std::min(total, held));
}

// Counts an operation that failed for lack of room, and returns its error.
std::unexpected<PoolError> SequencePool::refuse(const PoolError& error) {
  if (error.code == PoolError::Code::Exhausted) ++counters_.refusals;
  return std::unexpected(error);
}

PoolResult<void> SequencePool::make_room(const Need& need, Effort effort) {
  const auto slabs_short = [&] {
    std::uint64_t slabs = 0;
    for (std::uint32_t c = 0; c < classes(); ++c) {
      const BlockAllocator& a = allocator(c);
      if (need[c] > a.attached_free_count()) slabs += divide_up(need[c] - a.attached_free_count(), a.cells_per_slab());
    }
    return slabs;
  };
  while (slabs_short() > arena_->free_slabs()) {
    const auto compacted = compact_one(need);
    if (!compacted) return std::unexpected(compacted.error());
    if (*compacted) continue;
    if (!evict_one(need, effort)) return std::unexpected(refusal(need));
  }
  return {};
}

// Evicts the cached content that is cheapest to lose. Returns false if nothing is left.
bool SequencePool::evict_one(const Need& need, Effort effort) {
  // A window group that needs another slab first evicts a cached page of its own: no prefix loses its other pages by
  // that. The decision uses counts as if everything were packed, so it does not depend on where objects happen to be.
  for (std::uint32_t g = 0; g < groups(); ++g) {
    const BlockAllocator& a = allocator(g);
    const std::uint32_t objects = a.held_count() + a.cached_count();
    const bool grows = divide_up(objects + need[g], a.cells_per_slab()) > divide_up(objects, a.cells_per_slab());
    if (layout().groups[g].window == 0 || !grows) continue;
    if (const PageId page = oldest_window_page(g); page.valid()) {
      evict_window_page(g, page);
      return true;
    }
  }
  if (index_->by_value()) {
    if (evict_least_worth(effort)) return true;
    if (effort == Effort::Gentle && std::isfinite(arriving_worth_)) return false;
  } else if (const std::uint32_t node = index_->least_recently_used(); node != kNoIndex) {
    evict_node(node);
    return true;
  }
  for (std::uint32_t g = 0; g < groups(); ++g) {
    if (allocator(g).cached_count() > 0) {
      evict_window_page(g, allocator(g).oldest_cached());
      return true;
    }
  }
  return effort == Effort::Everything && !index_->by_value() && thin_checkpoints(Effort::Everything);
}

// The page of a group that was cached longest ago, of a tenant above its floor. Looks at a bounded number of pages.
PageId SequencePool::oldest_window_page(std::uint32_t group) const {
  PageId page = allocator(group).oldest_cached();
  if (index_->share_limit() == 1) return page;
  for (std::uint32_t looks = 0; page.valid() && looks < kWindowLooks; ++looks) {
    const Namespace tenant = index_->node(page_infos_[group][page.index].node).name_space;
    if (!at_floor(index_->share_of(tenant))) return page;
    page = allocator(group).next_cached(page);
  }
  return {};
}

void SequencePool::evict_window_page(std::uint32_t group, PageId page) {
  const std::uint32_t node = page_infos_[group][page.index].node;
  note_dropping(node, group);
  page_infos_[group][page.index].node = kNoIndex;
  index_->set_page(node, group, PageId{});
  const auto ok = pools_[group]->drop(page);
  QUIRE_CHECK(ok.has_value(), "a cached page can be dropped");
  ++counters_.window_pages_evicted;
  // Nodes whose window included this page can no longer be resumed from. An unheld leaf among them is useless.
  std::uint32_t leaf = node;
  while (index_->only_child(leaf) != kNoIndex) leaf = index_->only_child(leaf);
  if (index_->is_leaf(leaf) && index_->node(leaf).holders == 0 && !resumable(leaf)) evict_node(leaf);
}

// Removes an unheld leaf with everything it has, then its ancestors while they are useless without it.
void SequencePool::evict_node(std::uint32_t node) {
  while (node != kNoIndex) {
    for (std::uint32_t g = 0; g < groups(); ++g) {
      const PageId page = index_->page(node, g);
      if (!page.valid()) continue;
      note_dropping(node, g);
      page_infos_[g][page.index].node = kNoIndex;
      const auto ok = pools_[g]->drop(page);
      QUIRE_CHECK(ok.has_value(), "the index names pages that are kept");
    }
    if (index_->has_checkpoint(node)) drop_checkpoint(node);
    const std::uint32_t parent = index_->node(node).parent;
    index_->remove(node);
    ++counters_.blocks_evicted;
    const bool useless =
        parent != kNoIndex && index_->is_leaf(parent) && index_->node(parent).holders == 0 && !resumable(parent);
    node = useless ? parent : kNoIndex;
  }
}

void SequencePool::drop_checkpoint(std::uint32_t node) {
  note_dropping(node, state_class());
  const SlotId checkpoint = index_->clear_checkpoint(node);
  slot_infos_[checkpoint.index] = SlotInfo{};
  events_->record(Kind::CheckpointDropped, state_class(), checkpoint.index);
  const auto ok = states_->drop(checkpoint);
  QUIRE_CHECK(ok.has_value(), "the index names checkpoints that are kept");
  ++counters_.checkpoints_dropped;
}

// Drops one checkpoint. First choice: one between two others on a path without branches, if the remaining gap is within
// max_recompute. Second: the least recently used leaf, which shortens its path but leaves no wide gap. Last resort,
// with Effort::Everything: the oldest checkpoint, ends of paths first.
bool SequencePool::thin_checkpoints(Effort effort) {
  std::uint32_t end_of_path = kNoIndex;
  std::uint32_t node = index_->oldest_checkpoint();
  for (std::uint32_t looks = 0; node != kNoIndex && looks < kCheckpointLooks;
       ++looks, node = index_->next_checkpoint(node)) {
    if (node == protected_node_) continue;
    // Walks down the path to the next checkpoint, a branch or the end, at most the width of a gap.
    std::uint32_t next = node;
    for (std::uint32_t units = 0; units < max_gap_units_ && index_->only_child(next) != kNoIndex;
         units += block_size() / unit()) {
      next = index_->only_child(next);
      if (index_->has_checkpoint(next) || next == arriving_node_) break;
    }
    if (next == node || (!index_->has_checkpoint(next) && next != arriving_node_)) {
      if (end_of_path == kNoIndex && index_->is_leaf(next)) end_of_path = node;
      continue;
    }
    const std::uint32_t gap = (index_->end(next) - index_->end(node)) / unit() +
                              units_since_checkpoint(index_->node(node).name_space, index_->node(node).parent,
                                                     index_->tokens(node), max_gap_units_);
    if (gap > max_gap_units_) continue;
    drop_checkpoint(node);
    return true;
  }
  if (const std::uint32_t leaf = index_->least_recently_used(); leaf != kNoIndex) {
    evict_node(leaf);
    return true;
  }
  if (effort == Effort::Gentle) return false;
  node = end_of_path != kNoIndex ? end_of_path : index_->oldest_checkpoint();
  if (node == protected_node_ && node != kNoIndex) node = index_->next_checkpoint(node);
  if (node == kNoIndex) return false;
  if (index_->is_part(node)) {
    evict_node(node);  // nobody holds it
  } else {
    drop_checkpoint(node);
  }
  return true;
}

// The number of units from the last checkpoint to the end of this node, at most `limit`. The
// start of the sequence counts as a checkpoint.
std::uint32_t SequencePool::units_since_checkpoint(std::uint32_t node, std::uint32_t limit) const {
  if (node == kNoIndex) return 0;
  const std::uint32_t before = index_->checkpoint_at_or_before(node, divide_up(limit, block_size() / unit()));
  const std::uint32_t tokens = index_->end(node) - (before == kNoIndex ? 0 : index_->end(before));
  return std::min(limit, tokens / unit());
}

// The same from the last checkpoint before the end of a node with these tokens, which need not exist. The units of its
// own block are not limited.
std::uint32_t SequencePool::units_since_checkpoint(Namespace name_space, std::uint32_t parent,
                                                   std::span<const Token> tokens, std::uint32_t limit) const {
  const auto count = static_cast<std::uint32_t>(tokens.size());
  const std::uint32_t part = index_->longest_part(name_space, parent, tokens, count);
  if (part != kNoIndex) return (count - index_->count(part)) / unit();
  return count / unit() + units_since_checkpoint(parent, limit);
}

// Empties one slab of a class that has more free cells than it needs, by moving its objects. Returns whether it did.
PoolResult<bool> SequencePool::compact_one(const Need& need) {
  for (std::uint32_t c = 0; c < classes(); ++c) {
    const BlockAllocator& a = allocator(c);
    if (a.attached_free_count() < std::uint64_t{a.cells_per_slab()} + need[c]) continue;
    const auto slab = a.emptiest_movable_slab();
    if (!slab) continue;
    if (auto ok = evacuate(c, *slab); !ok) return std::unexpected(ok.error());
    return true;
  }
  return false;
}

PoolResult<void> SequencePool::evacuate(std::uint32_t cls, std::uint32_t slab) {
  BlockAllocator& a = allocator(cls);
  a.close(slab);
  for (PageId from = a.next_in_slab(slab, 0); from.valid();) {
    const auto ok = cls < groups() ? move_page(cls, from) : move_state({from.index, from.generation});
    if (!ok) {
      a.reopen(slab);
      return ok;
    }
    ++counters_.objects_moved;
    const std::uint32_t next = from.index % a.cells_per_slab() + 1;
    from = a.next_in_slab(slab, next);
  }
  return {};
}

PoolResult<void> SequencePool::move_page(std::uint32_t group, PageId from) {
  BlockAllocator& a = allocator(group);
  if (auto ok = pools_[group]->copy_page(a.next_free(), from.index); !ok) return ok;
  const PageId to = a.move(from);
  pools_[group]->scrub(from.index);
  const PageInfo info = std::exchange(page_infos_[group][from.index], PageInfo{});
  page_infos_[group][to.index] = info;
  if (info.node != kNoIndex) index_->set_page(info.node, group, to);
  for (Sequence& sequence : sequences_) {
    if (!sequence.live) continue;
    PagedSeqState& pages = sequence.groups[group];
    if (info.block < pages.table().size() && pages.table().page(info.block) == from) pages.replace(info.block, to);
  }
  return {};
}

PoolResult<void> SequencePool::move_state(SlotId from) {
  const auto to = states_->move(from);
  if (!to) return std::unexpected(to.error());
  const SlotInfo info = std::exchange(slot_infos_[from.index], SlotInfo{});
  slot_infos_[to->index] = info;
  events_->record(Kind::SlotMoved, state_class(), from.index, to->index);
  if (info.node != kNoIndex) index_->move_checkpoint(info.node, *to);
  if (info.sequence != kNoIndex)
    (info.scratch ? sequences_[info.sequence].scratch : sequences_[info.sequence].slot) = *to;
  return {};
}

PoolResult<void> SequencePool::do_recover() {
  if (counters_.sequences > 0) {
    return std::unexpected(PoolError::invalid_argument("recover() needs a pool without live sequences"));
  }
  observer_ = nullptr;  // nothing that is dropped here can be trusted
  do_drop_cache();
  observer_ = config_.observer;
  if (observer_ != nullptr) observer_->distrust();
  index_->forget_uses();
  if (states_) states_->distrust();
  return {};
}

void SequencePool::do_drop_cache() {
  arriving_worth_ = std::numeric_limits<double>::infinity();
  while (evict_one(Need{}, Effort::Gentle)) {
  }
  while (index_->oldest_checkpoint() != kNoIndex) drop_checkpoint(index_->oldest_checkpoint());
}

}  // namespace quire
