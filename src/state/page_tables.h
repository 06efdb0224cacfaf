// The page tables of many sequences as one matrix [rows][blocks]. The host copy is authoritative; kernels read its
// mirror on the device. A row belongs to one PagedSeqState. Entries are locations of pages (BlockPool::location).
//
// Each row records the range of its changed entries. sync() uploads the entries that changed since the last sync, for
// all rows, in one call of the device. After an error they stay recorded, and the next sync uploads them again.
//
// Who may call: the thread that owns the pool. Nothing is allocated after create().
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "quire/state/device.h"

namespace quire {

class PageTables {
 public:
  static PoolResult<PageTables> create(Device& device, std::uint32_t rows, std::uint32_t blocks);

  std::uint32_t rows() const { return static_cast<std::uint32_t>(changed_.size()); }
  std::uint32_t blocks() const { return blocks_; }
  const std::uint32_t* host_row(std::uint32_t row) const { return host_.data() + std::size_t{row} * blocks_; }
  const std::uint32_t* device_row(std::uint32_t row) const {
    return reinterpret_cast<const std::uint32_t*>(device_tables_.data()) + std::size_t{row} * blocks_;
  }
  // [rows]: lengths of the sequences, for kernels that do not get them with their batch.
  std::uint32_t* device_length(std::uint32_t row) const {
    return reinterpret_cast<std::uint32_t*>(device_lengths_.data()) + row;
  }

  void set(std::uint32_t row, std::uint32_t block, std::uint32_t location);
  // Entries from `blocks` on are no longer used and need not be uploaded.
  void cut(std::uint32_t row, std::uint32_t blocks);

  bool in_step(std::uint32_t row) const { return changed_[row].begin >= changed_[row].end; }
  PoolResult<void> sync();

 private:
  PageTables(Device& device, std::uint32_t rows, std::uint32_t blocks);
  void note(std::uint32_t row, std::uint32_t begin, std::uint32_t end);

  struct Range {
    std::uint32_t begin = 0;
    std::uint32_t end = 0;
    bool listed = false;
  };
  Device* device_;
  std::uint32_t blocks_;
  std::vector<std::uint32_t> host_;    // [rows][blocks]
  std::vector<Range> changed_;         // [rows]
  std::vector<std::uint32_t> listed_;  // rows that may have changed entries
  std::vector<Device::Word> entries_;  // scratch buffer of sync()
  DeviceBuffer device_tables_;         // [rows][blocks] u32
  DeviceBuffer device_lengths_;        // [rows] u32
};

}  // namespace quire
