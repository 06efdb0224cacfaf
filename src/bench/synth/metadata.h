// The metadata of a shape: the keys that llama.cpp's converter writes for that architecture.
#pragma once

#include "quire/bench/synth/synth.h"
#include "quire/gguf/writer.h"

namespace quire::synth {

// general.architecture, and all keys that begin with it. The shape is one that check_shape() allows.
void add_hyperparameters(gguf::Writer& writer, const Shape& shape);

}  // namespace quire::synth
