#include "quire/engine/sampler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/backend/sampling_testing.h"

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

// A row like a model's, or one of the odd ones: many equal logits, infinities, NaN.
std::vector<float> row_of_logits(std::mt19937& random, std::size_t most) {
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(1 + random() % most);
  const auto kind = random() % 4;
  for (float& logit : logits) logit = kind == 0 ? normal(random) : std::round(normal(random) * 8) / 8;
  if (kind == 2) {
    for (const float odd : {kNan, -kInfinity, -0.0f}) logits[random() % logits.size()] = odd;
  }
  if (kind == 3) std::ranges::fill(logits, logits[0]);
  return logits;
}

SamplerOptions any_options(std::mt19937& random, std::size_t vocabulary) {
  constexpr std::array kTemperatures = {0.0, 0.05, 0.7, 1.0, 2.0, 100.0};
  const auto most_k = static_cast<unsigned>(random() % 2 == 0 ? 60 : vocabulary + 5);
  return {.temperature = kTemperatures[random() % kTemperatures.size()],
          .top_k = random() % 3 == 0 ? 0 : static_cast<std::uint32_t>(1 + random() % most_k),
          .top_p = random() % 3 == 0 ? 1 : static_cast<double>(random() % 100) / 100,
          .min_p = random() % 3 == 0 ? 0 : static_cast<double>(random() % 50) / 100,
          .seed = random()};
}

TEST(Sampler, PicksWhatTheDefinitionPicks) {
  std::mt19937 random(1);
  for (int round = 0; round < 600; ++round) {
    const std::vector<float> logits = row_of_logits(random, round % 50 == 0 ? 20'000 : 700);
    const SamplerOptions options = any_options(random, logits.size());
    const sampling::Rule rule = sampling::rule_of(options.temperature, options.top_k, options.top_p, options.min_p);
    LoneSampler sampler(options, static_cast<std::uint32_t>(logits.size()));
    for (std::uint64_t position = 0; position < 20; ++position) {
      const std::uint64_t bits = sampling::random_bits(options.seed, position);
      EXPECT_EQ(sampler.sample(logits, position), sampling::token_by_definition(logits, rule, bits)) << round;
    }
  }
}

TEST(Sampler, DrawsPassAChiSquareTestAgainstAPlainSoftmax) {
  constexpr std::size_t kTokens = 50;
  constexpr int kDraws = 200'000;
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0, 1.5f);
  std::vector<float> logits(kTokens);
  for (float& logit : logits) logit = normal(random);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit / 0.9);
  SamplerOptions options = kPlain;
  options.temperature = 0.9;
  auto got = counts(options, logits, kDraws);
  double chi_square = 0;
  for (std::size_t i = 0; i < kTokens; ++i) {
    const double expected = kDraws * std::exp(logits[i] / 0.9) / sum;
    const double difference = got[static_cast<Token>(i)] - expected;
    chi_square += difference * difference / expected;
  }
  EXPECT_LT(chi_square, 85.4);  // 49 degrees of freedom: one row of draws in a thousand is above
  EXPECT_GT(chi_square, 23.9);  // and one is below
}

TEST(Sampler, OnlyTokensOfTheMaskArePicked) {
  std::mt19937 random(6);
  for (int round = 0; round < 200; ++round) {
    const std::vector<float> logits = row_of_logits(random, 500);
    std::vector<std::uint32_t> mask((logits.size() + 31) / 32);
    for (std::uint32_t& word : mask) word = static_cast<std::uint32_t>(random()) & 0x35B7D1E9U;
    std::vector<float> allowed = logits;
    for (std::size_t i = 0; i < logits.size(); ++i) {
      if ((mask[i / 32] & (1U << (i % 32))) == 0) allowed[i] = kNan;
    }
    const SamplerOptions options = any_options(random, logits.size());
    const auto vocabulary = static_cast<std::uint32_t>(logits.size());
    Sampler sampler(options, vocabulary);
    LoneSampler unmasked(options, vocabulary);
    SamplerScratch scratch(vocabulary);
    EXPECT_EQ(sampler.sample(logits, 1, scratch, mask).token, unmasked.sample(allowed, 1)) << round;
    std::ranges::fill(mask, 0);
    EXPECT_EQ(sampler.sample(logits, 1, scratch, mask).token, std::nullopt);
  }
}

// A device that follows job() and told(), here done the slow way.
Sampled as_a_device(Sampler& sampler, std::uint64_t position, const std::vector<float>& logits) {
  std::vector<std::uint64_t> places;
  return sampler.told(sampling::picked_by_definition(logits, sampler.job(position), places));
}

TEST(Sampler, ADeviceThatFollowsTheJobGivesTheSameAnswer) {
  constexpr std::uint32_t kVocabulary = 300;
  std::mt19937 random(8);
  std::normal_distribution<float> normal(0, 3);
  SamplerScratch scratch(kVocabulary);
  for (int round = 0; round < 100; ++round) {
    SamplerOptions options = any_options(random, kVocabulary);
    options.repetition_penalty = 1.1 + round % 3;
    options.frequency_penalty = 0.3 * (round % 2);
    options.logit_bias = {{70, 3.5f}, {5, 2.0f}, {70, -1.0f}};
    Sampler host(options, kVocabulary, round % 6 - 1), device(options, kVocabulary, round % 6 - 1);
    for (Sampler* const sampler : {&host, &device}) sampler->see_prompt(std::vector<Token>{9, 3, 9, 299});
    for (std::uint64_t position = 4; position < 24; ++position) {
      std::vector<float> logits(kVocabulary);
      for (float& logit : logits) logit = normal(random);
      const Sampled one = host.sample(logits, position, scratch), other = as_a_device(device, position, logits);
      ASSERT_EQ(one.token, other.token);
      EXPECT_EQ(one.logprob, other.logprob);
      EXPECT_TRUE(std::ranges::equal(one.alternatives, other.alternatives, [](const auto& a, const auto& b) {
        return a.token == b.token && a.logprob == b.logprob;
      }));
      EXPECT_EQ(one.alternatives.size(), static_cast<std::size_t>(std::max(round % 6 - 1, 0)));
      for (Sampler* const sampler : {&host, &device}) sampler->see(*one.token);
    }
  }
}

TEST(Sampler, LogProbabilitiesAreTheModelsOwn) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0, 4);
  std::vector<float> logits(2000);
  for (float& logit : logits) logit = normal(random);
  logits[7] = kNan;
  logits[8] = logits[9] = 20;
  SamplerOptions options = kPlain;
  options.presence_penalty = 1;
  options.logit_bias = {{3, 30.0f}};  // is picked
  Sampler sampler(options, 2000, 5);
  SamplerScratch scratch(2000);
  const Sampled sampled = sampler.sample(logits, 1, scratch);
  ASSERT_EQ(sampled.token, 3);
  double sum = 0;
  for (const float logit : logits) sum += std::isnan(logit) ? 0 : std::exp(static_cast<double>(logit));
  EXPECT_NEAR(sampled.logprob, logits[3] - std::log(sum), 1e-6);
  std::vector<Token> order(2000);
  std::iota(order.begin(), order.end(), 0);
  std::erase(order, 7);
  const auto logit = [&](Token token) { return logits[static_cast<std::size_t>(token)]; };
  std::ranges::stable_sort(order, std::greater(), logit);
  ASSERT_EQ(sampled.alternatives.size(), 5u);
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(sampled.alternatives[i].token, order[i]);
    EXPECT_NEAR(sampled.alternatives[i].logprob, logit(order[i]) - std::log(sum), 1e-6);
  }
}

TEST(Sampler, LogProbabilitiesAreNeverNaN) {
  Sampler sampler(kPlain, 3, 3);
  SamplerScratch scratch(3);
  const Sampled certain = sampler.sample(std::vector<float>{1, kInfinity, kNan}, 0, scratch);
  EXPECT_EQ(certain.token, 1);
  EXPECT_EQ(certain.logprob, 0);
  ASSERT_EQ(certain.alternatives.size(), 2u);
  EXPECT_EQ(certain.alternatives[1].logprob, -kInfinity);
  const Sampled even = sampler.sample(std::vector<float>{-kInfinity, -kInfinity}, 0, scratch);
  EXPECT_EQ(even.token, 0);
  EXPECT_NEAR(even.logprob, std::log(0.5), 1e-7);
}

TEST(Sampler, BothZerosAreEqual) {
  SamplerOptions options = kPlain;
  options.top_k = 1;
  EXPECT_THAT(drawn(options, {-1, -0.0f, 0}), testing::ElementsAre(1));
  EXPECT_THAT(drawn(options, {-1, 0, -0.0f}), testing::ElementsAre(1));
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

TEST(Sampler, BiasesOfOneTokenAreAddedUpFirst) {
  SamplerOptions options = kPlain;
  options.temperature = 0;
  // 1 + 1e8f - 1e8f would be 0, and token 1 would win.
  options.logit_bias = {{2, 0.25f}, {0, 1e8f}, {0, -1e8f}};
  LoneSampler sampler(options, 3);
  EXPECT_EQ(sampler.sample(std::vector<float>{1, 0.5f, 0.125f}, 0), 0);
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
