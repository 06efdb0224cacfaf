// Uploads of small pieces of live memory: table entries, lengths. A host buffer belongs to the device until the next
// fence, and the pool goes on changing its tables; so a piece is copied into a ring of its own first and uploaded from
// there. The ring fences when it is full, and hears then of all work that failed (see Device). A piece that is larger
// than the ring is uploaded from where it is, and fenced at once.
//
// Belongs to an arena. Single-threaded. The memory must outlive what was submitted from it: whoever has the ring frees
// its device memory first, which waits.
#pragma once

#include <cstddef>
#include <memory>

#include "quire/state/device.h"

namespace quire {

class Staging {
 public:
  static PoolResult<Staging> create(Device& device, std::size_t bytes);

  // `from` is the caller's again when this returns.
  PoolResult<void> upload(void* to, const void* from, std::size_t bytes);

 private:
  Device* device_ = nullptr;
  std::unique_ptr<std::byte[]> ring_;
  std::size_t bytes_ = 0;
  std::size_t used_ = 0;  // since the ring last fenced
};

}  // namespace quire
