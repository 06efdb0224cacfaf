// Pages with their bytes: an allocator and the storage behind it. All memory is taken and zeroed at construction and
// never grows. A freed page keeps its bytes until the next holder writes. With `scrub` a page is zeroed when it is
// freed. If the device refuses to zero, the page is freed all the same, and scrub_failures() counts it.
//
// A pool has storage of its own (create) or is one class of a shared arena. BlockAllocator defines the rules for ids.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "quire/state/block_allocator.h"
#include "quire/state/layout.h"

namespace quire {

class BlockPool {
 public:
  // A pool with storage of its own for `capacity` pages. A pool of 0 pages is always exhausted.
  static PoolResult<BlockPool> create(Device& device, std::uint32_t capacity, const PageShape& shape,
                                      bool scrub = false);
  // Pages in a shared arena. The arena must outlive the pool and not move.
  BlockPool(Arena& arena, std::uint16_t class_id, const PageShape& shape, bool scrub);

  std::optional<PageId> allocate() { return allocator_.allocate(); }
  bool allocate(std::span<PageId> out) { return allocator_.allocate(out); }
  std::optional<std::vector<PageId>> allocate(std::uint32_t count);  // all or nothing, also if the heap is exhausted
  PoolResult<void> acquire(PageId id) { return allocator_.acquire(id); }
  PoolResult<void> free(PageId id);
  PoolResult<void> drop(PageId id);  // see BlockAllocator

  std::uint64_t scrub_failures() const { return scrub_failures_; }
  void scrub(std::uint32_t index) {
    if (scrub_ && !device().zero(address(index), page_bytes_)) ++scrub_failures_;
  }

  std::uint32_t free_count() const { return allocator_.free_count(); }
  std::uint32_t total_count() const { return allocator_.total_count(); }
  double utilization() const { return allocator_.utilization(); }

  const PageShape& shape() const { return shape_; }
  BlockAllocator& allocator() { return allocator_; }
  const BlockAllocator& allocator() const { return allocator_; }
  Device& device() const { return arena_->device(); }
  PoolResult<void> upload_copy(void* to, const void* from, std::size_t bytes) {
    return arena_->upload_copy(to, from, bytes);
  }

  // The bytes of a live page.
  PoolResult<std::byte*> data(PageId id) const;
  // Where a page is, for the page tables that kernels read: base() + location * unit(). In a pool with storage of its
  // own the location is the page's index.
  std::uint32_t location(std::uint32_t index) const { return static_cast<std::uint32_t>(offset(index) / unit_); }
  std::uint64_t unit() const { return unit_; }
  std::byte* base() const { return arena_->base(); }
  std::byte* address(std::uint32_t index) const { return arena_->base() + offset(index); }

  // Copies the bytes of one page over another's.
  PoolResult<void> copy_page(std::uint32_t to, std::uint32_t from) {
    return device().copy(address(to), address(from), shape_.page_bytes());
  }

 private:
  BlockPool(std::unique_ptr<Arena> own, const PageShape& shape, std::uint32_t capacity, bool scrub);

  std::uint64_t offset(std::uint32_t index) const {
    const std::uint32_t cells = allocator_.cells_per_slab();
    return index / cells * arena_->slab_bytes() + index % cells * page_bytes_;
  }

  std::unique_ptr<Arena> own_arena_;  // of a pool with storage of its own
  Arena* arena_ = nullptr;
  PageShape shape_;
  std::uint64_t page_bytes_ = 0;
  std::uint64_t unit_ = 0;
  bool scrub_ = false;
  std::uint64_t scrub_failures_ = 0;
  BlockAllocator allocator_;
};

using KvCachePool = BlockPool;

}  // namespace quire
