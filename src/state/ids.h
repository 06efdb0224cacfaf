// Names for things in the pool. An id refers to an object and never owns it. It carries the object's generation, so a
// stale id is refused and never names the next object in the same place.
#pragma once

#include <cstddef>
#include <cstdint>

namespace quire {

using Token = std::int32_t;
using RequestId = std::uint64_t;  // 0: none
// A tenant, and the adapter that a sequence is computed with: prefixes are shared within a namespace, never across.
// Floors and caps are a tenant's, whatever adapters it uses.
using Namespace = std::uint64_t;

inline constexpr std::uint32_t kNoIndex = UINT32_MAX;

// Bits 53 to 62 of a namespace are the number of its adapter, 0 for none. The id of a tenant has none of them.
inline constexpr std::uint32_t kMostAdapterNumber = 1023;
constexpr Namespace in_adapter(Namespace tenant, std::uint32_t adapter) { return tenant | Namespace{adapter} << 53; }
constexpr Namespace tenant_of(Namespace name_space) { return name_space & ~(Namespace{kMostAdapterNumber} << 53); }
constexpr std::uint32_t adapter_of(Namespace name_space) {
  return static_cast<std::uint32_t>(name_space >> 53) & kMostAdapterNumber;
}

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
