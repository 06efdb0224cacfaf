// Names for things in the pool. An id refers and never owns: it carries the generation of what it named, so that an id
// kept too long is refused instead of meaning whatever lives there now.
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

using PageId = GenerationalId<struct PageTag>;          // a physical page of one layer group, no other takes it
using SlotId = GenerationalId<struct SlotTag>;          // a recurrent state
using SequenceId = GenerationalId<struct SequenceTag>;  // a live sequence of a SequencePool

}  // namespace quire
