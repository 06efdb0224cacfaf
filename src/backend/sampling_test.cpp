#include "quire/backend/sampling.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace quire::sampling {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr double kHighest = static_cast<double>(kHighestWeight);

__extension__ using Wide = unsigned __int128;

TEST(Sampling, OrderedBitsAreInTheOrderOfTheLogits) {
  const std::vector<float> rising = {-kInfinity, -3e38f, -2, -1e-45f, 0, 1e-45f, 1, 1.0000001f, 3e38f, kInfinity};
  for (std::size_t i = 0; i + 1 < rising.size(); ++i) EXPECT_LT(ordered(rising[i]), ordered(rising[i + 1])) << i;
  EXPECT_EQ(ordered(-0.0f), ordered(0.0f));
  EXPECT_EQ(ordered(kNan), 0u);
  EXPECT_EQ(ordered(-kNan), 0u);
  for (const float logit : rising) {
    EXPECT_EQ(logit_at(place(logit, 77)), logit);
    EXPECT_EQ(id_at(place(logit, 77)), 77);
    EXPECT_GT(place(logit, 3), place(logit, 4)) << "of equal logits the first id comes first";
  }
}

TEST(Sampling, WeightsOfWholeOctavesArePowersOfTwo) {
  for (std::uint32_t octave = 0; octave < kWeightBits; ++octave) {
    EXPECT_EQ(weight_at(octave << kFractionBits), kHighestWeight >> octave);
  }
  EXPECT_EQ(weight_at(kDepths - 1), 1u);
  EXPECT_EQ(weight_at(kDepths), 0u);
}

// All fractions: one octave has every value that the polynomial can get.
TEST(Sampling, AWeightNeverRisesWithDepthAndIsOffByLessThan5eMinus9) {
  std::uint64_t before = weight_at(0);
  std::uint32_t rises = 0;
  double worst = 0;
  for (std::uint32_t depth = 1; depth <= 1U << kFractionBits; ++depth) {
    const std::uint64_t weight = weight_at(depth);
    if (weight > before) ++rises;
    before = weight;
    if (depth % 257 != 0) continue;
    const double exact = kHighest * std::exp2(-std::ldexp(depth, -static_cast<int>(kFractionBits)));
    worst = std::max(worst, std::abs(static_cast<double>(weight) / exact - 1));
  }
  EXPECT_EQ(rises, 0u);
  EXPECT_LT(worst, 5e-9);
}

TEST(Sampling, WeightsAgreeWithAPlainSoftmaxWithinTheStatedError) {
  std::mt19937 random(1);
  for (const double temperature : {0.01, 0.3, 0.8, 1.0, 2.5, 100.0}) {
    for (const float scale : {0.01f, 1.0f, 5.0f, 40.0f}) {
      std::normal_distribution<float> normal(scale, scale);
      std::vector<float> logits(3000);
      for (float& logit : logits) logit = normal(random);
      const float highest = *std::ranges::max_element(logits), rate = rate_of(temperature);
      for (const float logit : logits) {
        const double nats = (static_cast<double>(highest) - logit) / temperature;
        const double exact = kHighest * std::exp(-nats);
        const double error = std::abs(static_cast<double>(weight_of(logit, highest, rate)) - exact);
        EXPECT_LT(error, 1 + 1.5e-7 * kHighest);
        if (nats < 27) {
          EXPECT_LT(error, 1 + exact * (nats * 1.8e-7 + 3e-8)) << nats;
        }
      }
    }
  }
}

TEST(Sampling, SumsAreTheSameInEveryOrderAndDoNotOverflow) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal(0, 6);
  std::vector<std::uint64_t> weights(150'000);
  for (std::uint64_t& weight : weights) weight = weight_of(normal(random), 30, rate_of(1));
  const std::uint64_t sum = std::reduce(weights.begin(), weights.end());
  double forwards = 0, sorted = 0;
  for (const std::uint64_t weight : weights) forwards += static_cast<double>(weight) / 3;
  for (int round = 0; round < 5; ++round) {
    std::ranges::shuffle(weights, random);
    std::array<std::uint64_t, 7> parts{};
    for (std::size_t i = 0; i < weights.size(); ++i) parts[i % 7] += weights[i];
    EXPECT_EQ(std::reduce(parts.begin(), parts.end()), sum);
  }
  std::ranges::sort(weights);
  for (const std::uint64_t weight : weights) sorted += static_cast<double>(weight) / 3;
  EXPECT_NE(forwards, sorted) << "doubles would depend on the order";
  EXPECT_LT(Wide{kHighestWeight} << 20, Wide{1} << 61);
}

TEST(Sampling, InfinitiesAndNaNHaveAllTheWeightOrNone) {
  const float rate = rate_of(1);
  EXPECT_EQ(weight_of(kInfinity, kInfinity, rate), kHighestWeight);
  EXPECT_EQ(weight_of(1, kInfinity, rate), 0u);
  EXPECT_EQ(weight_of(-kInfinity, -kInfinity, rate), kHighestWeight);
  EXPECT_EQ(weight_of(-kInfinity, 1, rate), 0u);
  EXPECT_EQ(weight_of(kNan, 1, rate), 0u);
  EXPECT_EQ(weight_of(-3e38f, 3e38f, rate), 0u);
  for (const double temperature : {1e-300, 1e-40, 1e-6}) {
    EXPECT_EQ(weight_of(2, 2, rate_of(temperature)), kHighestWeight);
    EXPECT_EQ(weight_of(1.5f, 2, rate_of(temperature)), 0u);
  }
}

TEST(Sampling, SharesAndDrawsAreExact) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 100'000; ++i) {
    const std::uint64_t total = random() >> (3 + random() % 60), p = random() % (kAllOfIt + 1), bits = random();
    EXPECT_EQ(share(total, p), static_cast<std::uint64_t>((Wide{total} * p) >> 32));
    EXPECT_EQ(drawn_place(bits, total), static_cast<std::uint64_t>((Wide{bits} * total) >> 64));
  }
  EXPECT_EQ(share(std::uint64_t{1} << 60, kAllOfIt), std::uint64_t{1} << 60);
  EXPECT_EQ(drawn_place(~std::uint64_t{0}, 5), 4u);
  EXPECT_EQ(multiply_high(~std::uint64_t{0}, ~std::uint64_t{0}), ~std::uint64_t{0} - 1);
}

TEST(Sampling, RulesHaveTheirLimitsInIntegers) {
  const Rule all = rule_of(1, 0, 1, 0);
  EXPECT_EQ(all.top_p, kAllOfIt);
  EXPECT_EQ(all.min_weight, 0u);
  const Rule none = rule_of(0, 7, 0, 1);
  EXPECT_EQ(none.rate, 0);
  EXPECT_EQ(none.top_p, 0u);
  EXPECT_EQ(none.min_weight, kHighestWeight);
  EXPECT_EQ(rule_of(1, 0, 0.5, 0.25).top_p, kAllOfIt / 2);
  EXPECT_EQ(rule_of(1, 0, 0.5, 0.25).min_weight, kHighestWeight / 4);
  EXPECT_EQ(rule_of(1, 0, 0.5, 1e-300).min_weight, 1u) << "rounded up";
}

TEST(Sampling, PenaltiesAreTheSameFusedAndNotFused) {
  std::mt19937 random(4);
  std::normal_distribution<float> normal(0, 5);
  for (int i = 0; i < 10'000; ++i) {
    const Penalties penalties{std::abs(normal(random)) + 0.1f, normal(random), normal(random)};
    const float logit = normal(random);
    const std::uint32_t times = 1 + random() % 1000;
    const double divided = static_cast<double>(logit) / penalties.repetition;
    const double taken = std::fma(static_cast<double>(times), static_cast<double>(penalties.frequency),
                                  static_cast<double>(penalties.presence));
    const double fused = logit > 0
                             ? divided - taken
                             : std::fma(static_cast<double>(logit), static_cast<double>(penalties.repetition), -taken);
    EXPECT_EQ(penalized(logit, times, penalties), static_cast<float>(fused));
  }
  EXPECT_EQ(penalized(3, 0, {2, 100, 100}), 1.5f) << "only in the prompt";
  EXPECT_EQ(penalized(-3, 4, {2, 1, 0.5f}), -9.0f);
}

TEST(Sampling, RandomBitsAreEvenlySpreadAlongPositionsAndSeeds) {
  constexpr int kBins = 20, kDraws = 200'000;
  for (const bool along_seeds : {false, true}) {
    std::vector<int> bins(kBins);
    double sum = 0, product = 0, before = 0;
    for (std::uint64_t i = 0; i < kDraws; ++i) {
      const std::uint64_t bits = along_seeds ? random_bits(i, 5) : random_bits(5, i);
      ++bins[drawn_place(bits, kBins)];
      const double x = std::ldexp(static_cast<double>(bits >> 11), -53);
      sum += x;
      product += (x - 0.5) * (before - 0.5);
      before = x;
    }
    for (const int bin : bins) EXPECT_NEAR(bin, kDraws / kBins, 500);
    EXPECT_NEAR(sum / kDraws, 0.5, 0.003);
    EXPECT_NEAR(product / kDraws, 0, 0.001) << "neighbours are alike";
  }
}

}  // namespace
}  // namespace quire::sampling
