#include "quire/engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "quire/base/check.h"

namespace quire::engine {

namespace {

// The finalizer of SplitMix64: every bit of the result depends on every bit of x.
std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

std::optional<Token> first_of(std::span<const float> logits) {
  std::optional<Token> best;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i])) continue;
    if (!best || logits[i] > logits[static_cast<std::size_t>(*best)]) best = static_cast<Token>(i);
  }
  return best;
}

}  // namespace

Result<void> check(const SamplerOptions& options) {
  // Written so that NaN is refused too.
  if (!(options.temperature >= 0 && options.temperature <= 100)) {
    return fail(fmt::format("a temperature of {} is not between 0 and 100", options.temperature));
  }
  if (!(options.top_p > 0 && options.top_p <= 1)) {
    return fail(fmt::format("a top-p of {} is not above 0 and at most 1", options.top_p));
  }
  if (!(options.min_p >= 0 && options.min_p <= 1)) {
    return fail(fmt::format("a min-p of {} is not between 0 and 1", options.min_p));
  }
  return {};
}

double random_number(std::uint64_t seed, std::uint64_t position) {
  constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15;
  // The seed is mixed first, so that seeds side by side are not one sequence, shifted.
  const std::uint64_t bits = mixed(mixed(seed + kGolden) + (position + 1) * kGolden);
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

Sampler::Sampler(const SamplerOptions& options, std::uint32_t vocabulary) : options_(options) {
  QUIRE_CHECK(check(options).has_value(), "options are checked where they come from");
  if (options.temperature > 0) candidates_.reserve(vocabulary);
}

bool Sampler::behind(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit < b.logit : a.id > b.id;
}

std::optional<Token> Sampler::sample(std::span<const float> logits, std::uint64_t position) {
  const std::optional<Token> first = first_of(logits);
  if (!first || options_.temperature == 0) return first;
  const double highest = logits[static_cast<std::size_t>(*first)];
  if (!std::isfinite(highest)) return first;

  QUIRE_CHECK(logits.size() <= candidates_.capacity(), "logits are those of the vocabulary");
  candidates_.clear();
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (!std::isnan(logits[i])) candidates_.push_back({logits[i], static_cast<Token>(i), 0});
  }
  if (options_.top_k > 0 && options_.top_k < candidates_.size()) {
    const auto end = candidates_.begin() + options_.top_k;
    std::nth_element(candidates_.begin(), end, candidates_.end(),
                     [](const Candidate& a, const Candidate& b) { return behind(b, a); });
    candidates_.erase(end, candidates_.end());
  }
  double sum = 0;
  for (Candidate& candidate : candidates_) {
    candidate.weight = std::exp((candidate.logit - highest) / options_.temperature);
    sum += candidate.weight;
  }

  // Of the order only the beginning is wanted, so the rest stays a heap: what was taken stands at the end, last first.
  std::make_heap(candidates_.begin(), candidates_.end(), behind);
  const double random = random_number(options_.seed, position);
  const bool all = options_.top_p >= 1 && options_.min_p <= 0;
  const double enough = all ? random * sum : options_.top_p * sum;
  double kept = 0;
  auto rest = candidates_.end();
  while (rest != candidates_.begin()) {
    // The first is always kept: its weight is 1.
    if (candidates_.front().weight < options_.min_p) break;
    kept += candidates_.front().weight;
    std::pop_heap(candidates_.begin(), rest, behind);
    --rest;
    if (all ? kept > enough : kept >= enough) break;
  }
  if (all) return rest->id;
  double passed = 0;
  for (auto candidate = candidates_.end(); candidate-- != rest;) {
    passed += candidate->weight;
    if (passed > random * kept) return candidate->id;
  }
  return rest->id;  // where rounding let the random number fall behind the last
}

}  // namespace quire::engine
