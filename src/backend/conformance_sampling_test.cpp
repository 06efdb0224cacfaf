// Sampling: the same logits give the same answer on every device, to the last bit. The definition is in
// sampling_testing.h.
#include <array>
#include <random>

#include "quire/backend/conformance_batches_testing.h"
#include "quire/backend/sampling_testing.h"
#include "quire/base/counted_heap_testing.h"

namespace quire::conformance {
namespace {

using sampling::Job;
using sampling::Picked;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr const sampling::Limits& kLimits = kSizes.sampling;

// A job and what it points to.
struct OwnJob {
  Job job;
  std::vector<sampling::Seen> seen;
  std::vector<std::pair<std::int32_t, float>> biases;
  std::vector<std::uint32_t> mask;

  Job with_lists() const {
    Job all = job;
    all.seen = seen;
    all.biases = biases;
    all.mask = mask;
    return all;
  }
};

std::vector<std::uint32_t> empty_mask(std::uint32_t vocabulary) {
  return std::vector<std::uint32_t>((vocabulary + 31) / 32);
}
void allow(std::vector<std::uint32_t>& mask, std::uint32_t token) { mask[token / 32] |= 1U << (token % 32); }

// Any options, and at most `listed` tokens in its lists.
OwnJob any_job(std::mt19937& random, std::uint32_t rows, std::uint32_t vocabulary, std::uint32_t listed) {
  const auto one_of = [&]<typename T, std::size_t N>(const std::array<T, N>& values) { return values[random() % N]; };
  OwnJob own;
  own.job.row = static_cast<std::uint32_t>(random() % rows);
  const std::uint32_t top_k = one_of(std::array{0U, 1U, 2U, 40U, 1500U, vocabulary});
  own.job.rule = sampling::rule_of(one_of(std::array{0.0, 0.01, 0.8, 1.0, 30.0}), top_k,
                                   one_of(std::array{1.0, 0.0, 0.3, 0.95, 0.999}), one_of(std::array{0.0, 0.05, 1.0}));
  own.job.random = std::uint64_t{random()} << 32 | random();
  own.job.logprobs = one_of(std::array{-1, -1, 0, 1, 5, 20});
  if (random() % 2 == 0) {
    own.job.penalties = {one_of(std::array{1.0f, 1.3f}), one_of(std::array{0.0f, 0.7f}),
                         one_of(std::array{0.0f, -0.2f})};
    const std::uint32_t apart = 1 + vocabulary * 2 / (listed + 1);
    for (std::uint32_t token = static_cast<std::uint32_t>(random() % apart); token < vocabulary;
         token += 1 + static_cast<std::uint32_t>(random() % (2 * apart))) {
      if (own.seen.size() < listed / 2)
        own.seen.push_back({static_cast<std::int32_t>(token), static_cast<std::uint32_t>(random() % 3)});
    }
  }
  if (random() % 3 == 0) {
    constexpr std::array kBiases{2.5f, -3.0f, -kInfinity, kInfinity, 100.0f};
    for (std::uint32_t i = 0; i < std::min(listed / 2, 5U) && i < vocabulary; ++i) {
      own.biases.push_back({static_cast<std::int32_t>(i * (vocabulary / 5)), one_of(kBiases)});
    }
    std::ranges::sort(own.biases);
    const auto again = std::ranges::unique(own.biases, {}, [](const auto& bias) { return bias.first; });
    own.biases.erase(again.begin(), again.end());
  }
  if (random() % 3 == 0) {
    own.mask = empty_mask(vocabulary);
    for (std::uint32_t& word : own.mask) word = static_cast<std::uint32_t>(random() & random());
  }
  return own;
}

// Logits with ties and now and then what is no number.
Matrix any_logits(std::mt19937& random, std::uint32_t rows, std::uint32_t vocabulary) {
  Matrix logits(rows, vocabulary);
  for (std::uint32_t i = 0; i < rows; ++i) {
    std::normal_distribution<float> normal(0, i % 3 == 0 ? 0.5f : 6.0f);
    for (std::uint32_t k = 0; k < vocabulary; ++k) {
      float& logit = logits.values[std::size_t{i} * vocabulary + k];
      logit = normal(random);
      if (i % 2 == 0) logit = std::round(logit * 4) / 4;
      if (i % 5 == 1 && random() % 16 == 0) logit = poison();
      if (i % 5 == 2 && random() % 16 == 0) logit = -kInfinity;
    }
    if (i % 7 == 6) logits.values[std::size_t{i} * vocabulary + random() % vocabulary] = kInfinity;
  }
  return logits;
}

class ConformanceOfSampling : public Conformance {
 protected:
  // Samples in a step of its own. The answers stay until the next one.
  std::span<const Picked> sample(Tensor logits, std::span<const Job> jobs) {
    std::span<const Picked> picked;
    step(rows_alone(1), [&] { picked = backend().sample(logits, jobs); });
    return picked;
  }

  static void expect_the_definition(const Picked& got, std::span<const float> logits, const Job& job) {
    std::vector<std::uint64_t> places;
    const Picked right = sampling::picked_by_definition(logits, job, places);
    ASSERT_EQ(got.token, right.token);
    EXPECT_TRUE(same_bits({&got.logit, 1}, {&right.logit, 1})) << got.logit << ", expected " << right.logit;
    EXPECT_EQ(got.sum.highest, right.sum.highest);
    EXPECT_EQ(got.sum.total, right.sum.total);
    EXPECT_TRUE(std::ranges::equal(got.places, right.places)) << got.places.size() << " of " << right.places.size();
  }
};

TEST_P(ConformanceOfSampling, EveryJobGetsTheAnswerOfTheDefinitionAndInItsPlace) {
  std::mt19937 random(15);
  for (const std::uint32_t vocabulary : {1U, 7U, 33U, 700U, 4096U, 4097U, kLimits.vocabulary}) {
    for (std::uint32_t round = 0; round < repetitions(6); ++round) {
      const std::uint32_t rows = 1 + static_cast<std::uint32_t>(random() % 12),
                          count = round == 0 ? kLimits.jobs : 1 + round * 5;
      const Matrix logits = any_logits(random, rows, vocabulary);
      const Tensor on_device = tensors().put_within(logits, round % 2 * 3, round % 2 * 2);
      std::vector<OwnJob> own;
      std::vector<Job> jobs;
      for (std::uint32_t i = 0; i < count; ++i)
        own.push_back(any_job(random, rows, vocabulary, kLimits.listed / kLimits.jobs));
      for (const OwnJob& one : own) jobs.push_back(one.with_lists());
      const std::span<const Picked> picked = sample(on_device, jobs);
      ASSERT_EQ(picked.size(), jobs.size());
      for (std::uint32_t i = 0; i < count; ++i) {
        SCOPED_TRACE(::testing::Message()
                     << "job " << i << " of " << count << ", " << vocabulary << " tokens, round " << round);
        expect_the_definition(picked[i], logits.row(jobs[i].row), jobs[i]);
      }
      EXPECT_TRUE(same_bits(tensors().get(on_device), logits)) << "sampling changes no logits";
    }
  }
}

TEST_P(ConformanceOfSampling, TheChoicesOfARequestDrawFromOneRow) {
  Matrix logits(3, 50, poison());
  std::fill_n(logits.values.begin() + 50, 50, 1.0f);
  std::vector<Job> jobs(kLimits.jobs);
  for (std::uint32_t i = 0; i < jobs.size(); ++i) {
    jobs[i] = {.row = 1, .rule = sampling::rule_of(1, 0, 1, 0), .random = sampling::random_bits(i, 7)};
  }
  std::vector<bool> drawn(50);
  const auto picked = sample(tensors().put(logits), jobs);
  ASSERT_EQ(picked.size(), jobs.size());
  for (std::uint32_t i = 0; i < jobs.size(); ++i) {
    expect_the_definition(picked[i], logits.row(1), jobs[i]);
    drawn[static_cast<std::size_t>(picked[i].token)] = true;
  }
  EXPECT_GT(std::ranges::count(drawn, true), 20) << "fifty tokens are equally likely";
}

TEST_P(ConformanceOfSampling, AnAnswerDoesNotDependOnOtherJobs) {
  std::mt19937 random(3);
  const std::uint32_t rows = 8, vocabulary = 5000;
  const Matrix logits = any_logits(random, rows, vocabulary);
  const Tensor on_device = tensors().put(logits);
  std::vector<OwnJob> own;
  std::vector<Job> jobs;
  for (std::uint32_t i = 0; i < 20; ++i) own.push_back(any_job(random, rows, vocabulary, 64));
  for (const OwnJob& one : own) jobs.push_back(one.with_lists());
  std::vector<std::int32_t> together;
  for (const Picked& one : sample(on_device, jobs)) together.push_back(one.token);
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    EXPECT_EQ(sample(on_device, {&jobs[i], 1})[0].token, together[i]) << i;
  }
}

TEST_P(ConformanceOfSampling, OnlyTokensOfTheMaskArePicked) {
  const std::uint32_t vocabulary = 4500;
  const Matrix logits = random_matrix(2, vocabulary, 1);
  const Tensor on_device = tensors().put(logits);
  std::vector<std::uint32_t> one = empty_mask(vocabulary), three = one, none = one;
  allow(one, 4203);
  for (const std::uint32_t token : {0U, 31U, 4499U}) allow(three, token);
  const sampling::Rule any = sampling::rule_of(5, 0, 1, 0), greedy = sampling::rule_of(0, 0, 1, 0);
  std::vector<Job> jobs = {{.row = 0, .rule = any, .mask = one, .logprobs = 2},
                           {.row = 1, .rule = greedy, .mask = one},
                           {.row = 0, .rule = any, .mask = none, .logprobs = 2},
                           {.row = 0, .rule = greedy}};
  for (std::uint64_t i = 0; i < 40; ++i) {
    jobs.push_back({.row = 1, .rule = any, .random = sampling::random_bits(1, i), .mask = three});
  }
  const auto picked = sample(on_device, jobs);
  ASSERT_EQ(picked.size(), jobs.size());
  EXPECT_EQ(picked[0].token, 4203);
  EXPECT_EQ(picked[1].token, 4203);
  EXPECT_EQ(picked[2].token, -1) << "no token is allowed";
  std::vector<std::uint32_t> seen(vocabulary);
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    SCOPED_TRACE(i);
    expect_the_definition(picked[i], logits.row(jobs[i].row), jobs[i]);
    if (i >= 4) ++seen[static_cast<std::size_t>(picked[i].token)];
  }
  EXPECT_EQ(seen[0] + seen[31] + seen[4499], 40u);
  EXPECT_TRUE(seen[0] > 0 && seen[31] > 0 && seen[4499] > 0) << "each of them is likely enough";
}

TEST_P(ConformanceOfSampling, ARowWithoutNumbersHasNoToken) {
  Matrix logits(2, 300, poison());
  logits.values[450] = 1;
  const std::vector<Job> jobs = {{.row = 0, .rule = sampling::rule_of(1, 0, 1, 0), .logprobs = 3},
                                 {.row = 1, .rule = sampling::rule_of(1, 0, 1, 0), .logprobs = 3}};
  const auto picked = sample(tensors().put(logits), jobs);
  ASSERT_EQ(picked.size(), 2u);
  EXPECT_EQ(picked[0].token, -1);
  EXPECT_TRUE(picked[0].places.empty());
  EXPECT_EQ(picked[1].token, 150);
  EXPECT_EQ(picked[1].places.size(), 1u) << "fewer tokens than were asked for";
}

TEST_P(ConformanceOfSampling, NoJobsAreNoWork) {
  const Tensor logits = tensors().put(random_matrix(2, 30, 1));
  EXPECT_TRUE(sample(logits, {}).empty());
  step(rows_alone(1), [] {});
  const Job job{.row = 1, .rule = sampling::rule_of(0, 0, 1, 0)};
  EXPECT_EQ(sample(logits, {&job, 1}).size(), 1u);
}

// The same steps again and again, as a decode has them.
TEST_P(ConformanceOfSampling, SamplingComesAfterTheOperationsOfItsStep) {
  Matrix values(2, 30, 0.0f);
  values.values[4] = 3;   // row 0: the highest
  values.values[7] = -5;  // row 0: the lowest
  values.values[30 + 9] = 1;
  const Tensor logits = tensors().put(values);
  const std::vector<Job> jobs = {{.row = 0, .rule = sampling::rule_of(0, 0, 1, 0), .logprobs = 1}, {.row = 1}};
  for (int i = 0; i < 5; ++i) {
    std::span<const Picked> picked;
    HostRows read;
    step(rows_alone(1), [&] {
      backend().cap_and_scale(logits, 0, -1);
      picked = backend().sample(logits, jobs);
      read = backend().read(logits);
    });
    ASSERT_EQ(picked.size(), 2u);
    EXPECT_EQ(picked[0].token, i % 2 == 0 ? 7 : 4);
    EXPECT_EQ(picked[0].logit, i % 2 == 0 ? 5 : 3);
    ASSERT_EQ(picked[0].places.size(), 1u);
    EXPECT_EQ(sampling::id_at(picked[0].places[0]), picked[0].token);
    EXPECT_EQ(picked[1].token, i % 2 == 0 ? 0 : 9);
    EXPECT_EQ(read.row(0)[7], i % 2 == 0 ? 5 : -5);
  }
}

// The words are all zero until the backend waits for them.
TEST_P(ConformanceOfSampling, MasksAreReadAfterTheirGateHasOpened) {
  struct Gate final : sampling::MaskGate {
    std::vector<std::uint32_t>* words = nullptr;
    std::uint32_t allowed = 0;
    std::uint32_t waits = 0;
    void wait() override {
      ++waits;
      (*words)[allowed / 32] = 1U << (allowed % 32);
    }
  };
  constexpr std::uint32_t kTokens = 700;
  Matrix values(1, kTokens, 0.0f);
  for (std::uint32_t i = 0; i < kTokens; ++i) values.values[i] = static_cast<float>(i);
  const Tensor logits = tensors().put(values);
  std::vector<std::uint32_t> words((kTokens + 31) / 32);
  for (const std::uint32_t allowed : {3U, 33U, 699U}) {
    std::ranges::fill(words, 0);
    Gate gate;
    gate.words = &words;
    gate.allowed = allowed;
    const std::vector<Job> jobs = {{.row = 0, .mask = words}, {.row = 0}};
    std::span<const Picked> picked;
    step(rows_alone(1), [&] { picked = backend().sample(logits, jobs, &gate); });
    EXPECT_GE(gate.waits, 1U);
    EXPECT_EQ(picked[0].token, static_cast<std::int32_t>(allowed));
    EXPECT_EQ(picked[1].token, static_cast<std::int32_t>(kTokens - 1));
  }
}

TEST_P(ConformanceOfSampling, AllocatesNothingInAStep) {
  std::mt19937 random(4);
  const Matrix logits = any_logits(random, 10, kLimits.vocabulary);
  const Tensor on_device = tensors().put(logits);
  std::vector<OwnJob> own;
  std::vector<Job> jobs;
  for (std::uint32_t i = 0; i < kLimits.jobs; ++i)
    own.push_back(any_job(random, 10, kLimits.vocabulary, kLimits.listed / kLimits.jobs));
  for (const OwnJob& one : own) jobs.push_back(one.with_lists());
  const Batch batch = rows_alone(1);
  const std::uint64_t before = quire::testing::allocations;
  for (int i = 0; i < 3; ++i) {
    backend().begin(batch);
    backend().sample(on_device, jobs);
    const bool done = backend().finish().has_value();
    if (!done) break;
  }
  EXPECT_EQ(quire::testing::allocations, before);
}

INSTANTIATE_TEST_SUITE_P(Backends, ConformanceOfSampling, ::testing::ValuesIn(backends_under_test()), name_of);

// --- the limits

TEST(SamplingBudget, TakesJobsUpToEachLimit) {
  const std::vector<sampling::Seen> seen(3);
  const std::vector<std::pair<std::int32_t, float>> biases(2);
  sampling::Budget budget({.vocabulary = 9, .jobs = 3, .listed = 8, .reported = 10});
  EXPECT_TRUE(budget.take({.seen = seen, .biases = biases, .logprobs = 4}));
  EXPECT_FALSE(budget.take({.seen = seen, .biases = biases})) << "10 listed tokens";
  EXPECT_TRUE(budget.take({.seen = seen, .logprobs = 6}));
  EXPECT_FALSE(budget.take({.logprobs = 1})) << "11 reported tokens";
  EXPECT_TRUE(budget.take({.logprobs = 0}));
  EXPECT_FALSE(budget.take({})) << "the fourth job";
  budget.clear();
  EXPECT_TRUE(budget.take({}));
  EXPECT_FALSE(sampling::Budget().take({})) << "no limits are limits of 0";
}

}  // namespace
}  // namespace quire::conformance
