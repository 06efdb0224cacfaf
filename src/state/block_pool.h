// Pages with their bytes: an allocator and the storage behind it. All memory is taken and zeroed at construction and
// never grows. A freed page keeps its bytes until the next holder writes, unless scrubbing is asked for: then they are
// zeroed as it is freed. A device that refuses to zero does not keep a page from being freed; scrub_failures() counts.
//
// A pool stands alone (create) or is one class of a shared arena. Ids and their rules are BlockAllocator's.
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
  // `capacity` pages of their own; 0 is a pool of no pages, which is always exhausted.
  static PoolResult<BlockPool> create(Device& device, std::uint32_t capacity, const PageShape& shape,
                                      bool scrub = false);
  // Pages in an arena that others share. The arena must outlive the pool and not move.
  BlockPool(Arena& arena, std::uint16_t class_id, const PageShape& shape, bool scrub);

  std::optional<PageId> allocate() { return allocator_.allocate(); }
  bool allocate(std::span<PageId> out) { return allocator_.allocate(out); }
  std::optional<std::vector<PageId>> allocate(std::uint32_t count);  // all or nothing, also for want of heap
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
  // Where a page is, for tables that kernels read: base() + location * unit(). In a pool that stands alone the location
  // is the page's index.
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

  std::unique_ptr<Arena> own_arena_;  // of a pool that stands alone
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
