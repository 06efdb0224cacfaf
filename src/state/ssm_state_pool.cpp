#include "quire/state/ssm_state_pool.h"

#include "quire/base/check.h"
#include "quire/state/out_of_memory.h"

namespace quire {
namespace {

constexpr std::uint32_t kDirty = UINT32_MAX;

PageId as_page(SlotId id) { return {id.index, id.generation}; }
SlotId as_slot(PageId id) { return {id.index, id.generation}; }

// The allocator calls slots pages: its InvalidPage becomes our InvalidSlot.
PoolError as_slot_error(PoolError error) {
  if (error.code == PoolError::Code::InvalidPage) error.code = PoolError::Code::InvalidSlot;
  return error;
}

}  // namespace

SsmStatePool::SsmStatePool(std::vector<SequenceSlot> slots, DeviceBuffer memory)
    : memory_(std::move(memory)),
      slots_(std::move(slots)),
      clean_since_(slots_.size(), 0),
      allocator_(static_cast<std::uint32_t>(slots_.size())) {}

SsmStatePool::SsmStatePool(Arena& arena, std::uint16_t class_id, const StateShape& shape)
    : arena_(&arena),
      allocator_(arena, class_id, static_cast<std::uint32_t>(arena.slab_bytes() / shape.bytes()), false) {
  const std::uint32_t cells = allocator_.cells_per_slab();
  slots_.reserve(allocator_.index_limit());
  for (std::uint32_t i = 0; i < allocator_.index_limit(); ++i) {
    std::byte* bytes = arena.base() + i / cells * arena.slab_bytes() + i % cells * shape.bytes();
    slots_.emplace_back(SequenceState(arena.device(), shape, bytes));
  }
  clean_since_.assign(slots_.size(), 0);  // a new arena is zeroed
}

template <typename Make>
PoolResult<SsmStatePool> SsmStatePool::build(std::uint32_t capacity, DeviceBuffer memory, const Make& make) {
  if (capacity == kNoIndex) return std::unexpected(PoolError::invalid_argument("more slots than can be counted"));
  return or_out_of_memory("the bookkeeping of a state pool", [&]() -> PoolResult<SsmStatePool> {
    std::vector<SequenceSlot> slots;
    slots.reserve(capacity);
    for (std::uint32_t i = 0; i < capacity; ++i) {
      PoolResult<SequenceState> state = make(i);
      if (!state) return std::unexpected(state.error());
      slots.emplace_back(std::move(*state));
      if (auto ok = slots.back().reset(); !ok) return std::unexpected(ok.error());
    }
    return SsmStatePool(std::move(slots), std::move(memory));
  });
}

PoolResult<SsmStatePool> SsmStatePool::create(std::uint32_t capacity, const Factory& factory) {
  return build(capacity, DeviceBuffer(), factory);
}

PoolResult<SsmStatePool> SsmStatePool::create(Device& device, std::uint32_t capacity, const StateShape& shape) {
  if (auto ok = shape.check(); !ok) return std::unexpected(ok.error());
  const auto bytes = checked_mul<std::uint64_t>(shape.bytes(), capacity);
  if (!bytes) return std::unexpected(PoolError::invalid_argument("more bytes than can be counted"));
  auto memory = DeviceBuffer::create(device, *bytes);
  if (!memory) return std::unexpected(memory.error());
  std::byte* base = memory->data();
  return build(capacity, std::move(*memory), [&](std::uint32_t i) -> PoolResult<SequenceState> {
    return SequenceState(device, shape, base + i * shape.bytes());
  });
}

PoolResult<void> SsmStatePool::clean(std::uint32_t index) {
  if (clean_since_[index] == tenancy(index)) return {};
  if (auto ok = slots_[index].reset(); !ok) return ok;
  clean_since_[index] = tenancy(index);
  return {};
}

void SsmStatePool::distrust() { std::fill(clean_since_.begin(), clean_since_.end(), kDirty); }

PoolResult<SlotId> SsmStatePool::alloc(RequestId request) {
  if (request == 0) return std::unexpected(PoolError::invalid_argument("request id 0 means none"));
  const auto id = allocator_.allocate();
  if (!id) return std::unexpected(PoolError::exhausted("slots", 1, 0));
  if (auto ok = clean(id->index); !ok) {
    (void)allocator_.free(*id);
    return std::unexpected(ok.error());
  }
  slots_[id->index].bind(request);
  clean_since_[id->index] = kDirty;
  return as_slot(*id);
}

PoolResult<SlotId> SsmStatePool::alloc_unbound() {
  const auto id = allocator_.allocate();
  if (!id) return std::unexpected(PoolError::exhausted("slots", 1, 0));
  clean_since_[id->index] = kDirty;
  return as_slot(*id);
}

PoolResult<SlotId> SsmStatePool::alloc_clean() {
  auto slot = alloc(RequestId{1});
  if (slot) slots_[slot->index].bind(0);
  return slot;
}

void SsmStatePool::abandon(SlotId id) {
  clean_since_[id.index] = kDirty;
  slots_[id.index].forget();
  const auto ok = allocator_.free(as_page(id));
  QUIRE_CHECK(ok.has_value(), "the slot was in use");
}

// If the device refuses to zero a slot, the slot is given back all the same and zeroed when it is next handed out.
void SsmStatePool::wipe(std::uint32_t index) {
  const bool zeroed = slots_[index].reset().has_value();
  clean_since_[index] = zeroed ? tenancy(index) : kDirty;
  if (!zeroed) slots_[index].forget();
}

PoolResult<void> SsmStatePool::release(std::uint32_t index) {
  if (index >= slots_.size() || allocator_.references_at(index) == 0) {
    return std::unexpected(PoolError::invalid_slot(index));
  }
  wipe(index);
  const auto ok = allocator_.free(allocator_.id_of(index));
  QUIRE_CHECK(ok.has_value(), "the slot was in use");
  return {};
}

PoolResult<void> SsmStatePool::release(SlotId id) {
  if (const auto live = allocator_.references(as_page(id)); !live) return std::unexpected(as_slot_error(live.error()));
  return release(id.index);
}

PoolResult<SequenceSlot*> SsmStatePool::slot(SlotId id) {
  if (const auto live = allocator_.references(as_page(id)); !live) return std::unexpected(as_slot_error(live.error()));
  return &slots_[id.index];
}

PoolResult<const SequenceSlot*> SsmStatePool::slot_at(std::uint32_t index) const {
  if (index >= slots_.size()) return std::unexpected(PoolError::invalid_slot(index));
  return &slots_[index];
}

PoolResult<StateSnapshot> SsmStatePool::snapshot(SlotId id) const {
  if (const auto live = allocator_.references(as_page(id)); !live) return std::unexpected(as_slot_error(live.error()));
  return slots_[id.index].state().snapshot();
}

PoolResult<void> SsmStatePool::restore(SlotId id, const StateSnapshot& snapshot) {
  const auto target = slot(id);
  return target ? (*target)->state().restore(snapshot) : std::unexpected(target.error());
}

PoolResult<void> SsmStatePool::copy(SlotId to, SlotId from) {
  const auto target = slot(to);
  if (!target) return std::unexpected(target.error());
  const auto source = slot(from);
  if (!source) return std::unexpected(source.error());
  if (to == from) return {};
  return (*target)->state().copy_from((*source)->state());
}

PoolResult<void> SsmStatePool::keep(SlotId id) {
  if (auto ok = allocator_.keep(as_page(id)); !ok) return std::unexpected(as_slot_error(ok.error()));
  slots_[id.index].bind(0);
  return allocator_.free(as_page(id));
}

PoolResult<void> SsmStatePool::drop(SlotId id) {
  const auto references = allocator_.references(as_page(id));
  if (!references) return std::unexpected(as_slot_error(references.error()));
  if (*references > 0) return std::unexpected(PoolError::invalid_slot(id.index));
  wipe(id.index);
  return allocator_.drop(as_page(id));
}

PoolResult<SlotId> SsmStatePool::move(SlotId from) {
  // The copy can fail, so it comes first: into the cell that the allocator hands out next.
  const std::uint32_t to = allocator_.next_free();
  QUIRE_CHECK(to != kNoIndex, "a move needs a free cell elsewhere");
  clean_since_[to] = kDirty;
  SequenceSlot& target = slots_[to];
  if (auto ok = target.state().copy_from(slots_[from.index].state()); !ok) return std::unexpected(ok.error());
  target.bind(slots_[from.index].request());
  wipe(from.index);
  return as_slot(allocator_.move(as_page(from)));
}

}  // namespace quire
