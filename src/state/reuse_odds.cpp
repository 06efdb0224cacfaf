#include "quire/state/reuse_odds.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "quire/state/eviction.h"

namespace quire {
namespace {

constexpr std::uint32_t kEventsBetween = 512;  // recalculations
constexpr double kFade = 0.98;
constexpr double kPriorLives = 16;
constexpr std::uint32_t kPriorBins = 80;  // the prior expects nothing beyond

// The share of the prior's wants that fall into a bin: ever fewer with age, in proportion to 1 / (age + 1).
double prior_share(std::uint32_t bin) {
  if (bin >= kPriorBins) return 0;
  const auto end = [](std::uint32_t b) { return static_cast<double>(ReuseOdds::first_age(b)) + 1; };
  return std::log(end(bin + 1) / end(bin)) / std::log(end(kPriorBins));
}

}  // namespace

double cost_of(const RecomputeCosts& costs, std::uint64_t begin, std::uint64_t end) {
  const auto tokens = static_cast<double>(end - begin);
  return tokens * (costs.token + costs.token_per_context * static_cast<double>(begin + end) / 2);
}

double value_per_byte(double rate, double cost, std::uint64_t bytes) {
  return rate * cost / static_cast<double>(std::max<std::uint64_t>(bytes, 1));
}

ReuseOdds::ReuseOdds(std::span<const double> priors, double leaning) : kinds_(priors.size()), leaning_(leaning) {
  for (std::size_t i = 0; i < priors.size(); ++i) kinds_[i].prior = priors[i];
  for (std::uint32_t b = 0; b < kBins; ++b) prior_shares_[b] = prior_share(b);
  for (std::uint32_t b = 0; b <= kBins; ++b) ends_[b] = static_cast<double>(first_age(b));
  for (Kind& kind : kinds_) recalculate(kind);
}

ReuseOdds ReuseOdds::for_blocks() {
  std::array<double, kBlockKinds> priors;
  priors.fill(0.25);
  return {priors, 1000};
}

// A state between two others is rarely resumed from: only where a later prompt leaves the path between them. One from
// which a sequence has started already is such a place: the end of a prefix that prompts share.
ReuseOdds ReuseOdds::for_checkpoints() {
  std::array<double, kCheckpointKinds> priors;
  for (std::uint8_t kind = 0; kind < kCheckpointKinds; ++kind) {
    const bool covered = (kind & checkpoint_kind(true, false, false)) != 0;
    const bool resumed = (kind & checkpoint_kind(false, false, true)) != 0;
    priors[kind] = covered && !resumed ? 0.02 : 0.5;
  }
  return {priors, 0};
}

std::uint32_t ReuseOdds::bin_of(std::uint64_t age) {
  if (age < 4) return static_cast<std::uint32_t>(age);
  const auto exponent = static_cast<std::uint32_t>(std::bit_width(age)) - 1;
  const auto quarter = static_cast<std::uint32_t>(age >> (exponent - 2)) & 3;
  return std::min(4 * (exponent - 1) + quarter, kBins - 1);
}

std::uint64_t ReuseOdds::first_age(std::uint32_t bin) {
  return bin < 4 ? bin : std::uint64_t{4 + bin % 4} << (bin / 4 - 1);
}

void ReuseOdds::began(std::uint32_t kind) {
  kinds_[kind].lives += 1;
  count();
}

void ReuseOdds::wanted(std::uint32_t kind, std::uint64_t age) {
  kinds_[kind].wanted[bin_of(age)] += 1;
  count();
}

void ReuseOdds::count() {
  if (++events_ % kEventsBetween != 0) return;
  Kind& kind = kinds_[next_];
  next_ = (next_ + 1) % static_cast<std::uint32_t>(kinds_.size());
  kind.lives *= kFade;
  for (double& wanted : kind.wanted) wanted *= kFade;
  recalculate(kind);
}

void ReuseOdds::recalculate(Kind& kind) const {
  // Its own experience, some of all kinds', and the prior.
  double all_lives = 0;
  Histogram wanted{};
  for (const Kind& other : kinds_) {
    all_lives += other.lives;
    for (std::uint32_t b = 0; b < kBins; ++b) wanted[b] += other.wanted[b];
  }
  const double weight = all_lives > 0 ? std::min(leaning_ / all_lives, 1.0) : 0;
  const double lives = kind.lives + weight * all_lives + kPriorLives;
  for (std::uint32_t b = 0; b < kBins; ++b) {
    wanted[b] = kind.wanted[b] + weight * wanted[b] + kPriorLives * kind.prior * prior_shares_[b];
  }
  double before = 0;  // wanted at a lower age
  for (std::uint32_t age = 0; age < kBins; ++age) {
    const double alive = std::max(lives - before, 1e-6);
    double wants = 0, kept = 0, best = 0;  // kept: ticks that content spends in the pool until it is wanted
    for (std::uint32_t b = age; b < kBins; ++b) {
      wants += wanted[b];
      kept += wanted[b] * ((ends_[b] + ends_[b + 1]) / 2 - ends_[age]);
      best = std::max(best, wants / (kept + std::max(alive - wants, 0.0) * (ends_[b + 1] - ends_[age])));
    }
    kind.rates[age] = best;
    before += wanted[age];
  }
}

}  // namespace quire
