#include "quire/model/rope_scaling.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace quire::model {

void apply_yarn(std::span<float> frequencies, const Yarn& yarn) {
  const double dims = 2.0 * static_cast<double>(frequencies.size());
  // The pair that turns this many times within the original context.
  const auto pair_of = [&](double turns) {
    return dims * std::log(yarn.original_length / (turns * 2 * std::numbers::pi)) / (2 * std::log(double{yarn.base}));
  };
  double first = pair_of(yarn.beta_fast), last = pair_of(yarn.beta_slow);
  if (yarn.whole_pairs) {
    first = std::floor(first);
    last = std::ceil(last);
  }
  first = std::max(first, 0.0);
  last = std::min(last, dims - 1);
  const double width = std::max(last - first, 0.001);
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - first) / width, 0.0, 1.0);
    const double kept = (1 - ramp) * yarn.extrapolation;
    const double own = frequencies[i];
    frequencies[i] = static_cast<float>(own / yarn.factor * (1 - kept) + own * kept);
  }
}

float yarn_magnitude(float factor, float multiplier) {
  return factor <= 1 ? 1.0f : static_cast<float>(1 + 0.1 * multiplier * std::log(double{factor}));
}

}  // namespace quire::model
