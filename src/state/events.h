// The events of a pool, in a ring of fixed size. The pool writes it; visualizations, metrics and logs read it. Writing
// never waits and never allocates. A reader that is too slow learns how many events it lost.
// Not thread-safe: read it on the thread that owns the pool.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "quire/state/ids.h"

namespace quire {

struct PoolEvent {
  enum class Kind : std::uint8_t {
    PageTaken,           // object: page; a free page was allocated
    PageShared,          // object: page; one more holder (detail: holders now)
    PageCached,          // object: page; the last holder is gone, the content is kept
    PageRevived,         // object: page; a cached page is held again
    PageFreed,           // object: page
    PagePublished,       // object: page; now in the prefix index (detail: block of its sequence)
    PageEvicted,         // object: page; removed from the prefix index
    PageCopied,          // object: page copied from, detail: page copied to
    PageMoved,           // object: page moved from, detail: page moved to
    SlotTaken,           // object: slot, detail: request
    SlotMoved,           // object: slot moved from, detail: slot moved to
    SlotReleased,        // object: slot
    CheckpointStored,    // object: slot, detail: position
    CheckpointDropped,   // object: slot
    CheckpointRestored,  // object: slot copied from, detail: slot copied to
    SlabTaken,           // object: slab, group: the class that has it now
    SlabGiven,           // object: slab, group: the class that had it
    SequenceCreated,     // object: sequence, detail: tokens reused
    SequenceForked,      // object: new sequence, detail: sequence it came from
    SequenceRewound,     // object: sequence, detail: position now
    SequenceReleased,    // object: sequence
  };

  Kind kind;
  std::uint16_t group;  // the layer group (class of objects); 0 for events that have none
  std::uint32_t object;
  std::uint64_t detail;
};

class EventLog {
 public:
  // With capacity 0 the log only counts. Other capacities are rounded up to a power of two.
  explicit EventLog(std::uint32_t capacity) : ring_(capacity == 0 ? 0 : std::bit_ceil(capacity)) {}

  void record(PoolEvent::Kind kind, std::uint32_t group, std::uint32_t object, std::uint64_t detail = 0) {
    if (!ring_.empty())
      ring_[written_ & (ring_.size() - 1)] = {kind, static_cast<std::uint16_t>(group), object, detail};
    ++written_;
  }

  struct Read {
    std::uint64_t lost;    // events that were overwritten before they could be read
    std::uint64_t cursor;  // where the next read continues
    std::size_t count;     // events written to the output
  };

  // Events from `cursor` (0 at first) on, oldest first.
  Read read(std::uint64_t cursor, std::span<PoolEvent> out) const {
    const std::uint64_t oldest = written_ - std::min<std::uint64_t>(written_, ring_.size());
    Read result{.lost = 0, .cursor = std::min(cursor, written_), .count = 0};
    if (result.cursor < oldest) {
      result.lost = oldest - result.cursor;
      result.cursor = oldest;
    }
    while (result.count < out.size() && result.cursor < written_) {
      out[result.count++] = ring_[result.cursor++ & (ring_.size() - 1)];
    }
    return result;
  }

  std::uint64_t written() const { return written_; }

 private:
  std::vector<PoolEvent> ring_;
  std::uint64_t written_ = 0;
};

}  // namespace quire
