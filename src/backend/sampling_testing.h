// The token that sampling.h and engine/sampler.h define, found the slow way: everything is sorted. What the host's
// sampler and the CUDA kernels pick is compared with it. C++20, for CUDA code.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "quire/backend/sampling.h"
#include "quire/backend/sampling_job.h"

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

// The whole answer to a job. `places` gets the memory of Picked::places.
inline Picked picked_by_definition(std::span<const float> logits, const Job& job, std::vector<std::uint64_t>& places) {
  std::vector<float> own(logits.begin(), logits.end());
  for (const auto& [token, times] : job.seen) {
    float& logit = own[static_cast<std::size_t>(token)];
    logit = penalized(logit, times, job.penalties);
  }
  for (const auto& [token, bias] : job.biases) own[static_cast<std::size_t>(token)] += bias;
  for (std::size_t i = 0; i < own.size() && !job.mask.empty(); ++i) {
    if ((job.mask[i / 32] & (1U << (i % 32))) == 0) own[i] = std::numeric_limits<float>::quiet_NaN();
  }
  const std::optional<std::int32_t> token = token_by_definition(own, job.rule, job.random);
  if (!token) return {};
  Picked picked{.token = *token, .logit = logits[static_cast<std::size_t>(*token)]};
  if (job.logprobs < 0) return picked;
  places.clear();
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (!std::isnan(logits[i])) places.push_back(place(logits[i], static_cast<std::int32_t>(i)));
  }
  std::sort(places.begin(), places.end(), std::greater<>());
  picked.sum.highest = logit_at(places[0]);
  for (const float logit : logits) picked.sum.total += weight_of(logit, picked.sum.highest, rate_of(1));
  places.resize(std::min(places.size(), static_cast<std::size_t>(job.logprobs)));
  picked.places = places;
  return picked;
}

}  // namespace quire::sampling
