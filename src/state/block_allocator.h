// Ids of physical pages and their reference counts. No bytes.
//
// A page is in one of three states:
//   free    no references, the content means nothing
//   held    one or more references
//   cached  no references, but marked `keep`: the content may be reused. Cached pages are in a list, the one cached
//           longest ago first; acquire() revives a page, drop() makes it free.
// free + held + cached = total at all times. Every operation is O(1): the lists are linked through the pages' records.
//
// An allocator has a fixed capacity of its own, or shares an arena. In an arena it takes slabs as it needs cells and
// gives a slab back with its last page. Its totals then count the free slabs of the arena too.
//
// Freeing a free page, an index out of range or a stale id is an error in every build type and changes nothing. So is
// an id of another class of the same arena: the upper bits of a generation hold the class. (The lower bits count, and
// wrap after 2^28 lives of a cell.) Owned by one pool and single-threaded, like everything here.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "quire/base/large_vector.h"
#include "quire/state/arena.h"
#include "quire/state/ids.h"
#include "quire/state/pool_error.h"

namespace quire {

class BlockAllocator {
 public:
  enum class State : std::uint8_t { Free, Held, Cached };

  explicit BlockAllocator(std::uint32_t capacity, EventLog* events = nullptr);
  // Recurrent states are not pages. Their owner records its own events and passes `page_events` = false.
  BlockAllocator(Arena& arena, std::uint16_t class_id, std::uint32_t cells_per_slab, bool page_events = true);

  // --- plain operations
  std::optional<PageId> allocate();
  // Fills all of `out` and returns true, or takes nothing and returns false. Cached pages are not touched.
  bool allocate(std::span<PageId> out);
  PoolResult<void> acquire(PageId id);  // one more reference; revives a cached page
  PoolResult<void> free(PageId id);     // one reference less; the last one makes the page cached or free

  // --- keeping content beyond the last reference
  PoolResult<void> keep(PageId id);  // the page must be held
  PoolResult<void> drop(PageId id);  // unmarks: a cached page is free now, a held one after its last reference
  PageId oldest_cached() const { return cached_head_ == kNoIndex ? PageId{} : id_of(cached_head_); }
  // The page that was cached after this one; an invalid id at the end.
  PageId next_cached(PageId page) const {
    const std::uint32_t next = cells_[page.index].next;
    return next == kNoIndex ? PageId{} : id_of(next);
  }

  // --- moving: empties a slab so that another class can have it. A pinned page cannot be moved,
  // because its holder refers to it by index.
  PoolResult<void> pin(PageId id);
  // The slab with the fewest pages among those without pinned pages, or nothing. Looks at every slab.
  std::optional<std::uint32_t> emptiest_movable_slab() const;
  // The next held or cached page of a slab, from cell `from` on; an invalid id at the end.
  PageId next_in_slab(std::uint32_t slab, std::uint32_t from) const;
  // close() stops allocation from this slab, reopen() allows it again.
  void close(std::uint32_t slab);
  void reopen(std::uint32_t slab);
  // The cell that allocate() or move() takes next if it needs no other slab; kNoIndex if there is none.
  std::uint32_t next_free() const { return open_head_ == kNoIndex ? kNoIndex : slabs_[open_head_].free_head; }
  // Moves the page's references, mark and position in the cached list to a free cell of another slab. The old id is
  // stale afterwards. The caller copies the bytes. Needs a free cell in a slab that is attached and not closed.
  PageId move(PageId from);

  // --- inspection
  std::uint32_t total_count() const { return attached_cells_ + unattached_cells(); }
  std::uint32_t free_count() const { return free_cells_ + unattached_cells(); }
  std::uint32_t held_count() const { return held_; }
  std::uint32_t cached_count() const { return cached_; }
  std::uint32_t attached_free_count() const { return free_cells_; }  // free cells in slabs it already has
  std::uint32_t pinned_slabs() const { return pinned_slabs_; }
  std::uint32_t cells_per_slab() const { return cells_per_slab_; }
  std::uint32_t high_water() const { return high_water_; }  // most pages held or cached at once
  std::uint64_t allocations() const { return allocations_; }
  double utilization() const;  // share of pages that are not free; 0 for no pages

  PoolResult<State> state(PageId id) const;
  PoolResult<std::uint32_t> references(PageId id) const;
  bool is_live(PageId id) const { return check(id).has_value(); }
  bool is_kept(std::uint32_t index) const { return cells_[index].kept; }
  bool is_pinned(std::uint32_t index) const { return cells_[index].pinned; }
  std::uint32_t references_at(std::uint32_t index) const { return cells_[index].references; }
  std::uint32_t index_limit() const { return static_cast<std::uint32_t>(cells_.size()); }
  PageId id_of(std::uint32_t index) const { return {index, cells_[index].generation}; }

  // Recounts everything by walking all lists. Returns the first contradiction as text.
  std::expected<void, const char*> check_integrity() const;

 private:
  struct Cell {
    std::uint32_t generation = 0;
    std::uint32_t references : 30 = 0;
    std::uint32_t kept : 1 = 0;
    std::uint32_t pinned : 1 = 0;
    std::uint32_t prev = kNoIndex;  // cached list
    std::uint32_t next = kNoIndex;  // cached list, or the slab's free list
  };
  static constexpr std::uint32_t kLifeBits = 28;  // of a generation; the bits above hold the class
  static constexpr std::uint32_t kMaxClasses = 1u << (32 - kLifeBits);
  static constexpr std::uint32_t kLifeMask = (1u << kLifeBits) - 1;
  struct Slab {
    std::uint32_t free_head = kNoIndex;
    std::uint32_t live = 0;
    std::uint32_t pinned = 0;
    std::uint32_t prev = kNoIndex;  // list of slabs with free cells
    std::uint32_t next = kNoIndex;
    bool attached = false;
    bool closed = false;
    bool listed = false;
  };

  void build(std::uint32_t slabs);
  PoolResult<void> check(PageId id) const;
  std::uint32_t unattached_cells() const { return arena_ == nullptr ? 0 : arena_->free_slabs() * cells_per_slab_; }
  bool attach_one();
  void list_front(std::uint32_t slab);
  void unlist(std::uint32_t slab);
  std::uint32_t take_cell();  // from an attached slab; a free cell must exist
  void return_cell(std::uint32_t index);
  void cached_append(std::uint32_t index);
  void cached_unlink(std::uint32_t index);
  void record(PoolEvent::Kind kind, std::uint32_t index, std::uint64_t detail = 0) const {
    if (events_ != nullptr) events_->record(kind, class_id_, index, detail);
  }

  Arena* arena_ = nullptr;
  EventLog* events_ = nullptr;
  std::uint16_t class_id_ = 0;
  std::uint32_t cells_per_slab_ = 0;
  LargeVector<Cell> cells_;
  std::vector<Slab> slabs_;
  std::uint32_t open_head_ = kNoIndex;  // slabs with free cells, most recently freed first
  std::uint32_t cached_head_ = kNoIndex;
  std::uint32_t cached_tail_ = kNoIndex;
  std::uint32_t attached_cells_ = 0;
  std::uint32_t free_cells_ = 0;
  std::uint32_t held_ = 0;
  std::uint32_t cached_ = 0;
  std::uint32_t pinned_slabs_ = 0;
  std::uint32_t high_water_ = 0;
  std::uint64_t allocations_ = 0;
};

}  // namespace quire
