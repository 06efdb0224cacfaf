#include "quire/state/host_arena.h"

#include <algorithm>
#include <new>

namespace quire {

PoolResult<std::unique_ptr<HostArena>> HostArena::create(Device& device, std::uint64_t bytes,
                                                         std::uint64_t cell_bytes) {
  if (cell_bytes == 0) return std::unexpected(PoolError::invalid_argument("a host arena with cells of no bytes"));
  std::unique_ptr<HostArena> arena(new (std::nothrow) HostArena(device));
  if (arena == nullptr) return std::unexpected(PoolError::out_of_memory("a host arena"));
  arena->cell_bytes_ = cell_bytes;
  arena->total_ = std::min<std::uint64_t>(bytes / cell_bytes, kNoIndex);
  if (arena->total_ == 0) return arena;
  arena->cells_.reset(new (std::nothrow) Cell[arena->total_]);
  if (arena->cells_ == nullptr) {
    return std::unexpected(PoolError::out_of_memory("a host arena", arena->total_ * sizeof(Cell)));
  }
  auto memory = HostBuffer::create(device, arena->total_bytes());
  if (!memory) return std::unexpected(memory.error());
  arena->memory_ = std::move(*memory);
  return arena;
}

std::uint32_t HostArena::take() {
  QUIRE_CHECK(used_ < total_, "free cells were counted");
  ++used_;
  if (free_head_ == kNoIndex) return fresh_++;
  return std::exchange(free_head_, cells_[free_head_].next);
}

void HostArena::give_back(std::uint32_t first, std::uint32_t last, std::uint32_t count) {
  if (count == 0) return;
  cells_[last].next = free_head_;
  free_head_ = first;
  used_ -= count;
}

PoolResult<void> HostArena::List::store(Object object, const std::byte* from, std::uint64_t bytes) {
  for (std::uint64_t done = 0; done < bytes; done += arena_->cell_bytes_) {
    const std::uint32_t cell = arena_->take();
    arena_->cells_[cell] = {.next = kNoIndex, .begins = done == 0, .object = object};
    (size_++ == 0 ? first_ : arena_->cells_[last_].next) = cell;
    last_ = cell;
    const std::uint64_t part = std::min(arena_->cell_bytes_, bytes - done);
    if (auto ok = arena_->device_->download(arena_->address(cell), from + done, part); !ok) return ok;
  }
  return {};
}

PoolResult<void> HostArena::List::load(std::uint32_t cell, std::byte* to, std::uint64_t bytes) const {
  for (std::uint64_t done = 0; done < bytes; done += arena_->cell_bytes_, cell = arena_->cells_[cell].next) {
    const std::uint64_t part = std::min(arena_->cell_bytes_, bytes - done);
    if (auto ok = arena_->device_->upload(to + done, arena_->address(cell), part); !ok) return ok;
  }
  return {};
}

}  // namespace quire
