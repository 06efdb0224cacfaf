#include "quire/tiers/host_tier.h"

#include <algorithm>

#include "quire/base/check.h"

namespace quire::tiers {

HostTier::HostTier(HostArena& arena, std::uint64_t bytes)
    : arena_(&arena), limit_cells_(std::min(bytes, arena.total_bytes()) / arena.cell_bytes()) {
  places_.reserve(limit_cells_);
}

void HostTier::link_last(std::uint32_t place) {
  Entry& entry = entries_[place];
  entry.prev = last_;
  entry.next = UINT32_MAX;
  (last_ == UINT32_MAX ? first_ : entries_[last_].next) = place;
  last_ = place;
}

void HostTier::unlink(std::uint32_t place) {
  const Entry& entry = entries_[place];
  (entry.prev == UINT32_MAX ? first_ : entries_[entry.prev].next) = entry.next;
  (entry.next == UINT32_MAX ? last_ : entries_[entry.next].prev) = entry.prev;
}

void HostTier::remove(std::uint32_t place) {
  Entry& entry = entries_[place];
  unlink(place);
  if (!entry.abandoned) places_.erase(entry.key);
  used_cells_ -= entry.cells.size();
  usage_.bytes -= entry.bytes;
  entry = {};
  free_.push_back(place);
}

// The copy into a cell must be done before the cell can be another's.
bool HostTier::evict_one() {
  for (std::uint32_t place = first_; place != UINT32_MAX; place = entries_[place].next) {
    if (entries_[place].pins > 0 || !entries_[place].fenced) continue;
    remove(place);
    ++usage_.evicted;
    return true;
  }
  return false;
}

bool HostTier::make_room(std::uint64_t cells) {
  while (arena_->free_cells() < cells) {
    if (!evict_one()) return false;
  }
  return true;
}

bool HostTier::put(const ObjectKey& key, std::uint32_t cls, std::uint32_t block, const std::byte* from,
                   std::uint64_t bytes) {
  if (find(key) != UINT32_MAX) return true;
  const std::uint64_t cells = arena_->cells_for(bytes);
  while (used_cells_ + cells > limit_cells_) {
    if (!evict_one()) return ++usage_.refused, false;
  }
  if (!make_room(cells)) return ++usage_.refused, false;
  std::uint32_t place = 0;
  if (free_.empty()) {
    place = static_cast<std::uint32_t>(entries_.size());
    entries_.emplace_back();
  } else {
    place = free_.back();
    free_.pop_back();
  }
  Entry& entry = entries_[place];
  entry.key = key;
  entry.cells = HostArena::List(*arena_);
  entry.bytes = bytes;
  const auto stored = entry.cells.store({cls, block}, from, bytes);
  entry.cells.for_each([&](HostArena::Object, std::uint32_t cell) { entry.first_cell = cell; });
  used_cells_ += entry.cells.size();
  usage_.bytes += bytes;
  link_last(place);
  unfenced_.push_back(place);
  if (!stored) {  // part of it may have been submitted
    entry.abandoned = true;
    ++usage_.failed;
    return false;
  }
  places_.emplace(key, place);
  ++usage_.puts;
  usage_.bytes_written += bytes;
  return true;
}

std::uint32_t HostTier::find(const ObjectKey& key) {
  const auto at = places_.find(key);
  if (at == places_.end()) return UINT32_MAX;
  unlink(at->second);
  link_last(at->second);
  return at->second;
}

void HostTier::fenced() {
  for (const std::uint32_t place : unfenced_) {
    entries_[place].fenced = true;
    if (entries_[place].abandoned) remove(place);
  }
  unfenced_.clear();
}

void HostTier::distrust() {
  for (const std::uint32_t place : unfenced_) {
    QUIRE_CHECK(entries_[place].pins == 0, "nobody uses what cannot be trusted");
    remove(place);
  }
  unfenced_.clear();
}

TierUsage HostTier::usage() const {
  TierUsage usage = usage_;
  usage.capacity_bytes = limit_cells_ * arena_->cell_bytes();
  usage.objects = places_.size();
  return usage;
}

}  // namespace quire::tiers
