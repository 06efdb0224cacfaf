// A fixed number of recurrent states. All memory is taken at construction, in one of three ways: by a factory that is
// called once per slot with its index, for a model's state shape, or as one class of a shared arena.
//
// Access by index shows the physical slot, whoever has it. A free slot shows request 0 and position 0. Access by handle
// shows a live slot or returns an error, never another owner's slot. capacity = free + used at all times. The slot
// freed last is handed out next. A slot is zeroed before it is handed out.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "quire/state/block_allocator.h"
#include "quire/state/sequence_state.h"

namespace quire {

class SsmStatePool {
 public:
  using Factory = std::function<PoolResult<SequenceState>(std::uint32_t index)>;

  static PoolResult<SsmStatePool> create(std::uint32_t capacity, const Factory& factory);
  static PoolResult<SsmStatePool> create(Device& device, std::uint32_t capacity, const StateShape& shape);
  // States in a shared arena. The arena must outlive the pool and not move.
  SsmStatePool(Arena& arena, std::uint16_t class_id, const StateShape& shape);

  // Binds a free slot to a request. Request 0 means "none" and is refused.
  PoolResult<SlotId> alloc(RequestId request);
  // Zeroes convolution state, SSM state and position, and clears the request. An index that is free or out of range is
  // refused with InvalidSlot(index), a stale handle with StaleId.
  PoolResult<void> release(std::uint32_t index);
  PoolResult<void> release(SlotId id);

  PoolResult<SequenceSlot*> slot(SlotId id);
  PoolResult<const SequenceSlot*> slot_at(std::uint32_t index) const;
  PoolResult<StateSnapshot> snapshot(SlotId id) const;
  PoolResult<void> restore(SlotId id, const StateSnapshot& snapshot);
  PoolResult<void> copy(SlotId to, SlotId from);

  std::uint32_t capacity() const { return allocator_.total_count(); }
  std::uint32_t free_count() const { return allocator_.free_count(); }
  std::uint32_t used_count() const { return capacity() - free_count(); }

  BlockAllocator& allocator() { return allocator_; }
  const BlockAllocator& allocator() const { return allocator_; }
  SequenceSlot& at(std::uint32_t index) { return slots_[index]; }
  const SequenceSlot& at(std::uint32_t index) const { return slots_[index]; }
  SlotId handle(std::uint32_t index) const {
    const PageId id = allocator_.id_of(index);
    return {id.index, id.generation};
  }

  // --- for SequencePool

  // From now on no free cell counts as zeroed: each is zeroed again when it is handed out.
  void distrust();

  // A slot that belongs to no request. Not zeroed, since it is about to be overwritten.
  PoolResult<SlotId> alloc_unbound();
  // The same, zeroed.
  PoolResult<SlotId> alloc_clean();
  // Gives a slot back without zeroing it: that is done when it is next handed out.
  void abandon(SlotId id);
  // Turns a slot into a checkpoint: it has no holder, but its content is kept (a
  // cached cell of the allocator) until drop().
  PoolResult<void> keep(SlotId id);
  PoolResult<void> drop(SlotId id);
  // Moves a live slot and its bytes to another cell; see BlockAllocator::move.
  PoolResult<SlotId> move(SlotId from);

 private:
  SsmStatePool(std::vector<SequenceSlot> slots, DeviceBuffer memory);
  template <typename Make>
  static PoolResult<SsmStatePool> build(std::uint32_t capacity, DeviceBuffer memory, const Make& make);
  PoolResult<void> clean(std::uint32_t index);
  void wipe(std::uint32_t index);
  std::uint32_t tenancy(std::uint32_t index) const {
    return arena_ == nullptr ? 0 : arena_->tenancy(index / allocator_.cells_per_slab());
  }

  Arena* arena_ = nullptr;
  DeviceBuffer memory_;                     // of a pool created for a shape
  std::vector<SequenceSlot> slots_;         // by index, one per cell
  std::vector<std::uint32_t> clean_since_;  // by index: the slab's tenancy when the cell was last known to be zero
  BlockAllocator allocator_;
};

}  // namespace quire
