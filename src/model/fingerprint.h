// What tells a model from another, for state that is saved and restored: two files with the same fingerprint give the
// same keys, values and states for the same tokens, on the same backend.
//
// It is quick: names, types and shapes of all tensors, the metadata that computing depends on, and samples of each
// tensor's bytes. A file that was changed on purpose is not found out by it.
#pragma once

#include <string_view>

#include "quire/gguf/gguf.h"
#include "quire/state/saved_sequence.h"

namespace quire::model {

// `arithmetic`: what else the bits depend on, e.g. the backend's kernels and the type of keys and values.
Fingerprint fingerprint(const gguf::File& file, std::string_view arithmetic);

}  // namespace quire::model
