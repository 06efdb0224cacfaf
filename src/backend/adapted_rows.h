// The rows of a step that have an adapter, grouped by adapter. A backend groups them once, in begin(), and every
// product of the step goes by the groups. Rows without an adapter are in none.
//
// Who may call: one thread. group() allocates nothing within what reserve() took.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "quire/state/batch.h"

namespace quire {

class AdaptedRows {
 public:
  struct Group {
    std::uint32_t adapter = 0;           // from 1
    std::uint32_t first = 0, count = 0;  // of list()
    friend bool operator==(const Group&, const Group&) = default;
  };
  // Row numbers, those of a group next to each other and ascending.
  struct Rows {
    std::vector<std::uint32_t> list;
    std::vector<Group> groups;
    std::span<const std::uint32_t> of(const Group& group) const {
      return std::span(list).subspan(group.first, group.count);
    }
  };

  void reserve(std::uint32_t rows);
  void group(const Batch& batch);
  bool any() const { return !all_.list.empty(); }
  // For an operation on `rows` rows: all rows of the batch, or those whose logits it wants. If both are as many, they
  // are the same.
  const Rows& of(std::uint32_t rows) const;
  const Rows& of_all() const { return all_; }
  const Rows& of_wanted() const { return wanted_; }
  std::uint32_t adapter_of(std::uint32_t row) const { return adapters_[row]; }  // of all rows of the batch

 private:
  void fill(Rows& to) const;

  std::vector<std::uint32_t> adapters_;      // by row of the batch; only if there are any
  mutable std::vector<std::uint64_t> keys_;  // scratch: adapter, then row
  std::uint32_t rows_ = 0, wanted_count_ = 0;
  Rows all_, wanted_;
};

}  // namespace quire
