// Which objects a disk tier has, where, and how they were used. Objects are numbered as they are written. A generation
// is a range of numbers that is dropped as a whole (disk_store.h).
//
// Objects are known by 64 bits of their name, so an entry takes about 64 bytes whatever the tree does. Two names with
// the same 64 bits (one pair in 10^19) share an entry: whoever reads an object compares the whole name.
//
// Who may call: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "quire/state/object_name.h"

namespace quire::tiers {

struct DiskEntry {
  std::uint64_t number = 0;
  std::uint32_t bytes = 0;
  std::uint32_t hits = 0;      // gets since it was written; halved when it is carried on
  std::uint32_t accessed = 0;  // seconds since 1970
};

class DiskIndex {
 public:
  static std::uint64_t hash(const ObjectKey& key) { return ObjectKeyHash{}(key); }

  std::size_t size() const { return entries_.size(); }
  const DiskEntry* find(std::uint64_t hash) const;
  void put(std::uint64_t hash, const DiskEntry& entry) { entries_[hash] = entry; }
  void hit(std::uint64_t hash, std::uint32_t now);
  // Only if it is still the entry with this number. Returns whether it was.
  bool erase(std::uint64_t hash, std::uint64_t number);
  void clear() { entries_.clear(); }

  // What is worth keeping of these objects when their generation goes: those with hits, most hits first, then the most
  // recently used, at most `bytes` of them. `first` and `last` are the numbers of the generation.
  std::vector<std::uint64_t> worth_keeping(std::span<const std::uint64_t> hashes, std::uint64_t first,
                                           std::uint64_t last, std::uint64_t bytes) const;

  // The entries with hits, for a file. They are merged into the entries after a restart; what is damaged is ignored.
  std::vector<std::byte> save_accesses() const;
  bool load_accesses(std::span<const std::byte> saved);

 private:
  struct SameHash {
    std::size_t operator()(std::uint64_t hash) const { return hash; }
  };
  std::unordered_map<std::uint64_t, DiskEntry, SameHash> entries_;
};

}  // namespace quire::tiers
