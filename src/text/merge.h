// The merge algorithm of both kinds of BPE: merge the pair of neighbours with the lowest rank, the leftmost of equal
// ranks, until no pair can be merged. The caller defines which pairs merge, and into which token.
//
// Who may call: a Merger is the scratch buffer of one thread.
// What holds: O(n log n) for n symbols, whatever the text.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "quire/text/vocabulary.h"

namespace quire::text {

inline constexpr std::uint32_t kNoMerge = std::numeric_limits<std::uint32_t>::max();

// The result of merging a pair of neighbours.
struct Merge {
  std::uint32_t rank = kNoMerge;
  TokenId id = kNoToken;
};

// A range of the text and its token (kNoToken: none).
struct Symbol {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  TokenId id = kNoToken;
};

class Merger {
 public:
  // Before merge(): the characters of a text, in order. Afterwards: the merged symbols.
  std::vector<Symbol> symbols;

  // `find` maps a left and a right Symbol, neighbours in the text, to a Merge. Fewer than 2^32 symbols.
  template <typename Find>
  void merge(const Find& find) {
    if (symbols.size() < 2) return;
    if (symbols.size() <= kFew) {
      merge_few(find);
    } else {
      merge_many(find);
    }
  }

 private:
  // Up to this size, searching all pairs is faster than a heap.
  static constexpr std::size_t kFew = 32;

  template <typename Find>
  void merge_few(const Find& find) {
    Merge pairs[kFew];  // pairs[i] is of symbols i and i + 1
    Symbol* const s = symbols.data();
    std::size_t count = symbols.size();
    for (std::size_t i = 0; i + 1 < count; ++i) pairs[i] = find(s[i], s[i + 1]);
    while (count > 1) {
      std::size_t best = 0;
      for (std::size_t i = 1; i + 1 < count; ++i) {
        if (pairs[i].rank < pairs[best].rank) best = i;
      }
      if (pairs[best].rank == kNoMerge) break;
      s[best] = {s[best].begin, s[best + 1].end, pairs[best].id};
      --count;
      for (std::size_t i = best + 1; i < count; ++i) s[i] = s[i + 1];
      for (std::size_t i = best + 1; i + 1 < count; ++i) pairs[i] = pairs[i + 1];
      if (best + 1 < count) pairs[best] = find(s[best], s[best + 1]);
      if (best > 0) pairs[best - 1] = find(s[best - 1], s[best]);
    }
    symbols.resize(count);
  }

  template <typename Find>
  void merge_many(const Find& find) {
    constexpr std::uint32_t kEnd = std::numeric_limits<std::uint32_t>::max();
    const auto count = static_cast<std::uint32_t>(symbols.size());
    links_.resize(count);
    queue_.clear();
    for (std::uint32_t i = 0; i < count; ++i) {
      links_[i] = {i == 0 ? kEnd : i - 1, i + 1 == count ? kEnd : i + 1, {}};
      if (i + 1 == count) break;
      links_[i].pair = find(symbols[i], symbols[i + 1]);
      if (links_[i].pair.rank != kNoMerge) queue_.push_back(key(links_[i].pair.rank, i));
    }
    std::ranges::make_heap(queue_, std::greater<>());

    // Recomputes the pair that begins at `left`. An old entry of the queue is recognised by its different rank. An
    // entry with the same rank at the same place is the same merge, or one with the same priority.
    const auto renew = [&](std::uint32_t left) {
      Link& link = links_[left];
      link.pair = link.next == kEnd ? Merge() : find(symbols[left], symbols[link.next]);
      if (link.pair.rank == kNoMerge) return;
      queue_.push_back(key(link.pair.rank, left));
      std::ranges::push_heap(queue_, std::greater<>());
    };

    while (!queue_.empty()) {
      const std::uint64_t top = queue_.front();
      std::ranges::pop_heap(queue_, std::greater<>());
      queue_.pop_back();
      const auto left = static_cast<std::uint32_t>(top);
      Link& link = links_[left];
      if (link.pair.rank != static_cast<std::uint32_t>(top >> 32)) continue;
      const std::uint32_t right = link.next;
      symbols[left] = {symbols[left].begin, symbols[right].end, link.pair.id};
      link.next = links_[right].next;
      if (link.next != kEnd) links_[link.next].previous = left;
      links_[right].pair = {};  // invalidates its entries in the queue
      renew(left);
      if (link.previous != kEnd) renew(link.previous);
    }

    std::size_t kept = 0;
    for (std::uint32_t i = 0; i != kEnd; i = links_[i].next) symbols[kept++] = symbols[i];
    symbols.resize(kept);
  }

  struct Link {
    std::uint32_t previous;
    std::uint32_t next;
    Merge pair;  // of this symbol and the next
  };

  static std::uint64_t key(std::uint32_t rank, std::uint32_t left) { return std::uint64_t{rank} << 32 | left; }

  std::vector<Link> links_;
  std::vector<std::uint64_t> queue_;
};

}  // namespace quire::text
