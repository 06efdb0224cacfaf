// All bytes of a pool: one allocation, cut into slabs of equal size. A slab belongs to one class of objects at a time
// (pages of one layer group, or recurrent states) or is free. Classes take slabs as they need them and give a slab back
// with its last object, so memory is not divided between classes beforehand.
//
// Who may call: the allocators of the classes (take, give). Single-threaded. All operations are O(1).
#pragma once

#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

#include "quire/state/device.h"
#include "quire/state/events.h"
#include "quire/state/ids.h"
#include "quire/state/staging.h"

namespace quire {

struct SlabPlan {
  std::uint64_t slab_bytes = 0;
  std::uint32_t slabs = 0;
  double worst_fill = 0;  // of the class that fits worst: useful bytes when it has the whole budget, per byte of budget
};

// Chooses the slab size for objects of these sizes under a budget. A slab holds the largest object and
// wastes few bytes for any class. Under these conditions there are as many slabs as possible, because a slab
// is the unit in which memory changes hands.
// The first `located` sizes are pages. Page tables name a page by a 32-bit location (in units of location_unit). Only
// slab sizes that keep every location within 32 bits are chosen; if there are none, the plan is refused.
PoolResult<SlabPlan> plan_slabs(std::uint64_t budget_bytes, std::span<const std::uint64_t> object_bytes,
                                std::size_t located = 0);

// The largest unit that divides the offset of every object of this size, for slabs of this size.
inline std::uint64_t location_unit(std::uint64_t slab_bytes, std::uint64_t object_bytes) {
  return std::gcd(slab_bytes, object_bytes);
}

class Arena {
 public:
  static PoolResult<Arena> create(Device& device, std::uint64_t slab_bytes, std::uint32_t slabs,
                                  EventLog* events = nullptr);

  // A free slab for class `owner`: the one that was given back last. Nothing if no slab is free.
  std::optional<std::uint32_t> take(std::uint16_t owner);
  void give(std::uint32_t slab);

  // Uploads `bytes` bytes at `from`. They are copied first, so the caller may change them as soon as this returns.
  PoolResult<void> upload_copy(void* to, const void* from, std::size_t bytes) {
    return staging_.upload(to, from, bytes);
  }

  Device& device() const { return *device_; }
  EventLog* events() const { return events_; }
  std::byte* base() const { return memory_.data(); }
  std::uint64_t slab_bytes() const { return slab_bytes_; }
  std::uint32_t total_slabs() const { return static_cast<std::uint32_t>(owners_.size()); }
  std::uint32_t free_slabs() const { return static_cast<std::uint32_t>(free_.size()); }
  bool is_free(std::uint32_t slab) const { return owners_[slab] == kNobody; }
  std::uint16_t owner(std::uint32_t slab) const { return owners_[slab]; }
  // How often the slab changed from one class to another. If this number has not changed, no other
  // class has written to the slab in between.
  std::uint32_t tenancy(std::uint32_t slab) const { return tenancy_[slab]; }

 private:
  static constexpr std::uint16_t kNobody = UINT16_MAX;
  Arena() = default;

  Device* device_ = nullptr;
  EventLog* events_ = nullptr;
  Staging staging_;  // destroyed after memory_, which waits for submitted work
  DeviceBuffer memory_;
  std::uint64_t slab_bytes_ = 0;
  std::vector<std::uint16_t> owners_;       // by slab
  std::vector<std::uint16_t> last_owners_;  // by slab
  std::vector<std::uint32_t> tenancy_;      // by slab
  std::vector<std::uint32_t> free_;         // a stack
};

}  // namespace quire
