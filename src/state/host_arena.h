// Host memory for suspended sequences. It is taken from the device once (a GPU pins it) and cut into cells of one size.
// A page or state is stored in as many cells as it needs, wherever they are. So there is no fragmentation: what is free
// can be used, whatever the sizes of the objects.
//
// The cells of one suspended sequence form a list, and the list owns them: they are free again when it is destroyed.
// The cell that was freed last is used next, so the arena touches no more memory than it once needed at the same time.
// (By default memory that was never touched takes no room; see Device::allocate_host.)
//
// Who may call: one thread, the pool's. The arena must outlive its lists, and the device must outlive the arena. After
// create() nothing is allocated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

#include "quire/base/check.h"
#include "quire/base/numbers.h"
#include "quire/state/device.h"
#include "quire/state/ids.h"

namespace quire {

class HostArena {
 public:
  // Rounds `bytes` down to whole cells. An arena without cells is always full.
  static PoolResult<std::unique_ptr<HostArena>> create(Device& device, std::uint64_t bytes, std::uint64_t cell_bytes);
  HostArena(const HostArena&) = delete;
  HostArena& operator=(const HostArena&) = delete;

  // Prepares all of its memory for transfers now (Device::prepare_host), not when it is first used.
  void prepare() { device_->prepare_host(memory_.data(), memory_.size()); }

  std::uint64_t cell_bytes() const { return cell_bytes_; }
  std::uint64_t total_bytes() const { return total_ * cell_bytes_; }
  std::uint64_t used_bytes() const { return used_ * cell_bytes_; }
  std::uint64_t free_cells() const { return total_ - used_; }
  std::uint64_t cells_for(std::uint64_t bytes) const { return divide_up(bytes, cell_bytes_); }

  // What is stored: a page by its class and block number, or a state by its class.
  struct Object {
    std::uint32_t cls;
    std::uint32_t block;
    friend bool operator==(const Object&, const Object&) = default;
  };

  class List {
   public:
    List() = default;
    explicit List(HostArena& arena) : arena_(&arena) {}
    List(List&& other) noexcept { swap(other); }
    List& operator=(List&& other) noexcept {
      swap(other);
      return *this;
    }
    ~List() {
      if (arena_ != nullptr) arena_->give_back(first_, last_, size_);
    }

    std::uint32_t size() const { return size_; }  // cells
    // Submits the download of an object into new cells. There must be enough free ones. The bytes are there after the
    // next fence. Until then the list must not be destroyed, also after an error.
    PoolResult<void> store(Object object, const std::byte* from, std::uint64_t bytes);
    // Submits the upload of the object that begins in this cell. The list must not be destroyed before the next fence.
    PoolResult<void> load(std::uint32_t cell, std::byte* to, std::uint64_t bytes) const;
    // Calls visit(object, cell) for each object with its first cell, in the order in which they were stored.
    template <typename Visit>
    void for_each(Visit visit) const {
      std::uint32_t cell = first_;
      for (std::uint32_t i = 0; i < size_; ++i, cell = arena_->cells_[cell].next) {
        if (arena_->cells_[cell].begins) visit(arena_->cells_[cell].object, cell);
      }
    }

   private:
    void swap(List& other) noexcept {
      std::swap(arena_, other.arena_);
      std::swap(first_, other.first_);
      std::swap(last_, other.last_);
      std::swap(size_, other.size_);
    }

    HostArena* arena_ = nullptr;
    std::uint32_t first_ = kNoIndex;
    std::uint32_t last_ = kNoIndex;
    std::uint32_t size_ = 0;
  };

 private:
  struct Cell {  // not initialized before its first use
    std::uint32_t next;
    bool begins;  // an object begins here
    Object object;
  };
  // Otherwise create() would write to every cell, and the kernel would have to provide all that memory at once.
  static_assert(std::is_trivially_default_constructible_v<Cell>);

  explicit HostArena(Device& device) : device_(&device) {}
  std::byte* address(std::uint32_t cell) const { return memory_.data() + cell * cell_bytes_; }
  std::uint32_t take();
  void give_back(std::uint32_t first, std::uint32_t last, std::uint32_t count);

  Device* device_;
  HostBuffer memory_;
  std::unique_ptr<Cell[]> cells_;
  std::uint64_t cell_bytes_ = 1;
  std::uint64_t total_ = 0;
  std::uint64_t used_ = 0;
  std::uint32_t fresh_ = 0;             // cells from here on were never used
  std::uint32_t free_head_ = kNoIndex;  // the others that are free, the last freed first
};

}  // namespace quire
