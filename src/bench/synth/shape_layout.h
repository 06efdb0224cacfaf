// The state of a model of a shape: what a sequence of it takes in a pool, without writing the model.
//
// Who may call: anyone, from any thread; there is no state.
// What holds: it is the layout that the model has when it is written and loaded.
// How it fails: with one line, for a shape that check_shape() refuses or that a pool cannot keep.
#pragma once

#include "quire/base/error.h"
#include "quire/bench/synth/synth.h"
#include "quire/state/layout.h"

namespace quire::synth {

Result<StateLayout> layout_of(const Shape& shape, ElementType kv_type = ElementType::F16);

}  // namespace quire::synth
