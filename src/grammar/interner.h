// Ids for equal things: an open hash table of ids whose contents live elsewhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace quire::grammar {

inline std::uint64_t hash_mix(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15U;
  return hash ^ (hash >> 29);
}

class Interner {
 public:
  // `same(id)`: whether that is the wanted one. `make()`: appends it and returns its id; may not use this table.
  template <typename Same, typename Make>
  std::uint32_t find(std::uint64_t hash, Same same, Make make) {
    if (slots_.empty() || (used_ + 1) * 2 > slots_.size()) grow();
    const std::size_t mask = slots_.size() - 1;
    std::size_t at = hash & mask;
    for (; slots_[at].id != kFree; at = (at + 1) & mask) {
      if (slots_[at].hash == hash && same(slots_[at].id)) return slots_[at].id;
    }
    const std::uint32_t id = make();
    slots_[at] = {hash, id};
    ++used_;
    return id;
  }
  std::size_t bytes() const { return slots_.capacity() * sizeof(Slot); }

 private:
  static constexpr std::uint32_t kFree = 0xFFFFFFFF;
  struct Slot {
    std::uint64_t hash = 0;
    std::uint32_t id = kFree;
  };

  void grow() {
    std::vector<Slot> old(slots_.empty() ? 64 : slots_.size() * 2);
    old.swap(slots_);
    const std::size_t mask = slots_.size() - 1;
    for (const Slot& slot : old) {
      if (slot.id == kFree) continue;
      std::size_t at = slot.hash & mask;
      while (slots_[at].id != kFree) at = (at + 1) & mask;
      slots_[at] = slot;
    }
  }

  std::vector<Slot> slots_;
  std::size_t used_ = 0;
};

// From numbers to numbers; nothing is removed. Keys are not 0xFFFFFFFFFFFFFFFF.
class NumberMap {
 public:
  // Null: not there. Valid until the next insert.
  const std::uint32_t* find(std::uint64_t key) const {
    if (slots_.empty()) return nullptr;
    const std::size_t mask = slots_.size() - 1;
    for (std::size_t at = hash_mix(7, key) & mask;; at = (at + 1) & mask) {
      if (slots_[at].key == key) return &slots_[at].value;
      if (slots_[at].key == kFree) return nullptr;
    }
  }
  // The key is not there.
  void insert(std::uint64_t key, std::uint32_t value) {
    if ((used_ + 1) * 2 > slots_.size()) {
      std::vector<Slot> old(slots_.empty() ? 64 : slots_.size() * 2);
      old.swap(slots_);
      for (const Slot& slot : old) {
        if (slot.key != kFree) place(slot);
      }
    }
    place({key, value});
    ++used_;
  }
  std::size_t bytes() const { return slots_.capacity() * sizeof(Slot); }

 private:
  static constexpr std::uint64_t kFree = ~std::uint64_t{0};
  struct Slot {
    std::uint64_t key = kFree;
    std::uint32_t value = 0;
  };
  void place(const Slot& slot) {
    const std::size_t mask = slots_.size() - 1;
    std::size_t at = hash_mix(7, slot.key) & mask;
    while (slots_[at].key != kFree) at = (at + 1) & mask;
    slots_[at] = slot;
  }
  std::vector<Slot> slots_;
  std::size_t used_ = 0;
};

}  // namespace quire::grammar
