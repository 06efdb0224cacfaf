// The recurrent state of one sequence: convolution state and SSM state of all layers in one run of bytes, and the
// position up to which they have processed tokens. Bytes and position change together or not at all.
// snapshot() and restore() wait for the device: when they return, the snapshot is filled, or free. If the device fails
// at that fence, the bytes of the state are undefined until it is reset or restored.
#pragma once

#include <cstdint>
#include <vector>

#include "quire/state/device.h"
#include "quire/state/ids.h"
#include "quire/state/layout.h"

namespace quire {

// A copy on the host, to keep, move or write to disk.
struct StateSnapshot {
  StateShape shape;
  std::uint32_t position = 0;
  std::vector<std::byte> bytes;  // shape.bytes()
};

class SequenceState {
 public:
  // A state with memory of its own.
  static PoolResult<SequenceState> create(Device& device, const StateShape& shape);
  // A state in memory of another owner: shape.bytes() bytes at `bytes`.
  SequenceState(Device& device, const StateShape& shape, std::byte* bytes)
      : device_(&device), shape_(shape), bytes_(bytes) {}

  PoolResult<void> reset();         // all bytes zero, position 0
  void forget() { position_ = 0; }  // the bytes are undefined from now on
  // The bytes now include so many more tokens. Refused beyond the capacity.
  PoolResult<void> advance(std::uint32_t tokens);
  PoolResult<StateSnapshot> snapshot() const;
  PoolResult<void> restore(const StateSnapshot& snapshot);  // refuses another shape
  PoolResult<void> copy_from(const SequenceState& other);   // refuses another shape

  std::uint32_t position() const { return position_; }
  std::uint32_t capacity() const { return shape_.capacity; }  // tokens; 0: no limit
  const StateShape& shape() const { return shape_; }
  std::byte* data() const { return bytes_; }
  StateView view() const {
    return {bytes_, shape_.layer_stride(), shape_.conv_stride(), shape_.num_layers, position_, shape_.type};
  }

 private:
  Device* device_;
  StateShape shape_;
  std::byte* bytes_;
  std::uint32_t position_ = 0;
  DeviceBuffer memory_;  // empty if another owner has the memory
};

// The state of a live sequence and the request it belongs to. The position is stored only
// in the state, so the two cannot disagree.
class SequenceSlot {
 public:
  explicit SequenceSlot(SequenceState state) : state_(std::move(state)) {}

  PoolResult<void> step(std::uint32_t tokens = 1) { return state_.advance(tokens); }
  PoolResult<void> reset() {
    if (auto ok = state_.reset(); !ok) return ok;
    request_ = 0;
    return {};
  }
  void bind(RequestId request) { request_ = request; }
  void forget() {
    state_.forget();
    request_ = 0;
  }

  RequestId request() const { return request_; }  // 0: none
  std::uint32_t position() const { return state_.position(); }
  SequenceState& state() { return state_; }
  const SequenceState& state() const { return state_; }

 private:
  SequenceState state_;
  RequestId request_ = 0;
};

}  // namespace quire
