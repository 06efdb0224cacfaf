// The fingerprint of a model, for state that is saved and restored. Two files with the same fingerprint give the same
// keys, values and states for the same tokens, on the same backend.
//
// It is quick: it covers the names, types and shapes of all tensors, the metadata that results depend on, and samples
// of each tensor's bytes. It does not detect a file that was changed on purpose.
#pragma once

#include <string_view>

#include "quire/gguf/gguf.h"
#include "quire/state/saved_sequence.h"

namespace quire::model {

// `arithmetic`: what else the bits depend on, e.g. the backend's kernels and the element type of the KV cache.
Fingerprint fingerprint(const gguf::File& file, std::string_view arithmetic);

}  // namespace quire::model
