// Is told what a pool caches and what it drops: how tiers (src/tiers) learn what to keep elsewhere.
//
// An object is a page of a full block or a checkpoint at the end of one. It is named by its node in the prefix index
// and its class: a layer group, or the number of groups for a checkpoint. SequencePool::cached_object() says where it
// lies.
//
// Who calls: the thread that owns the pool, inside its operations. The observer may look at the pool and submit
// downloads, and nothing else. It must not fail. A pool without an observer pays one comparison for each object.
#pragma once

#include <cstdint>

namespace quire {

class ContentObserver {
 public:
  virtual ~ContentObserver() = default;
  // The object is known to the index from now on, until dropping().
  virtual void stored(std::uint32_t node, std::uint32_t cls) noexcept = 0;
  // The index is about to forget the object. Its bytes can still be read by work that is submitted during this call.
  virtual void dropping(std::uint32_t node, std::uint32_t cls) noexcept = 0;
  // The device has failed: no byte that was read from it since the last fence that succeeded can be trusted. The pool
  // is empty afterwards, without a call of dropping().
  virtual void distrust() noexcept = 0;
};

}  // namespace quire
