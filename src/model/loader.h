// Weights on their way to the device: matrices in the order that the backend wants, vectors as f32. Everything a model
// computes with goes through here, so nothing above the backend points into the file.
//
// Who may call: one thread. The file must outlive the weights: a backend whose memory is the host's may use matrices
//   where the file has them.
// How it fails: with one line, if the device has no room or refuses.
#pragma once

#include <span>
#include <vector>

#include "quire/backend/backend.h"
#include "quire/base/error.h"
#include "quire/model/tensor_table.h"

namespace quire::model {

// A vector that is computed, not read: rotary frequencies.
struct HostVector {
  std::span<const float> values;
  Tensor* to = nullptr;
};

// All memory that the weights take on the device, in one piece.
Result<DeviceBuffer> load_weights(Backend& backend, const gguf::File& file, std::span<const Binding> bindings,
                                  std::span<const HostVector> computed);

}  // namespace quire::model
