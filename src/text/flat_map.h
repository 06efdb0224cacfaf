// Two hash tables that are filled once and then only read: from 64-bit keys to small values, and from texts to token
// ids. They use open addressing in one array, because lookups take most of a tokenizer's time.
//
// Who may call: one thread fills a table; afterwards any number of threads may look up.
// What holds: if a key is inserted twice, the first value stays.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "quire/text/vocabulary.h"

namespace quire::text {

inline std::uint64_t mix_bits(std::uint64_t x) {
  x = (x ^ (x >> 32)) * 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 29)) * 0xD6E8FEB86659FD93u;
  return x ^ (x >> 32);
}

inline std::uint64_t hash_text(std::string_view text) {
  const auto load = [](const char* at) {
    std::uint64_t word;
    std::memcpy(&word, at, sizeof word);
    return word;
  };
  std::uint64_t hash = text.size() * 0xA24BAED4963EE407u;
  if (text.size() >= 8) {
    // The last load overlaps the one before it, so that every load has eight bytes.
    for (std::size_t at = 0; at + 8 < text.size(); at += 8) {
      hash = std::rotl((hash ^ load(text.data() + at)) * 0x9FB21C651E98DF25u, 29);
    }
    return mix_bits(hash ^ load(text.data() + text.size() - 8));
  }
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < text.size(); ++i) word = word << 8 | static_cast<unsigned char>(text[i]);
  return mix_bits(hash ^ word);
}

inline std::size_t table_size_for(std::size_t count) { return std::bit_ceil(count * 2 + 2); }

// A key is any number except kNoKey, which is never found.
template <typename Value>
class FlatMap {
 public:
  static constexpr std::uint64_t kNoKey = ~std::uint64_t{0};

  explicit FlatMap(std::size_t expected = 0) : slots_(table_size_for(expected)) {}

  bool insert(std::uint64_t key, Value value) {
    if ((size_ + 1) * 2 > slots_.size()) grow();
    Slot& slot = slots_[place(key)];
    if (slot.key == key) return false;
    slot = {key, value};
    ++size_;
    return true;
  }

  const Value* find(std::uint64_t key) const {
    const Slot& slot = slots_[place(key)];
    return slot.key == key && key != kNoKey ? &slot.value : nullptr;
  }

 private:
  struct Slot {
    std::uint64_t key = kNoKey;
    Value value = {};
  };

  // The slot of the key, or the free slot where it would go.
  std::size_t place(std::uint64_t key) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t at = mix_bits(key) & mask;
    while (slots_[at].key != key && slots_[at].key != kNoKey) at = (at + 1) & mask;
    return at;
  }

  void grow() {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.key != kNoKey) slots_[place(slot.key)] = slot;
    }
  }

  std::vector<Slot> slots_;
  std::size_t size_ = 0;
};

// The texts are not copied: they must live as long as the index and must not move.
class TokenIndex {
 public:
  explicit TokenIndex(std::size_t expected = 0) : slots_(table_size_for(expected)) {}

  // Returns the id that the text already had, or kNoToken if it is new. At most `expected` texts may be inserted.
  TokenId insert(std::string_view text, TokenId id) {
    const std::uint64_t hash = hash_text(text);
    Slot& slot = slots_[place(text, hash)];
    if (slot.id != kNoToken) return slot.id;
    slot = {text.data(), static_cast<std::uint32_t>(text.size()), static_cast<std::uint32_t>(hash >> 32), id};
    return kNoToken;
  }

  TokenId find(std::string_view text) const { return slots_[place(text, hash_text(text))].id; }

 private:
  struct Slot {
    const char* text = nullptr;
    std::uint32_t size = 0;
    std::uint32_t tag = 0;
    TokenId id = kNoToken;
  };

  std::size_t place(std::string_view text, std::uint64_t hash) const {
    const std::size_t mask = slots_.size() - 1;
    const auto tag = static_cast<std::uint32_t>(hash >> 32);
    for (std::size_t at = hash & mask;; at = (at + 1) & mask) {
      const Slot& slot = slots_[at];
      if (slot.id == kNoToken) return at;
      if (slot.tag == tag && std::string_view(slot.text, slot.size) == text) return at;
    }
  }

  std::vector<Slot> slots_;
};

}  // namespace quire::text
