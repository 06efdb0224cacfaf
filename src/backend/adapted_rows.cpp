#include "quire/backend/adapted_rows.h"

#include <algorithm>

#include "quire/base/check.h"

namespace quire {

void AdaptedRows::reserve(std::uint32_t rows) {
  adapters_.reserve(rows);
  keys_.reserve(rows);
  for (Rows* const each : {&all_, &wanted_}) {
    each->list.reserve(rows);
    each->groups.reserve(rows);
  }
}

// The scratch memory has a number for each row that has an adapter.
void AdaptedRows::fill(Rows& to) const {
  to.list.clear();
  to.groups.clear();
  std::ranges::sort(keys_);
  for (const std::uint64_t key : keys_) {
    const auto adapter = static_cast<std::uint32_t>(key >> 32);
    if (to.groups.empty() || to.groups.back().adapter != adapter) {
      to.groups.push_back({adapter, static_cast<std::uint32_t>(to.list.size()), 0});
    }
    to.list.push_back(static_cast<std::uint32_t>(key));
    ++to.groups.back().count;
  }
}

void AdaptedRows::group(const Batch& batch) {
  rows_ = batch.rows();
  wanted_count_ = static_cast<std::uint32_t>(batch.wanted().size());
  adapters_.clear();
  keys_.clear();
  const auto note = [&](std::uint32_t row, std::uint32_t adapter) {
    if (adapter != 0) keys_.push_back(std::uint64_t{adapter} << 32 | row);
  };
  for (const BatchEntry& entry : batch.entries()) {
    for (std::uint32_t i = 0; i < entry.rows; ++i) note(entry.first_row + i, entry.adapter);
  }
  if (keys_.empty()) {
    for (Rows* const each : {&all_, &wanted_}) {
      each->list.clear();
      each->groups.clear();
    }
    return;
  }
  for (const BatchEntry& entry : batch.entries()) adapters_.insert(adapters_.end(), entry.rows, entry.adapter);
  fill(all_);
  keys_.clear();
  for (std::uint32_t i = 0; i < wanted_count_; ++i) note(i, adapters_[batch.wanted()[i]]);
  fill(wanted_);
}

const AdaptedRows::Rows& AdaptedRows::of(std::uint32_t rows) const {
  QUIRE_CHECK(rows == rows_ || rows == wanted_count_,
              "a product with adapters has the batch's rows, or the wanted ones");
  return rows == rows_ ? all_ : wanted_;
}

}  // namespace quire
