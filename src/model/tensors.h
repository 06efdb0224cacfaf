// Whether a file's tensors are those that its hyperparameters and its architecture's row speak of: all that are needed,
// in their shapes, and none besides. A tensor that nobody computes with would make every answer wrong, so it is
// refused.
//
// Who may call: anyone, from any thread; there is no state.
// What holds: nothing is allocated but names. A file with no tensors at all (a vocabulary on its own) passes, and so do
//   the tensors of what Quire can describe but not run: experts, factors of a rotary scaling (see constants.h).
// How it fails: with one line that names the file, the tensor, and what was expected of it.
#pragma once

#include "quire/base/error.h"
#include "quire/gguf/gguf.h"
#include "quire/model/hyperparameters.h"

namespace quire::model {

Result<void> check_tensors(const gguf::File& file, const Hyperparameters& model);

}  // namespace quire::model
