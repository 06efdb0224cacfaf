// The named shapes, by kind. The numbers come from the published configuration (config.json) of the repository on
// Hugging Face that a comment names. The totals in shapes_test.cpp check them.
#pragma once

#include <vector>

#include "quire/bench/synth/synth.h"

namespace quire::synth {

std::vector<Shape> dense_shapes();      // attention and a feed-forward block in every layer
std::vector<Shape> recurrent_shapes();  // with recurrent layers, alone or among others; no experts
std::vector<Shape> expert_shapes();

}  // namespace quire::synth
