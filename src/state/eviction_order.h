// Candidates for eviction, in lists ordered by their time of last use. An item (a number below `items`) is in one list
// at most. Its oldest and its newest item are known at once; adding and removing are O(log n), wherever the item's time
// lies. Each list is a search tree with random priorities (a treap), linked through an array that is allocated at
// construction. Times are distinct. Single-threaded.
#pragma once

#include <cstdint>
#include <expected>
#include <vector>

#include "quire/base/large_vector.h"
#include "quire/state/ids.h"

namespace quire {

class EvictionOrder {
 public:
  EvictionOrder(std::uint32_t items, std::uint32_t lists);

  void add(std::uint32_t item, std::uint32_t list, std::uint64_t time);
  void remove(std::uint32_t item);  // no effect if it is in no list
  bool contains(std::uint32_t item) const { return items_[item].list != kNoIndex; }
  std::uint32_t list_of(std::uint32_t item) const { return items_[item].list; }

  std::uint32_t lists() const { return static_cast<std::uint32_t>(lists_.size()); }
  std::uint32_t oldest(std::uint32_t list) const { return lists_[list].oldest; }  // kNoIndex: the list is empty
  std::uint32_t newest(std::uint32_t list) const { return lists_[list].newest; }
  std::uint32_t size() const { return size_; }

  std::expected<void, const char*> check_integrity() const;

 private:
  struct Item {
    std::uint64_t time = 0;
    std::uint32_t left = kNoIndex;   // older
    std::uint32_t right = kNoIndex;  // newer
    std::uint32_t list = kNoIndex;
  };
  struct List {
    std::uint32_t root = kNoIndex;
    std::uint32_t oldest = kNoIndex;
    std::uint32_t newest = kNoIndex;
  };

  std::uint32_t* find(std::uint32_t item);
  void split(std::uint32_t tree, std::uint64_t time, std::uint32_t& older, std::uint32_t& newer);
  void join(std::uint32_t older, std::uint32_t newer, std::uint32_t* link);

  LargeVector<Item> items_;
  std::vector<List> lists_;
  std::uint32_t size_ = 0;
};

}  // namespace quire
