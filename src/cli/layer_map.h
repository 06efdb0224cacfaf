// A model's layers drawn in the terminal: one cell each, in order, and below them what the cells mean.
#pragma once

#include <span>
#include <string>

#include "quire/cli/style.h"
#include "quire/model/hyperparameters.h"

namespace quire::cli {

// Whole lines, indented by two columns; cells are broken into rows of 32, 16 or 8, whichever fits the width.
std::string layer_map(std::span<const model::Layer> layers, const Style& style);

}  // namespace quire::cli
