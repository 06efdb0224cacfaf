// Content that the pool of a GPU has evicted, in pinned host memory: the arena in which suspended sequences lie too.
// Suspended sequences go first: what they need is taken from here.
//
// It is not a Tier like the others: objects go straight from the device into cells of the arena and back, in the order
// of the device's work, and nothing waits.
//
// Who may call: the thread that owns the pool.
#pragma once

#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

#include "quire/state/host_arena.h"
#include "quire/state/object_name.h"
#include "quire/state/tier.h"

namespace quire::tiers {

class HostTier {
 public:
  // At most `bytes` of the arena. The arena must outlive this object.
  HostTier(HostArena& arena, std::uint64_t bytes);

  // Submits the copy of an object from the device. The least recently used ones give way. False: there is no room, or
  // the device refused.
  bool put(const ObjectKey& key, std::uint32_t cls, std::uint32_t block, const std::byte* from, std::uint64_t bytes);
  // The place of an object, or UINT32_MAX. It counts as used.
  std::uint32_t find(const ObjectKey& key);
  // While it is pinned, an object does not give way.
  void pin(std::uint32_t place) {
    if (entries_[place].pins++ == 0) pinned_cells_ += entries_[place].cells.size();
  }
  void unpin(std::uint32_t place) {
    if (--entries_[place].pins == 0) pinned_cells_ -= entries_[place].cells.size();
  }
  const HostArena::List& cells(std::uint32_t place) const { return entries_[place].cells; }
  std::uint32_t first_cell(std::uint32_t place) const { return entries_[place].first_cell; }

  // The copies submitted so far are done.
  bool has_copies() const { return !unfenced_.empty(); }  // that may not be done yet
  void fenced();
  // The copies submitted since fenced() cannot be trusted. To be called after a fence, and with none of them pinned.
  void distrust();
  // Gives up objects until so many cells of the arena are free. Returns whether they are.
  bool make_room(std::uint64_t cells);
  // Cells that make_room() could free.
  std::uint64_t cells_to_give() const { return used_cells_ - pinned_cells_; }

  TierUsage usage() const;
  void count_hit(std::uint64_t bytes) { ++usage_.gets, ++usage_.hits, usage_.bytes_read += bytes; }

 private:
  struct Entry {
    ObjectKey key;
    HostArena::List cells;
    std::uint32_t first_cell = 0;
    std::uint32_t prev = UINT32_MAX, next = UINT32_MAX;  // the least recently used first
    std::uint32_t pins = 0;
    std::uint64_t bytes = 0;
    bool fenced = false;     // the copy into its cells is done
    bool abandoned = false;  // the device refused a part: it is no object, and its cells wait for the fence
  };
  bool evict_one();
  void remove(std::uint32_t place);
  void link_last(std::uint32_t place);
  void unlink(std::uint32_t place);

  HostArena* arena_;
  std::uint64_t limit_cells_;
  std::uint64_t used_cells_ = 0, pinned_cells_ = 0;
  std::deque<Entry> entries_;  // their addresses stay: cells() is used while others are put
  std::vector<std::uint32_t> free_;
  std::unordered_map<ObjectKey, std::uint32_t, ObjectKeyHash> places_;
  std::vector<std::uint32_t> unfenced_;
  std::uint32_t first_ = UINT32_MAX, last_ = UINT32_MAX;
  TierUsage usage_;
};

}  // namespace quire::tiers
