// Names for things in the pool. An id refers to an object and never owns it. It carries the object's generation, so a
// stale id is refused and never names the next object in the same place.
#pragma once

#include <cstddef>
#include <cstdint>

namespace quire {

using Token = std::int32_t;
using RequestId = std::uint64_t;  // 0: none
using Namespace = std::uint64_t;  // a tenant, an adapter: prefixes are shared within one, never across

inline constexpr std::uint32_t kNoIndex = UINT32_MAX;

template <typename Tag>
struct GenerationalId {
  std::uint32_t index = kNoIndex;
  std::uint32_t generation = 0;

  bool valid() const { return index != kNoIndex; }
  friend bool operator==(const GenerationalId&, const GenerationalId&) = default;
};

using PageId = GenerationalId<struct PageTag>;          // a physical page; only its own layer group accepts it
using SlotId = GenerationalId<struct SlotTag>;          // a recurrent state
using SequenceId = GenerationalId<struct SequenceTag>;  // a live sequence of a SequencePool

}  // namespace quire
