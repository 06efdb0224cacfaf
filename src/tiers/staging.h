// Host memory for objects on their way between a pool and its tiers. It is taken once from the device (a GPU pins it)
// and cut into cells, for each class of objects cells of its size.
//
// Who may call: one thread, the pool's. Others may use the bytes of a cell that they were handed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "quire/base/numbers.h"
#include "quire/state/device.h"

namespace quire::tiers {

class Staging {
 public:
  static constexpr std::uint32_t kLeastCells = 8;  // of each class, whatever the limit

  struct Cell {
    std::uint32_t cls = 0;
    std::uint32_t index = UINT32_MAX;
    bool valid() const { return index != UINT32_MAX; }
  };

  // Every class gets the same share of `bytes`, and at least kLeastCells cells.
  static PoolResult<std::unique_ptr<Staging>> create(Device& device, std::uint64_t bytes,
                                                     std::span<const std::uint64_t> object_bytes) {
    std::unique_ptr<Staging> staging(new Staging);
    std::uint64_t at = 0;
    for (const std::uint64_t size : object_bytes) {
      const std::uint64_t stride = divide_up(size, std::uint64_t{kAlign}) * kAlign;
      const std::uint64_t share = bytes / object_bytes.size();
      const auto cells = static_cast<std::uint32_t>(std::max<std::uint64_t>(kLeastCells, share / stride));
      Class cls{.first = at, .stride = stride, .bytes = size, .cells = cells, .free = {}};
      for (std::uint32_t i = cells; i > 0; --i) cls.free.push_back(i - 1);
      staging->classes_.push_back(std::move(cls));
      at += stride * cells;
    }
    auto memory = HostBuffer::create(device, at);
    if (!memory) return std::unexpected(memory.error());
    staging->memory_ = std::move(*memory);
    return staging;
  }

  void prepare(Device& device) { device.prepare_host(memory_.data(), memory_.size()); }

  // A free cell of the class, as long as more than `leave` of them stay free. Invalid: there is none.
  Cell take(std::uint32_t cls, std::uint32_t leave = 0) {
    Class& c = classes_[cls];
    if (c.free.size() <= leave) return {};
    const std::uint32_t index = c.free.back();
    c.free.pop_back();
    used_ += c.bytes;
    return {cls, index};
  }
  void give_back(Cell cell) {
    used_ -= classes_[cell.cls].bytes;
    classes_[cell.cls].free.push_back(cell.index);
  }

  std::byte* data(Cell cell) const {
    const Class& c = classes_[cell.cls];
    return memory_.data() + c.first + c.stride * cell.index;
  }
  std::uint64_t bytes(Cell cell) const { return classes_[cell.cls].bytes; }
  std::uint32_t cells(std::uint32_t cls) const { return classes_[cls].cells; }
  std::uint32_t free(std::uint32_t cls) const { return static_cast<std::uint32_t>(classes_[cls].free.size()); }
  std::uint64_t total_bytes() const { return memory_.size(); }
  std::uint64_t used_bytes() const { return used_; }

 private:
  static constexpr std::uint64_t kAlign = 4096;
  struct Class {
    std::uint64_t first, stride, bytes;
    std::uint32_t cells;
    std::vector<std::uint32_t> free;
  };

  std::vector<Class> classes_;
  HostBuffer memory_;
  std::uint64_t used_ = 0;
};

}  // namespace quire::tiers
