// Whether a file's tensors are those that its hyperparameters speak of: the ones that every layer of a kind has, and
// their shapes. What a particular architecture has besides is not looked at here.
//
// Who may call: anyone, from any thread; there is no state.
// What holds: nothing is allocated but names. A file with no tensors at all (a vocabulary on its own) passes.
// How it fails: with one line that names the file, the tensor, and what was expected of it.
#pragma once

#include "quire/base/error.h"
#include "quire/gguf/gguf.h"
#include "quire/model/hyperparameters.h"

namespace quire::model {

Result<void> check_tensors(const gguf::File& file, const Hyperparameters& model);

}  // namespace quire::model
