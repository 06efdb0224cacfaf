// Ids of physical pages: who is free, how many hold each, which are kept although nobody holds them. No bytes.
//
// A page is in one of three states:
//   free    nobody holds it, its content means nothing
//   held    one or more references
//   cached  no references, but marked `keep`: its content is still worth something. Cached pages stand in a list, the
//           longest unheld first; acquire() revives one, drop() makes it free.
// free + held + cached = total at all times, and every operation is O(1): lists run through the pages' own records.
//
// An allocator stands alone with a fixed capacity, or shares an arena: then it takes slabs as it needs cells and gives
// each back with its last page, and its totals count what it could have now.
//
// Freeing a free page, an index out of range or a stale id is an error in every build type and changes nothing. So is
// an id of another class of the same arena: the class stands in the upper bits of a generation. (The lower ones count,
// and begin again after 2^28 lives of a cell.) Owned by one pool and single-threaded, like everything here.
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
  // Whose cells are not pages (states) tells of them itself: `page_events` is false then.
  BlockAllocator(Arena& arena, std::uint16_t class_id, std::uint32_t cells_per_slab, bool page_events = true);

  // --- the plain operations
  std::optional<PageId> allocate();
  // Fills `out` whole and says true, or takes nothing and says false. Cached pages are not touched.
  bool allocate(std::span<PageId> out);
  PoolResult<void> acquire(PageId id);  // one more reference; revives a cached page
  PoolResult<void> free(PageId id);     // one reference less; the last one makes the page cached or free

  // --- keeping content beyond the last reference
  PoolResult<void> keep(PageId id);  // of a held page
  PoolResult<void> drop(PageId id);  // forget: a cached page becomes free, a held one will when it is freed
  PageId oldest_cached() const { return cached_head_ == kNoIndex ? PageId{} : id_of(cached_head_); }

  // --- moving: to empty a slab so that another class can have it. A pinned page cannot be moved, because its holder
  // knows it by its index.
  PoolResult<void> pin(PageId id);
  // The slab with the fewest pages among those without pinned ones, or nothing. Looks at every slab.
  std::optional<std::uint32_t> emptiest_movable_slab() const;
  // The next held or cached page of a slab, from cell `from` on; an invalid id at the end.
  PageId next_in_slab(std::uint32_t slab, std::uint32_t from) const;
  // Stops handing out cells of this slab (or starts again).
  void close(std::uint32_t slab);
  void reopen(std::uint32_t slab);
  // The cell that allocate() or move() would take next without another slab; kNoIndex if none.
  std::uint32_t next_free() const { return open_head_ == kNoIndex ? kNoIndex : slabs_[open_head_].free_head; }
  // Gives the page's references, mark and place in the cached list to a free cell of another slab; the old id is stale
  // from then on. The caller copies the bytes. Needs a free cell in a slab that is attached and not closed.
  PageId move(PageId from);

  // --- looking
  std::uint32_t total_count() const { return attached_cells_ + unattached_cells(); }
  std::uint32_t free_count() const { return free_cells_ + unattached_cells(); }
  std::uint32_t held_count() const { return held_; }
  std::uint32_t cached_count() const { return cached_; }
  std::uint32_t attached_free_count() const { return free_cells_; }  // without taking another slab
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

  // Recounts everything by walking all lists; the first contradiction found, as text.
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
  static constexpr std::uint32_t kLifeBits = 28;  // of a generation; above them is the class
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
  std::uint32_t take_cell();  // from an attached slab; there must be one
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
  std::uint32_t open_head_ = kNoIndex;  // slabs with free cells, the one freed into last first
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
