// Draws curves for the terminal: each is a list of points from left to right, joined by lines.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "quire/cli/style.h"

namespace quire::cli {

struct Curve {
  std::string name;
  std::vector<std::pair<double, double>> points;  // x, y; in the order of x
};

// A mark below the plot, at its x.
struct Mark {
  double x = 0;
  std::string text;
};

// Whole lines: the plot with percent on the left, the marks below, and a legend. y is from 0 to `top`. The marks' first
// and last x are the edges.
std::string plot(std::span<const Curve> curves, std::span<const Mark> marks, double top, const Style& style);

}  // namespace quire::cli
