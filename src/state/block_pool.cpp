#include "quire/state/block_pool.h"

#include "quire/base/check.h"
#include "quire/state/out_of_memory.h"

namespace quire {
namespace {

std::uint32_t pages_per_slab(const Arena& arena, std::uint64_t page_bytes) {
  QUIRE_CHECK(page_bytes > 0, "a shape that was checked has bytes");
  return static_cast<std::uint32_t>(arena.slab_bytes() / page_bytes);
}

}  // namespace

BlockPool::BlockPool(std::unique_ptr<Arena> own, const PageShape& shape, std::uint32_t capacity, bool scrub)
    : own_arena_(std::move(own)),
      arena_(own_arena_.get()),
      shape_(shape),
      page_bytes_(shape.page_bytes()),
      unit_(page_bytes_),
      scrub_(scrub),
      allocator_(capacity) {}

BlockPool::BlockPool(Arena& arena, std::uint16_t class_id, const PageShape& shape, bool scrub)
    : arena_(&arena),
      shape_(shape),
      page_bytes_(shape.page_bytes()),
      unit_(location_unit(arena.slab_bytes(), page_bytes_)),
      scrub_(scrub),
      allocator_(arena, class_id, pages_per_slab(arena, page_bytes_)) {
  QUIRE_CHECK(arena.slab_bytes() / unit_ * arena.total_slabs() < kNoIndex, "locations are counted in 32 bits");
}

PoolResult<BlockPool> BlockPool::create(Device& device, std::uint32_t capacity, const PageShape& shape, bool scrub) {
  if (auto ok = shape.check(); !ok) return std::unexpected(ok.error());
  if (capacity == kNoIndex) return std::unexpected(PoolError::invalid_argument("more pages than can be counted"));
  const auto bytes = checked_mul<std::uint64_t>(capacity, shape.page_bytes());
  if (!bytes) return std::unexpected(PoolError::invalid_argument("more bytes than can be counted"));
  auto arena = Arena::create(device, *bytes, capacity == 0 ? 0 : 1);
  if (!arena) return std::unexpected(arena.error());
  return or_out_of_memory("the bookkeeping of a page pool", [&]() -> PoolResult<BlockPool> {
    return BlockPool(std::make_unique<Arena>(std::move(*arena)), shape, capacity, scrub);
  });
}

std::optional<std::vector<PageId>> BlockPool::allocate(std::uint32_t count) {
  if (count > free_count()) return std::nullopt;
  auto room =
      or_out_of_memory("page ids", [&]() -> PoolResult<std::vector<PageId>> { return std::vector<PageId>(count); });
  if (!room) return std::nullopt;
  std::vector<PageId> pages = std::move(*room);
  if (!allocator_.allocate(std::span(pages))) return std::nullopt;
  return pages;
}

PoolResult<void> BlockPool::free(PageId id) {
  if (scrub_) {
    const auto references = allocator_.references(id);
    if (references && *references == 1 && !allocator_.is_kept(id.index)) scrub(id.index);
  }
  return allocator_.free(id);
}

PoolResult<void> BlockPool::drop(PageId id) {
  if (scrub_) {
    const auto references = allocator_.references(id);
    if (references && *references == 0) scrub(id.index);
  }
  return allocator_.drop(id);
}

PoolResult<std::byte*> BlockPool::data(PageId id) const {
  if (!allocator_.is_live(id)) {
    const auto why = allocator_.references(id);
    return std::unexpected(why ? PoolError::invalid_page(id.index) : why.error());
  }
  return address(id.index);
}

}  // namespace quire
