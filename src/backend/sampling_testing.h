// The token that sampling.h and engine/sampler.h define, found the slow way: everything is sorted. What the host's
// sampler and the CUDA kernels pick is compared with it. C++20, for CUDA code.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "quire/backend/sampling.h"

namespace quire::sampling {

// `logits` are adjusted already: penalties, bias, and NaN where the mask allows no token.
inline std::optional<std::int32_t> token_by_definition(std::span<const float> logits, const Rule& rule,
                                                       std::uint64_t random) {
  std::vector<std::uint64_t> places;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (!std::isnan(logits[i])) places.push_back(place(logits[i], static_cast<std::int32_t>(i)));
  }
  if (places.empty()) return std::nullopt;
  std::sort(places.begin(), places.end(), std::greater<>());
  const float highest = logit_at(places[0]);
  if (rule.rate == 0 || std::isinf(highest)) return id_at(places[0]);

  const auto weight = [&](std::uint64_t one) { return weight_of(logit_at(one), highest, rule.rate); };
  const auto sum = [&] {
    std::uint64_t total = 0;
    for (const std::uint64_t one : places) total += weight(one);
    return total;
  };
  if (rule.top_k > 0 && places.size() > rule.top_k) places.resize(rule.top_k);
  if (rule.top_p < kAllOfIt) {
    const std::uint64_t enough = share(sum(), rule.top_p);
    std::uint64_t kept = weight(places[0]);
    std::size_t count = 1;
    while (kept < enough) kept += weight(places[count++]);
    places.resize(count);
  }
  std::erase_if(places, [&](std::uint64_t one) { return weight(one) < rule.min_weight; });

  std::sort(places.begin(), places.end(), [](std::uint64_t a, std::uint64_t b) { return id_at(a) < id_at(b); });
  std::uint64_t rest = drawn_place(random, sum());
  for (const std::uint64_t one : places) {
    if (rest < weight(one)) return id_at(one);
    rest -= weight(one);
  }
  return std::nullopt;  // never: the place is below the sum
}

}  // namespace quire::sampling
