// Uploads of small pieces of live memory: table entries, lengths. A host buffer belongs to the device until the next
// fence, but the pool changes its tables before that. So each piece is first copied into a ring buffer and uploaded
// from there. When the ring is full it fences, and returns the error of any work that failed (see Device). A piece
// larger than the ring is uploaded from where it is, with a fence at once.
//
// Belongs to an arena. Single-threaded. The ring must outlive the uploads submitted from it: its owner frees the device
// memory first, and that waits.
#pragma once

#include <cstddef>
#include <memory>

#include "quire/state/device.h"

namespace quire {

class Staging {
 public:
  static PoolResult<Staging> create(Device& device, std::size_t bytes);

  // The buffer `from` may be changed as soon as this returns.
  PoolResult<void> upload(void* to, const void* from, std::size_t bytes);

 private:
  Device* device_ = nullptr;
  std::unique_ptr<std::byte[]> ring_;
  std::size_t bytes_ = 0;
  std::size_t used_ = 0;  // since the ring last fenced
};

}  // namespace quire
