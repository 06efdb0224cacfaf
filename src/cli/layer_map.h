// Draws a model's layers for the terminal: one cell per layer, in order, and a legend below.
#pragma once

#include <span>
#include <string>

#include "quire/cli/style.h"
#include "quire/model/hyperparameters.h"

namespace quire::cli {

// Whole lines, indented by two columns. A row has 32, 16 or 8 cells: the most that fits the width.
std::string layer_map(std::span<const model::Layer> layers, const Style& style);

}  // namespace quire::cli
