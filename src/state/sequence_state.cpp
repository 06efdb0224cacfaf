#include "quire/state/sequence_state.h"

#include "quire/state/out_of_memory.h"

namespace quire {

PoolResult<SequenceState> SequenceState::create(Device& device, const StateShape& shape) {
  if (auto ok = shape.check(); !ok) return std::unexpected(ok.error());
  auto memory = DeviceBuffer::create(device, shape.bytes());
  if (!memory) return std::unexpected(memory.error());
  SequenceState state(device, shape, memory->data());
  state.memory_ = std::move(*memory);
  return state;
}

PoolResult<void> SequenceState::reset() {
  if (auto ok = device_->zero(bytes_, shape_.bytes()); !ok) return ok;
  position_ = 0;
  return {};
}

PoolResult<void> SequenceState::advance(std::uint32_t tokens) {
  const std::uint64_t position = std::uint64_t{position_} + tokens;
  const std::uint64_t most = shape_.capacity == 0 ? UINT32_MAX : shape_.capacity;
  if (position > most) return std::unexpected(PoolError::too_long("tokens", position, most));
  position_ = static_cast<std::uint32_t>(position);
  return {};
}

PoolResult<StateSnapshot> SequenceState::snapshot() const {
  auto room = or_out_of_memory("a snapshot", [&]() -> PoolResult<StateSnapshot> {
    return StateSnapshot{shape_, position_, std::vector<std::byte>(shape_.bytes())};
  });
  if (!room) return room;
  StateSnapshot result = std::move(*room);
  if (auto ok = device_->download(result.bytes.data(), bytes_, result.bytes.size()); !ok) {
    return std::unexpected(ok.error());
  }
  if (auto ok = device_->fence(); !ok) return std::unexpected(ok.error());
  return result;
}

PoolResult<void> SequenceState::restore(const StateSnapshot& snapshot) {
  if (!shape_.same_bytes(snapshot.shape)) {
    return std::unexpected(PoolError::shape_mismatch("a snapshot", shape_.bytes(), snapshot.shape.bytes()));
  }
  if (snapshot.bytes.size() != shape_.bytes()) {
    return std::unexpected(PoolError::shape_mismatch("a snapshot", shape_.bytes(), snapshot.bytes.size()));
  }
  if (shape_.capacity != 0 && snapshot.position > shape_.capacity) {
    return std::unexpected(PoolError::too_long("tokens", snapshot.position, shape_.capacity));
  }
  if (auto ok = device_->upload(bytes_, snapshot.bytes.data(), snapshot.bytes.size()); !ok) return ok;
  if (auto ok = device_->fence(); !ok) return ok;
  position_ = snapshot.position;
  return {};
}

PoolResult<void> SequenceState::copy_from(const SequenceState& other) {
  if (!shape_.same_bytes(other.shape_)) {
    return std::unexpected(PoolError::shape_mismatch("a state", shape_.bytes(), other.shape_.bytes()));
  }
  if (shape_.capacity != 0 && other.position_ > shape_.capacity) {
    return std::unexpected(PoolError::too_long("tokens", other.position_, shape_.capacity));
  }
  if (auto ok = device_->copy(bytes_, other.bytes_, shape_.bytes()); !ok) return ok;
  position_ = other.position_;
  return {};
}

}  // namespace quire
