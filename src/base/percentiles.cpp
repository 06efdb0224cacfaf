#include "quire/base/percentiles.h"

#include <algorithm>
#include <cstddef>

namespace quire {

Percentiles percentiles_of(std::vector<float>& values) {
  if (values.empty()) return {};
  const auto at = [&](std::size_t percent) {
    const std::size_t rank = (percent * values.size() + 99) / 100;
    const auto nth = values.begin() + static_cast<std::ptrdiff_t>(rank - 1);
    std::ranges::nth_element(values, nth);
    return static_cast<double>(*nth);
  };
  return {.p50 = at(50), .p95 = at(95), .p99 = at(99)};
}

}  // namespace quire
