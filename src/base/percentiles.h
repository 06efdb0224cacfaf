// Percentiles of measurements: the smallest measured value that so many percent of the values do not exceed.
#pragma once

#include <vector>

namespace quire {

struct Percentiles {
  double p50 = 0, p95 = 0, p99 = 0;
};
Percentiles percentiles_of(std::vector<float>& values);  // reorders them; zeros if there are none

}  // namespace quire
