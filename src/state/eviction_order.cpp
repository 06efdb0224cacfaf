#include "quire/state/eviction_order.h"

#include "quire/base/check.h"

namespace quire {
namespace {

// A fixed hash of the item decides its height in the tree. The shape of a tree changes no answer.
std::uint32_t priority(std::uint32_t item) {
  std::uint32_t x = item * 0x9E3779B1u + 1;
  x = (x ^ (x >> 15)) * 0x85EBCA6Bu;
  return x ^ (x >> 13);
}

}  // namespace

EvictionOrder::EvictionOrder(std::uint32_t items, std::uint32_t lists) : items_(items), lists_(lists) {}

void EvictionOrder::add(std::uint32_t item, std::uint32_t list, std::uint64_t time) {
  QUIRE_CHECK(!contains(item), "an item is in one list at most");
  List& l = lists_[list];
  std::uint32_t* link = &l.root;
  while (*link != kNoIndex && priority(*link) >= priority(item)) {
    Item& above = items_[*link];
    link = time < above.time ? &above.left : &above.right;
  }
  Item& added = items_[item];
  added = {.time = time, .list = list};
  split(*link, time, added.left, added.right);
  *link = item;
  if (l.oldest == kNoIndex || time < items_[l.oldest].time) l.oldest = item;
  if (l.newest == kNoIndex || time > items_[l.newest].time) l.newest = item;
  ++size_;
}

void EvictionOrder::remove(std::uint32_t item) {
  if (!contains(item)) return;
  List& l = lists_[items_[item].list];
  std::uint32_t* link = find(item);
  join(items_[item].left, items_[item].right, link);
  items_[item] = Item{};
  --size_;
  if (l.oldest == item) {
    l.oldest = l.root;
    while (l.oldest != kNoIndex && items_[l.oldest].left != kNoIndex) l.oldest = items_[l.oldest].left;
  }
  if (l.newest == item) {
    l.newest = l.root;
    while (l.newest != kNoIndex && items_[l.newest].right != kNoIndex) l.newest = items_[l.newest].right;
  }
}

// The link that names the item.
std::uint32_t* EvictionOrder::find(std::uint32_t item) {
  std::uint32_t* link = &lists_[items_[item].list].root;
  while (*link != item) {
    QUIRE_CHECK(*link != kNoIndex, "an item is in the tree of its list");
    Item& above = items_[*link];
    link = items_[item].time < above.time ? &above.left : &above.right;
  }
  return link;
}

// Cuts a tree into what is older than `time` and what is newer.
void EvictionOrder::split(std::uint32_t tree, std::uint64_t time, std::uint32_t& older, std::uint32_t& newer) {
  std::uint32_t* left = &older;
  std::uint32_t* right = &newer;
  while (tree != kNoIndex) {
    Item& top = items_[tree];
    if (top.time < time) {
      *left = tree;
      left = &top.right;
      tree = top.right;
    } else {
      *right = tree;
      right = &top.left;
      tree = top.left;
    }
  }
  *left = *right = kNoIndex;
}

// Joins two trees, all of the first one older than all of the second, and writes the result to `link`.
void EvictionOrder::join(std::uint32_t older, std::uint32_t newer, std::uint32_t* link) {
  while (older != kNoIndex && newer != kNoIndex) {
    if (priority(older) >= priority(newer)) {
      *link = older;
      link = &items_[older].right;
      older = *link;
    } else {
      *link = newer;
      link = &items_[newer].left;
      newer = *link;
    }
  }
  *link = older != kNoIndex ? older : newer;
}

// Every item can be found from the root of its list, and no list has an item outside its oldest and newest.
std::expected<void, const char*> EvictionOrder::check_integrity() const {
  std::uint32_t counted = 0;
  for (std::uint32_t i = 0; i < items_.size(); ++i) {
    if (!contains(i)) continue;
    ++counted;
    const List& l = lists_[items_[i].list];
    const std::uint64_t time = items_[i].time;
    if (time < items_[l.oldest].time || time > items_[l.newest].time) return std::unexpected("an order has wrong ends");
    std::uint32_t at = l.root;
    for (std::size_t steps = 0; at != i; ++steps) {
      if (at == kNoIndex || steps > items_.size()) return std::unexpected("an order has lost an item");
      at = time < items_[at].time ? items_[at].left : items_[at].right;
    }
  }
  if (counted != size_) return std::unexpected("an order counts its items wrongly");
  return {};
}

}  // namespace quire
