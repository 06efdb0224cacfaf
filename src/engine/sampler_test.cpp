#include "quire/engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace quire::engine {
namespace {

// A sampler with its own scratch buffers.
class LoneSampler {
 public:
  LoneSampler(const SamplerOptions& options, std::uint32_t vocabulary)
      : sampler_(options, vocabulary), scratch_(vocabulary) {}
  void see_prompt(std::span<const Token> prompt) { sampler_.see_prompt(prompt); }
  void see(Token token) { sampler_.see(token); }
  std::optional<Token> sample(std::span<const float> logits, std::uint64_t position) {
    return sampler_.sample(logits, position, scratch_).token;
  }

 private:
  Sampler sampler_;
  SamplerScratch scratch_;
};

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

const SamplerOptions kPlain{.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0, .seed = 7};

std::map<Token, int> counts(const SamplerOptions& options, const std::vector<float>& logits, int draws) {
  LoneSampler sampler(options, static_cast<std::uint32_t>(logits.size()));
  std::map<Token, int> out;
  for (int i = 0; i < draws; ++i) ++out[sampler.sample(logits, static_cast<std::uint64_t>(i)).value()];
  return out;
}

std::set<Token> drawn(const SamplerOptions& options, const std::vector<float>& logits) {
  std::set<Token> out;
  for (const auto& [token, count] : counts(options, logits, 4000)) out.insert(token);
  return out;
}

std::vector<float> logs(std::vector<double> probabilities) {
  std::vector<float> out;
  for (const double p : probabilities) out.push_back(static_cast<float>(std::log(p)));
  return out;
}

TEST(Sampler, TemperatureZeroTakesTheHighestAndOfEqualOnesTheFirst) {
  LoneSampler sampler({.temperature = 0}, 5);
  EXPECT_EQ(sampler.sample(std::vector<float>{1, 5, 3, 5, 2}, 0), 1);
  EXPECT_EQ(sampler.sample(std::vector<float>{-3, -2, -9}, 1), 1);
}

TEST(Sampler, NaNIsNeverPickedAndNothingIsPickedWhereThereIsNothingElse) {
  for (const double temperature : {0.0, 1.0}) {
    SamplerOptions options = kPlain;
    options.temperature = temperature;
    LoneSampler sampler(options, 3);
    for (std::uint64_t i = 0; i < 100; ++i) EXPECT_NE(sampler.sample(std::vector<float>{kNan, 1, 2}, i), 0);
    EXPECT_EQ(sampler.sample(std::vector<float>{kNan, kNan, kNan}, 0), std::nullopt);
    EXPECT_EQ(sampler.sample(std::vector<float>{}, 0), std::nullopt);
  }
}

TEST(Sampler, InfinityIsACertainty) {
  LoneSampler sampler(kPlain, 3);
  for (std::uint64_t i = 0; i < 100; ++i) {
    EXPECT_EQ(sampler.sample(std::vector<float>{1, kInfinity, 2}, i), 1);
    EXPECT_EQ(sampler.sample(std::vector<float>{-kInfinity, -kInfinity, 2}, i), 2);
  }
}

TEST(Sampler, TokensComeAsOftenAsTheirProbabilitySays) {
  constexpr int kDraws = 100'000;
  const std::vector<double> probabilities = {0.1, 0.5, 0.15, 0.25};
  const auto got = counts(kPlain, logs(probabilities), kDraws);
  for (std::size_t i = 0; i < probabilities.size(); ++i) {
    const double expected = probabilities[i] * kDraws;
    EXPECT_NEAR(got.at(static_cast<Token>(i)), expected, 5 * std::sqrt(expected)) << i;
  }
}

TEST(Sampler, TemperatureSharpensAndFlattens) {
  SamplerOptions cold = kPlain, hot = kPlain;
  cold.temperature = 0.5;  // squares the probabilities
  hot.temperature = 100;
  const std::vector<float> logits = logs({0.25, 0.75});
  EXPECT_NEAR(counts(cold, logits, 100'000)[0], 10'000, 500);
  EXPECT_NEAR(counts(hot, logits, 100'000)[0], 49'700, 1'000);
}

TEST(Sampler, TopKKeepsTheLikeliestAndOfEqualOnesTheFirst) {
  SamplerOptions options = kPlain;
  options.top_k = 2;
  EXPECT_THAT(drawn(options, logs({0.1, 0.3, 0.2, 0.4})), testing::ElementsAre(1, 3));
  EXPECT_THAT(drawn(options, {1, 2, 2, 2}), testing::ElementsAre(1, 2));
  options.top_k = 1;
  EXPECT_THAT(drawn(options, {1, 2, 2, 2}), testing::ElementsAre(1));
  options.top_k = 100;
  EXPECT_EQ(drawn(options, {1, 2, 2, 2}).size(), 4u);
}

TEST(Sampler, TopPKeepsTheShortestBeginningThatHasIt) {
  SamplerOptions options = kPlain;
  const std::vector<float> logits = logs({0.1, 0.3, 0.2, 0.4});
  options.top_p = 0.65;
  EXPECT_THAT(drawn(options, logits), testing::ElementsAre(1, 3));
  options.top_p = 0.75;
  EXPECT_THAT(drawn(options, logits), testing::ElementsAre(1, 2, 3));
  for (const double none_but_the_first : {0.0001, 0.0}) {
    options.top_p = none_but_the_first;
    EXPECT_THAT(drawn(options, logits), testing::ElementsAre(3));
  }
}

TEST(Sampler, MinPKeepsWhatIsNotTooFarBelowTheLikeliest) {
  SamplerOptions options = kPlain;
  const std::vector<float> logits = logs({0.1, 0.3, 0.2, 0.4});
  options.min_p = 0.6;
  EXPECT_THAT(drawn(options, logits), testing::ElementsAre(1, 3));
  options.min_p = 1;
  EXPECT_THAT(drawn(options, logits), testing::ElementsAre(3));
}

TEST(Sampler, WhatIsKeptKeepsItsProportions) {
  SamplerOptions options = kPlain;
  options.top_p = 0.65;  // keeps 0.3 and 0.4
  const auto got = counts(options, logs({0.1, 0.3, 0.2, 0.4}), 70'000);
  EXPECT_NEAR(got.at(3), 40'000, 1'000);
}

// The definition in the header, computed the slow way.
Token by_definition(const SamplerOptions& options, const std::vector<float>& logits, std::uint64_t position) {
  std::vector<std::pair<double, Token>> order;
  for (std::size_t i = 0; i < logits.size(); ++i) order.push_back({logits[i], static_cast<Token>(i)});
  std::ranges::stable_sort(order, [](const auto& a, const auto& b) { return a.first > b.first; });
  if (options.top_k > 0 && order.size() > options.top_k) order.resize(options.top_k);
  const double highest = order[0].first;
  double sum = 0;
  for (auto& [weight, token] : order) sum += weight = std::exp((weight - highest) / options.temperature);
  double kept = 0;
  std::size_t count = 0;
  while (count < order.size() && (count == 0 || (kept < options.top_p * sum && order[count].first >= options.min_p))) {
    kept += order[count++].first;
  }
  const double target = random_number(options.seed, position) * kept;
  double passed = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if ((passed += order[i].first) > target) return order[i].second;
  }
  return order[count - 1].second;
}

TEST(Sampler, PicksWhatTheDefinitionPicks) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 3);
  for (int round = 0; round < 300; ++round) {
    std::vector<float> logits(1 + random() % 500);
    for (float& logit : logits) logit = std::round(normal(random) * 8) / 8;  // many are equal
    const SamplerOptions options{.temperature = 0.1 + static_cast<double>(random() % 20) / 10,
                                 .top_k = random() % 3 == 0 ? 0 : static_cast<std::uint32_t>(1 + random() % 100),
                                 .top_p = random() % 3 == 0 ? 1 : 0.05 + static_cast<double>(random() % 90) / 100,
                                 .min_p = random() % 3 == 0 ? 0 : static_cast<double>(random() % 50) / 100,
                                 .seed = random()};
    LoneSampler sampler(options, static_cast<std::uint32_t>(logits.size()));
    for (std::uint64_t position = 0; position < 20; ++position) {
      EXPECT_EQ(sampler.sample(logits, position), by_definition(options, logits, position)) << round;
    }
  }
}

TEST(Sampler, ADrawDependsOnSeedAndPositionAndNothingElse) {
  const std::vector<float> logits = logs({0.2, 0.2, 0.2, 0.2, 0.2});
  LoneSampler forwards(kPlain, 5), backwards(kPlain, 5);
  std::vector<Token> one, other;
  for (std::uint64_t i = 0; i < 100; ++i) one.push_back(*forwards.sample(logits, i));
  for (std::uint64_t i = 100; i-- > 0;) other.push_back(*backwards.sample(logits, i));
  std::ranges::reverse(other);
  EXPECT_EQ(one, other);
  SamplerOptions options = kPlain;
  options.seed = 8;
  LoneSampler seeded(options, 5);
  std::vector<Token> another;
  for (std::uint64_t i = 0; i < 100; ++i) another.push_back(*seeded.sample(logits, i));
  EXPECT_NE(one, another);
}

// With temperature 0 the picked token is the one with the highest adjusted logit.
TEST(Sampler, RepetitionPenaltyWeakensWhatPromptAndAnswerHave) {
  SamplerOptions options = kPlain;
  options.temperature = 0;
  options.repetition_penalty = 2;
  LoneSampler sampler(options, 4);
  const std::vector<float> logits{4, 3, -1, -1.5f};
  EXPECT_EQ(sampler.sample(logits, 0), 0);
  sampler.see_prompt(std::vector<Token>{0});  // 4 becomes 2
  EXPECT_EQ(sampler.sample(logits, 0), 1);
  sampler.see(1);  // 3 becomes 1.5
  sampler.see(1);  // how often does not matter
  EXPECT_EQ(sampler.sample(logits, 0), 0);
  const std::vector<float> below{-9, -9, -1, -1.5f};
  EXPECT_EQ(sampler.sample(below, 0), 2);
  sampler.see(2);  // -1 becomes -2
  EXPECT_EQ(sampler.sample(below, 0), 3);
}

TEST(Sampler, PresencePenaltyIsTakenOnceAndFrequencyPenaltyEachTimeAndThePromptDoesNotCount) {
  SamplerOptions options = kPlain;
  options.temperature = 0;
  options.presence_penalty = 1.5;
  const std::vector<float> logits{3, 2, 1};
  LoneSampler presence(options, 3);
  presence.see_prompt(std::vector<Token>{0});
  EXPECT_EQ(presence.sample(logits, 0), 0);
  for (int i = 0; i < 3; ++i) presence.see(0);  // 3 becomes 1.5, and stays
  EXPECT_EQ(presence.sample(logits, 0), 1);
  presence.see(1);  // 2 becomes 0.5
  EXPECT_EQ(presence.sample(logits, 0), 0);

  options.presence_penalty = 0;
  options.frequency_penalty = 0.6;
  LoneSampler frequency(options, 3);
  frequency.see(0);  // 2.4
  EXPECT_EQ(frequency.sample(logits, 0), 0);
  frequency.see(0);  // 1.8
  EXPECT_EQ(frequency.sample(logits, 0), 1);
}

TEST(Sampler, PenaltiesAreThoseOfATableByToken) {
  constexpr std::uint32_t kVocabulary = 200;
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    SamplerOptions options = kPlain;
    options.temperature = 0;
    options.repetition_penalty = round % 3 == 0 ? 1 : 1 + round % 5 * 0.25;
    options.presence_penalty = round % 2 * 0.75;
    options.frequency_penalty = round % 7 * 0.125;
    std::vector<float> logits(kVocabulary);
    for (float& logit : logits) logit = static_cast<float>(random() % 1000) / 100 - 5;
    std::vector<bool> in_prompt(kVocabulary);
    std::vector<int> times(kVocabulary);
    std::vector<Token> prompt;
    for (int i = 0; i < 100; ++i) prompt.push_back(static_cast<Token>(random() % kVocabulary));
    LoneSampler sampler(options, kVocabulary);
    sampler.see_prompt(prompt);
    for (const Token token : prompt) in_prompt[static_cast<std::size_t>(token)] = true;
    for (int i = 0; i < 150; ++i) {
      const auto token = static_cast<Token>(random() % kVocabulary);
      sampler.see(token);
      ++times[static_cast<std::size_t>(token)];
    }
    Token best = 0;
    float highest = -1e9f;
    for (std::size_t t = 0; t < kVocabulary; ++t) {
      double logit = logits[t];
      if (in_prompt[t] || times[t] > 0)
        logit = logit > 0 ? logit / options.repetition_penalty : logit * options.repetition_penalty;
      if (times[t] > 0) logit -= options.presence_penalty + times[t] * options.frequency_penalty;
      if (static_cast<float>(logit) > highest) {
        highest = static_cast<float>(logit);
        best = static_cast<Token>(t);
      }
    }
    EXPECT_EQ(sampler.sample(logits, 0), best) << round;
  }
}

TEST(Sampler, BiasIsAddedAndTokensBeyondTheVocabularyAreLeftAlone) {
  SamplerOptions options = kPlain;
  options.temperature = 0;
  options.logit_bias = {{2, 2.5f}, {0, -100.0f}, {77, 5.0f}};
  LoneSampler sampler(options, 3);
  EXPECT_EQ(sampler.sample(std::vector<float>{3, 2, 1}, 0), 2);
}

TEST(Sampler, RandomNumbersAreEvenlySpreadAlongPositionsAndSeeds) {
  constexpr int kBins = 20, kDraws = 200'000;
  for (const bool along_seeds : {false, true}) {
    std::vector<int> bins(kBins);
    double sum = 0, product = 0, before = 0;
    for (std::uint64_t i = 0; i < kDraws; ++i) {
      const double x = along_seeds ? random_number(i, 5) : random_number(5, i);
      ASSERT_GE(x, 0);
      ASSERT_LT(x, 1);
      ++bins[static_cast<std::size_t>(x * kBins)];
      sum += x;
      product += (x - 0.5) * (before - 0.5);
      before = x;
    }
    for (const int bin : bins) EXPECT_NEAR(bin, kDraws / kBins, 500);
    EXPECT_NEAR(sum / kDraws, 0.5, 0.003);
    EXPECT_NEAR(product / kDraws, 0, 0.001) << "neighbours are alike";
  }
}

TEST(Sampler, OptionsOutOfRangeAreRefusedByName) {
  const auto message = [](SamplerOptions options) {
    const auto ok = check(options);
    return ok ? std::string() : ok.error().message;
  };
  EXPECT_EQ(message({}), "");
  EXPECT_EQ(message({.temperature = 0, .top_k = 0, .top_p = 1, .min_p = 0}), "");
  EXPECT_THAT(message({.temperature = -1}), testing::HasSubstr("temperature of -1"));
  EXPECT_THAT(message({.temperature = std::numeric_limits<double>::quiet_NaN()}), testing::HasSubstr("temperature"));
  EXPECT_EQ(message({.top_p = 0}), "");
  EXPECT_THAT(message({.top_p = -0.5}), testing::HasSubstr("top-p of -0.5"));
  EXPECT_EQ(message({.logit_bias = std::vector<std::pair<Token, float>>(4097)}),
            "4097 logit biases are more than 4096");
  EXPECT_THAT(message({.top_p = 1.5}), testing::HasSubstr("top-p of 1.5"));
  EXPECT_THAT(message({.min_p = 2}), testing::HasSubstr("min-p of 2"));
}

}  // namespace
}  // namespace quire::engine
