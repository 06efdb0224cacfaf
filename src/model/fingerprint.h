// The fingerprint of a model, for state that is saved and restored. Two files with the same fingerprint give the same
// keys, values and states for the same tokens, on the same backend.
//
// It covers the names, types, shapes and bytes of all tensors and the metadata that results depend on. So it reads the
// whole file, with several threads. State that outlives a process is found by it: two models that differ in a single
// weight must not share a page. It does not detect a file that was changed on purpose.
#pragma once

#include <string_view>

#include "quire/gguf/gguf.h"
#include "quire/state/saved_sequence.h"

namespace quire::model {

// `arithmetic`: what else the bits depend on, e.g. the backend's kernels and the element type of the KV cache.
Fingerprint fingerprint(const gguf::File& file, std::string_view arithmetic);

}  // namespace quire::model
