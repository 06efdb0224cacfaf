// Loads the weights to the device: matrices in the backend's layout, vectors as f32. All weights go through here, so
// nothing above the backend points into the file.
//
// Who may call: one thread. The file must outlive the weights: a backend whose memory is host memory may use matrices
//   in place, in the mapped file.
// How it fails: with one line, if the device has no room or refuses.
#pragma once

#include <span>
#include <vector>

#include "quire/backend/backend.h"
#include "quire/base/error.h"
#include "quire/model/tensor_table.h"

namespace quire::model {

// A vector that is computed and not in the file: rotary frequencies, factors for keys.
struct HostVector {
  std::vector<float> values;
  Tensor* to = nullptr;
};

// What the file has for a destination, for blocks that compute vectors from their tensors.
class FileSources {
 public:
  FileSources(const gguf::File& file, std::span<const Binding> bindings) : file_(&file), bindings_(bindings) {}

  const FileMatrix* matrix(const Weight& to) const;           // null: the file has none
  Result<std::vector<float>> vector(const Tensor& to) const;  // as f32; empty: the file has none

 private:
  const gguf::File* file_;
  std::span<const Binding> bindings_;
};

// Loads all weights. Returns the device memory that they take, in one piece.
Result<DeviceBuffer> load_weights(Backend& backend, const gguf::File& file, std::span<const Binding> bindings,
                                  std::span<const HostVector> computed);

}  // namespace quire::model
