#include "quire/state/block_allocator.h"

#include <algorithm>

#include "quire/base/check.h"

namespace quire {

BlockAllocator::BlockAllocator(std::uint32_t capacity, EventLog* events) : events_(events), cells_per_slab_(capacity) {
  if (capacity == 0) return;
  build(1);
  attached_cells_ = free_cells_ = capacity;
  slabs_[0].attached = true;
  list_front(0);
}

BlockAllocator::BlockAllocator(Arena& arena, std::uint16_t class_id, std::uint32_t cells_per_slab, bool page_events)
    : arena_(&arena),
      events_(page_events ? arena.events() : nullptr),
      class_id_(class_id),
      cells_per_slab_(cells_per_slab) {
  QUIRE_CHECK(cells_per_slab > 0, "a slab holds at least one object of each class");
  QUIRE_CHECK(class_id < kMaxClasses, "a generation has room for the class");
  QUIRE_CHECK(std::uint64_t{arena.total_slabs()} * cells_per_slab < kNoIndex, "objects are counted in 32 bits");
  build(arena.total_slabs());
}

void BlockAllocator::build(std::uint32_t slabs) {
  slabs_.resize(slabs);
  cells_.resize(std::size_t{slabs} * cells_per_slab_, Cell{.generation = std::uint32_t{class_id_} << kLifeBits});
  for (std::uint32_t slab = 0; slab < slabs; ++slab) {
    const std::uint32_t first = slab * cells_per_slab_;
    slabs_[slab].free_head = first;
    for (std::uint32_t i = 0; i + 1 < cells_per_slab_; ++i) cells_[first + i].next = first + i + 1;
  }
}

PoolResult<void> BlockAllocator::check(PageId id) const {
  if (id.index >= cells_.size()) return std::unexpected(PoolError::invalid_page(id.index));
  const Cell& cell = cells_[id.index];
  if (cell.generation != id.generation) return std::unexpected(PoolError::stale(id.index));
  if (cell.references == 0 && !cell.kept) return std::unexpected(PoolError::invalid_page(id.index));
  return {};
}

bool BlockAllocator::attach_one() {
  if (arena_ == nullptr) return false;
  const auto slab = arena_->take(class_id_);
  if (!slab) return false;
  slabs_[*slab].attached = true;
  attached_cells_ += cells_per_slab_;
  free_cells_ += cells_per_slab_;
  list_front(*slab);
  return true;
}

void BlockAllocator::list_front(std::uint32_t slab) {
  Slab& s = slabs_[slab];
  s.prev = kNoIndex;
  s.next = open_head_;
  if (open_head_ != kNoIndex) slabs_[open_head_].prev = slab;
  open_head_ = slab;
  s.listed = true;
}

void BlockAllocator::unlist(std::uint32_t slab) {
  Slab& s = slabs_[slab];
  if (s.prev != kNoIndex) slabs_[s.prev].next = s.next;
  if (s.next != kNoIndex) slabs_[s.next].prev = s.prev;
  if (open_head_ == slab) open_head_ = s.next;
  s.prev = s.next = kNoIndex;
  s.listed = false;
}

std::uint32_t BlockAllocator::take_cell() {
  const std::uint32_t slab = open_head_;
  Slab& s = slabs_[slab];
  const std::uint32_t index = s.free_head;
  s.free_head = cells_[index].next;
  cells_[index].next = kNoIndex;
  ++s.live;
  --free_cells_;
  if (s.free_head == kNoIndex) unlist(slab);
  return index;
}

// Puts the cell first in its slab and the slab first in the list, so that it is handed out next. This works even if the
// slab goes back to the arena in between: its free list is not touched there.
void BlockAllocator::return_cell(std::uint32_t index) {
  const std::uint32_t slab = arena_ == nullptr ? 0 : index / cells_per_slab_;
  Slab& s = slabs_[slab];
  Cell& cell = cells_[index];
  cell.generation = (cell.generation & ~kLifeMask) | ((cell.generation + 1) & kLifeMask);
  cell.references = 0;
  cell.kept = 0;
  if (cell.pinned) {
    cell.pinned = 0;
    if (--s.pinned == 0) --pinned_slabs_;
  }
  cell.prev = kNoIndex;
  cell.next = s.free_head;
  s.free_head = index;
  --s.live;
  ++free_cells_;
  if (s.live == 0 && arena_ != nullptr) {
    if (s.listed) unlist(slab);
    s.attached = false;
    s.closed = false;
    attached_cells_ -= cells_per_slab_;
    free_cells_ -= cells_per_slab_;
    arena_->give(slab);
    return;
  }
  if (s.closed) return;
  if (open_head_ != slab) {
    if (s.listed) unlist(slab);
    list_front(slab);
  }
}

std::optional<PageId> BlockAllocator::allocate() {
  if (open_head_ == kNoIndex && !attach_one()) return std::nullopt;
  const std::uint32_t index = take_cell();
  Cell& cell = cells_[index];
  cell.references = 1;
  ++held_;
  ++allocations_;
  high_water_ = std::max(high_water_, held_ + cached_);
  record(PoolEvent::Kind::PageTaken, index);
  return PageId{index, cell.generation};
}

bool BlockAllocator::allocate(std::span<PageId> out) {
  if (out.size() > free_count()) return false;
  for (PageId& id : out) {
    const auto page = allocate();
    QUIRE_CHECK(page.has_value(), "free pages were counted");
    id = *page;
  }
  return true;
}

PoolResult<void> BlockAllocator::acquire(PageId id) {
  if (auto ok = check(id); !ok) return ok;
  Cell& cell = cells_[id.index];
  if (cell.references == 0) {
    cached_unlink(id.index);
    --cached_;
    ++held_;
    record(PoolEvent::Kind::PageRevived, id.index);
  } else {
    record(PoolEvent::Kind::PageShared, id.index, cell.references + 1);
  }
  ++cell.references;
  return {};
}

PoolResult<void> BlockAllocator::free(PageId id) {
  if (auto ok = check(id); !ok) return ok;
  Cell& cell = cells_[id.index];
  if (cell.references == 0) return std::unexpected(PoolError::invalid_page(id.index));  // cached: no holder
  if (--cell.references > 0) return {};
  --held_;
  if (cell.kept) {
    cached_append(id.index);
    ++cached_;
    record(PoolEvent::Kind::PageCached, id.index);
  } else {
    record(PoolEvent::Kind::PageFreed, id.index);
    return_cell(id.index);
  }
  return {};
}

PoolResult<void> BlockAllocator::keep(PageId id) {
  if (auto ok = check(id); !ok) return ok;
  Cell& cell = cells_[id.index];
  if (cell.references == 0) return std::unexpected(PoolError::invalid_page(id.index));
  cell.kept = 1;
  return {};
}

PoolResult<void> BlockAllocator::drop(PageId id) {
  if (auto ok = check(id); !ok) return ok;
  Cell& cell = cells_[id.index];
  if (!cell.kept) return std::unexpected(PoolError::invalid_page(id.index));
  record(PoolEvent::Kind::PageEvicted, id.index);
  if (cell.references == 0) {
    cached_unlink(id.index);
    --cached_;
    return_cell(id.index);
  } else {
    cell.kept = 0;
  }
  return {};
}

void BlockAllocator::cached_append(std::uint32_t index) {
  Cell& cell = cells_[index];
  cell.prev = cached_tail_;
  cell.next = kNoIndex;
  (cached_tail_ == kNoIndex ? cached_head_ : cells_[cached_tail_].next) = index;
  cached_tail_ = index;
}

void BlockAllocator::cached_unlink(std::uint32_t index) {
  Cell& cell = cells_[index];
  (cell.prev == kNoIndex ? cached_head_ : cells_[cell.prev].next) = cell.next;
  (cell.next == kNoIndex ? cached_tail_ : cells_[cell.next].prev) = cell.prev;
  cell.prev = cell.next = kNoIndex;
}

PoolResult<void> BlockAllocator::pin(PageId id) {
  if (auto ok = check(id); !ok) return ok;
  Cell& cell = cells_[id.index];
  if (cell.pinned) return {};
  cell.pinned = 1;
  if (slabs_[id.index / cells_per_slab_].pinned++ == 0) ++pinned_slabs_;
  return {};
}

std::optional<std::uint32_t> BlockAllocator::emptiest_movable_slab() const {
  std::optional<std::uint32_t> best;
  for (std::uint32_t slab = 0; slab < slabs_.size(); ++slab) {
    const Slab& s = slabs_[slab];
    if (!s.attached || s.closed || s.pinned > 0) continue;
    if (!best || s.live < slabs_[*best].live) best = slab;
  }
  return best;
}

PageId BlockAllocator::next_in_slab(std::uint32_t slab, std::uint32_t from) const {
  for (std::uint32_t i = from; i < cells_per_slab_; ++i) {
    const std::uint32_t index = slab * cells_per_slab_ + i;
    if (cells_[index].references > 0 || cells_[index].kept) return id_of(index);
  }
  return {};
}

void BlockAllocator::close(std::uint32_t slab) {
  slabs_[slab].closed = true;
  if (slabs_[slab].listed) unlist(slab);
}

void BlockAllocator::reopen(std::uint32_t slab) {
  Slab& s = slabs_[slab];
  if (!s.attached || !s.closed) return;  // it has gone back to the arena
  s.closed = false;
  if (s.free_head != kNoIndex) list_front(slab);
}

PageId BlockAllocator::move(PageId from) {
  QUIRE_CHECK(is_live(from) && !cells_[from.index].pinned, "only a live, unpinned page is moved");
  QUIRE_CHECK(open_head_ != kNoIndex, "a move needs a free cell elsewhere");
  const std::uint32_t to = take_cell();
  Cell& source = cells_[from.index];
  Cell& target = cells_[to];
  target.references = source.references;
  target.kept = source.kept;
  if (source.references == 0) {
    target.prev = source.prev;
    target.next = source.next;
    (target.prev == kNoIndex ? cached_head_ : cells_[target.prev].next) = to;
    (target.next == kNoIndex ? cached_tail_ : cells_[target.next].prev) = to;
  }
  record(PoolEvent::Kind::PageMoved, from.index, to);
  return_cell(from.index);
  return {to, target.generation};
}

double BlockAllocator::utilization() const {
  const std::uint32_t total = total_count();
  return total == 0 ? 0.0 : static_cast<double>(total - free_count()) / total;
}

PoolResult<BlockAllocator::State> BlockAllocator::state(PageId id) const {
  if (id.index >= cells_.size()) return std::unexpected(PoolError::invalid_page(id.index));
  if (cells_[id.index].generation != id.generation) return std::unexpected(PoolError::stale(id.index));
  if (cells_[id.index].references > 0) return State::Held;
  return cells_[id.index].kept ? State::Cached : State::Free;
}

PoolResult<std::uint32_t> BlockAllocator::references(PageId id) const {
  if (auto ok = check(id); !ok) return std::unexpected(ok.error());
  return cells_[id.index].references;
}

std::expected<void, const char*> BlockAllocator::check_integrity() const {
  std::uint32_t held = 0, cached = 0, attached = 0, free_cells = 0, pinned_slabs = 0, open = 0;
  for (std::uint32_t slab = 0; slab < slabs_.size(); ++slab) {
    const Slab& s = slabs_[slab];
    const std::uint32_t first = slab * cells_per_slab_;
    std::uint32_t live = 0, pinned = 0, in_list = 0;
    for (std::uint32_t i = 0; i < cells_per_slab_; ++i) {
      const Cell& cell = cells_[first + i];
      if (cell.references > 0) {
        ++held;
        ++live;
      } else if (cell.kept) {
        ++cached;
        ++live;
      }
      if (cell.pinned) ++pinned;
    }
    for (std::uint32_t i = s.free_head; i != kNoIndex; i = cells_[i].next) {
      if (i < first || i - first >= cells_per_slab_) return std::unexpected("a free list leaves its slab");
      if (cells_[i].references > 0 || cells_[i].kept) return std::unexpected("a live page stands in a free list");
      if (++in_list > cells_per_slab_) return std::unexpected("a free list runs in a circle");
    }
    if (live != s.live) return std::unexpected("a slab counts its pages wrongly");
    if (live + in_list != cells_per_slab_) return std::unexpected("a page is neither free nor live");
    if (pinned != s.pinned) return std::unexpected("a slab counts its pinned pages wrongly");
    if (pinned > 0) ++pinned_slabs;
    if (arena_ != nullptr) {
      const bool ours = !arena_->is_free(slab) && arena_->owner(slab) == class_id_;
      if (ours != s.attached) return std::unexpected("arena and allocator disagree on who has a slab");
      if (s.attached && live == 0) return std::unexpected("an empty slab was not given back");
    }
    if (!s.attached && live > 0) return std::unexpected("a live page in a slab that is not ours");
    if (s.listed != (s.attached && !s.closed && in_list > 0)) return std::unexpected("the list of open slabs is wrong");
    if (s.listed) ++open;
    if (s.attached) {
      ++attached;
      free_cells += in_list;
    }
  }
  for (std::uint32_t slab = open_head_; slab != kNoIndex; slab = slabs_[slab].next) {
    if (open-- == 0) return std::unexpected("the list of open slabs is too long");
  }
  if (open != 0) return std::unexpected("the list of open slabs is too short");
  std::uint32_t in_cached_list = 0;
  for (std::uint32_t i = cached_head_, before = kNoIndex; i != kNoIndex; before = i, i = cells_[i].next) {
    if (cells_[i].references > 0 || !cells_[i].kept) return std::unexpected("a page in the cached list is not cached");
    if (cells_[i].prev != before) return std::unexpected("the cached list is torn");
    if (++in_cached_list > cached) return std::unexpected("the cached list is too long");
  }
  if (in_cached_list != cached || cached != cached_) return std::unexpected("cached pages are counted wrongly");
  if (held != held_) return std::unexpected("held pages are counted wrongly");
  if (attached * cells_per_slab_ != attached_cells_) return std::unexpected("attached slabs are counted wrongly");
  if (free_cells != free_cells_) return std::unexpected("free pages are counted wrongly");
  if (pinned_slabs != pinned_slabs_) return std::unexpected("pinned slabs are counted wrongly");
  if (free_count() + held_ + cached_ != total_count()) return std::unexpected("free + held + cached is not the total");
  return {};
}

}  // namespace quire
