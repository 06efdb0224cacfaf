#include "quire/backend/cpu/attention_plan.h"

#include <algorithm>
#include <cstring>

#include "quire/backend/cpu/kernels.h"
#include "quire/base/numbers.h"

namespace quire::cpu {
namespace {

constexpr std::uint32_t kQueriesAtOnce = 64;  // rows x heads of a chunk: enough to make loading keys and values cheap
constexpr std::uint32_t kMostSharing = 64;    // rows of one item

std::uint32_t first_seen(std::uint32_t position, std::uint32_t window) {
  return window != 0 && position + 1 > window ? position + 1 - window : 0;
}

}  // namespace

void AttentionPlan::prepare(std::uint32_t max_rows, std::uint32_t max_parts) {
  max_parts_ = max_parts;
  pieces_.reserve(max_parts);
  rows_.reserve(max_rows);
  runs_.reserve(2 * std::size_t{max_rows});  // a tree's inner nodes are fewer than its leaves
  items_.reserve(max_rows);
  singles_.reserve(max_rows);
}

void AttentionPlan::make(const Batch& batch, std::uint32_t group, std::uint32_t window, std::uint32_t queries_per_row,
                         std::uint32_t wanted_items) {
  rows_.clear();
  runs_.clear();
  items_.clear();
  pieces_.clear();
  singles_.clear();
  const std::uint32_t rows_at_once = std::max(1u, kQueriesAtOnce / queries_per_row);
  const KvGroupView& kv = batch.kv()[group];
  const std::uint32_t block_size = kv.block_size;
  for (std::uint32_t e = 0; e < batch.entries().size(); ++e) {
    const BatchEntry& entry = batch.entries()[e];
    if (entry.rows > 1) {
      add_chunk(batch, e, window, rows_at_once);
    } else if (entry.rows == 1) {
      // With a window, the first pages may have been released. Their table entries mean nothing then.
      const std::uint32_t pages = window != 0 ? 0 : entry.position / block_size + 1;
      singles_.push_back({e, entry.first_row, entry.position, kv.table(entry.table), pages, 0});
    }
  }
  // Any order will do that puts equal prefixes next to each other.
  std::sort(singles_.begin(), singles_.end(), [](const Single& a, const Single& b) {
    const int order = std::memcmp(a.table, b.table, std::min(a.pages, b.pages) * sizeof(std::uint32_t));
    return order != 0 ? order < 0 : a.entry < b.entry;
  });
  first_single_ = static_cast<std::uint32_t>(rows_.size());
  for (std::size_t i = 0; i < singles_.size(); ++i) {
    Single& single = singles_[i];
    rows_.push_back({single.row, first_seen(single.position, window), single.position});
    if (i == 0) continue;
    const Single& before = singles_[i - 1];
    const std::uint32_t pages = std::min(single.pages, before.pages);
    const auto same = static_cast<std::uint32_t>(std::mismatch(single.table, single.table + pages, before.table).first -
                                                 single.table);
    const std::uint32_t seen = std::min(single.position, before.position) + 1;
    single.shared = std::min(same * block_size, seen) / kContextTile;
  }
  // A row that shares nothing with its neighbour begins a new item. Items are kept small enough to give all threads
  // work.
  const auto count = static_cast<std::uint32_t>(singles_.size());
  const std::uint32_t most = std::clamp(count / std::max(1u, wanted_items), 1u, kMostSharing);
  for (std::uint32_t begin = 0; begin < count;) {
    std::uint32_t end = begin + 1;
    while (end < count && singles_[end].shared > 0 && end - begin < most) ++end;
    const auto runs = static_cast<std::uint32_t>(runs_.size());
    add_sharing(begin, end, rows_[first_single_ + begin].begin / kContextTile);
    add_item(runs, first_single_ + begin, first_single_ + end);
    begin = end;
  }
  list_pieces();
  made_ = true;
}

// An item of the runs from `first_run` on.
void AttentionPlan::add_item(std::uint32_t first_run, std::uint32_t row_begin, std::uint32_t row_end) {
  Item item{first_run, static_cast<std::uint32_t>(runs_.size()), row_begin, row_end, UINT32_MAX, 0, 0};
  for (std::uint32_t r = row_begin; r < row_end; ++r) {
    item.section_begin = std::min(item.section_begin, rows_[r].begin / kSection);
    item.section_end = std::max(item.section_end, rows_[r].position / kSection + 1);
  }
  items_.push_back(item);
}

void AttentionPlan::list_pieces() {
  std::uint64_t parts = 0;
  for (Item& item : items_) {
    item.first_part = static_cast<std::uint32_t>(parts);
    parts += std::uint64_t{item.section_end - item.section_begin} * (item.row_end - item.row_begin);
    if (parts > max_parts_) return pieces_.clear();
    for (std::uint32_t section = item.section_begin; section < item.section_end; ++section) {
      pieces_.push_back({static_cast<std::uint32_t>(&item - items_.data()), section});
    }
  }
}

// Later rows of a chunk see more context. They come first, so that no thread is left with a long item at the end.
void AttentionPlan::add_chunk(const Batch& batch, std::uint32_t entry, std::uint32_t window,
                              std::uint32_t rows_at_once) {
  const BatchEntry& chunk = batch.entries()[entry];
  for (std::uint32_t end = chunk.rows; end > 0;) {
    const std::uint32_t begin = end > rows_at_once ? end - rows_at_once : 0;
    const auto first = static_cast<std::uint32_t>(rows_.size());
    for (std::uint32_t i = begin; i < end; ++i) {
      rows_.push_back({chunk.first_row + i, first_seen(chunk.position + i, window), chunk.position + i});
    }
    const auto runs = static_cast<std::uint32_t>(runs_.size());
    runs_.push_back({first, first + (end - begin), rows_[first].begin / kContextTile,
                     (chunk.position + end - 1) / kContextTile + 1, entry});
    add_item(runs, first, first + (end - begin));
    end = begin;
  }
}

// The context that all rows share is one run for all of them. Rows that share more continue together.
void AttentionPlan::add_sharing(std::uint32_t begin, std::uint32_t end, std::uint32_t tile) {
  if (begin + 1 == end) {
    const std::uint32_t last = singles_[begin].position / kContextTile + 1;
    runs_.push_back({first_single_ + begin, first_single_ + end, tile, last, singles_[begin].entry});
    return;
  }
  std::uint32_t common = UINT32_MAX;
  for (std::uint32_t i = begin + 1; i < end; ++i) common = std::min(common, singles_[i].shared);
  if (common > tile) {
    runs_.push_back({first_single_ + begin, first_single_ + end, tile, common, singles_[begin].entry});
    tile = common;
  }
  for (std::uint32_t first = begin; first < end;) {
    std::uint32_t last = first + 1;
    while (last < end && singles_[last].shared > tile) ++last;
    add_sharing(first, last, tile);
    first = last;
  }
}

}  // namespace quire::cpu
