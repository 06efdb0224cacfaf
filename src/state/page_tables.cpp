#include "quire/state/page_tables.h"

#include <algorithm>

#include "quire/state/out_of_memory.h"

namespace quire {
namespace {

// With more changes than this, sync() needs several calls. A step of a thousand sequences changes fewer.
constexpr std::size_t kMostEntries = 4096;

}  // namespace

PageTables::PageTables(Device& device, std::uint32_t rows, std::uint32_t blocks)
    : device_(&device), blocks_(blocks), host_(std::size_t{rows} * blocks), changed_(rows) {
  listed_.reserve(rows);
  entries_.reserve(std::min(kMostEntries, host_.size()));
}

PoolResult<PageTables> PageTables::create(Device& device, std::uint32_t rows, std::uint32_t blocks) {
  return or_out_of_memory("page tables", [&]() -> PoolResult<PageTables> {
    PageTables tables(device, rows, blocks);
    auto memory = DeviceBuffer::create(device, tables.host_.size() * sizeof(std::uint32_t));
    if (!memory) return std::unexpected(memory.error());
    auto lengths = DeviceBuffer::create(device, std::size_t{rows} * sizeof(std::uint32_t));
    if (!lengths) return std::unexpected(lengths.error());
    tables.device_tables_ = std::move(*memory);
    tables.device_lengths_ = std::move(*lengths);
    return tables;
  });
}

void PageTables::set(std::uint32_t row, std::uint32_t block, std::uint32_t location) {
  host_[std::size_t{row} * blocks_ + block] = location;
  note(row, block, block + 1);
}

void PageTables::note(std::uint32_t row, std::uint32_t begin, std::uint32_t end) {
  Range& range = changed_[row];
  if (in_step(row)) {
    range.begin = begin;
    range.end = end;
  } else {
    range.begin = std::min(range.begin, begin);
    range.end = std::max(range.end, end);
  }
  if (!range.listed) listed_.push_back(row);
  range.listed = true;
}

void PageTables::cut(std::uint32_t row, std::uint32_t blocks) {
  changed_[row].end = std::min(changed_[row].end, blocks);
}

PoolResult<void> PageTables::sync() {
  entries_.clear();
  const auto flush = [&]() -> PoolResult<void> {
    if (entries_.empty()) return {};
    const auto ok = device_->upload_words(device_tables_.data(), entries_);
    entries_.clear();
    return ok;
  };
  for (const std::uint32_t row : listed_) {
    const std::size_t at = std::size_t{row} * blocks_;
    for (std::uint32_t block = changed_[row].begin; block < changed_[row].end; ++block) {
      if (entries_.size() == entries_.capacity()) {
        if (auto ok = flush(); !ok) return ok;
      }
      entries_.push_back({at + block, host_[at + block]});
    }
  }
  if (auto ok = flush(); !ok) return ok;
  for (const std::uint32_t row : listed_) changed_[row] = Range{};
  listed_.clear();
  return {};
}

}  // namespace quire
