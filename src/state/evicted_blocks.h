// Remembers blocks that were evicted: which content in which namespace, and how it had been used. It explains misses,
// and tells the eviction policy what it should have kept. A table of fixed size that is not searched: a new entry
// overwrites the old one in its place. Nothing depends on a secret seed. Single-threaded.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <optional>

#include "quire/base/large_vector.h"
#include "quire/state/ids.h"

namespace quire {

class EvictedBlocks {
 public:
  static constexpr std::uint8_t kNoKind = 0xFF;
  struct Use {
    std::uint64_t last = 0;  // when it was used last, in the caller's ticks
    std::uint8_t kind = kNoKind;
  };

  // Room for about four times as many blocks as the index can hold.
  explicit EvictedBlocks(std::uint32_t blocks)
      : entries_(std::bit_ceil(std::max<std::size_t>(std::size_t{blocks} * 4, 16))) {}

  void remember(std::uint64_t content, Namespace name_space, const Use& use) {
    const std::uint64_t print = fingerprint(content, name_space);
    entries_[place(print)] = {print, use.last << 8 | use.kind};
  }
  std::optional<Use> find(std::uint64_t content, Namespace name_space) const {
    const std::uint64_t print = fingerprint(content, name_space);
    const Entry& entry = entries_[place(print)];
    if (entry.print != print) return std::nullopt;
    return Use{entry.use >> 8, static_cast<std::uint8_t>(entry.use)};
  }
  void clear() { std::ranges::fill(entries_, Entry{}); }
  // For prefetching only.
  const void* entry_of(std::uint64_t content, Namespace name_space) const {
    return entries_.data() + place(fingerprint(content, name_space));
  }

 private:
  struct Entry {
    std::uint64_t print = 0;  // 0: empty
    std::uint64_t use = 0;
  };
  static std::uint64_t fingerprint(std::uint64_t content, Namespace name_space) {
    const std::uint64_t mixed = (content ^ (name_space * 0x9E3779B97F4A7C15)) * 0xBF58476D1CE4E5B9;
    return (mixed ^ (mixed >> 31)) | 1;
  }
  std::uint64_t place(std::uint64_t print) const { return (print >> 1) & (entries_.size() - 1); }

  LargeVector<Entry> entries_;
};

}  // namespace quire
