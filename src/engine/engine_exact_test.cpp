// Answers are exact: the tokens and log-probabilities of a request are the same bits alone and among others, with the
// prefix cache cold, warm, off and half evicted, after suspension by copy and by recomputation, as one of n, and with
// any token budget, number of threads and order of arrival. Tested for every golden and demo model, greedy and with a
// seed.
#include <algorithm>
#include <cstring>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "quire/engine/hosted_model.h"
#include "quire/engine/weightless_testing.h"
#include "quire/model/model_files_testing.h"

namespace quire::engine::testing {
namespace {

constexpr std::uint32_t kPrompt = 53;
constexpr std::uint32_t kAnswer = 16;
constexpr std::uint32_t kContext = 128;

std::vector<Token> prompt_of(std::uint32_t seed, std::size_t length, std::uint32_t vocabulary) {
  std::mt19937 random(seed);
  std::vector<Token> tokens(length);
  for (Token& token : tokens) token = static_cast<Token>(random() % vocabulary);
  return tokens;
}

class EngineExact : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<HostedModel> host(HostOptions options) {
    options.context = kContext;
    options.state_type = state_type_;
    auto model = model::Model::load(std::string(QUIRE_SOURCE_DIR) + "/" + GetParam());
    EXPECT_TRUE(model.has_value()) << model.error().message;
    auto made = HostedModel::create(std::move(*model), std::move(options));
    EXPECT_TRUE(made.has_value()) << made.error().message;
    return std::move(*made);
  }

  struct Asked {
    std::shared_ptr<Collector> heard = std::make_shared<Collector>();
    RequestId id = 0;
  };
  static Asked ask(HostedModel& on, Request request) {
    Asked asked;
    const auto id = on.engine().submit(std::move(request), asked.heard);
    EXPECT_TRUE(id.has_value()) << id.error().message;
    asked.id = id.value_or(0);
    return asked;
  }
  static void run(HostedModel& on) {
    while (on.engine().step()) {
    }
    const auto sound = on.pool().check_integrity();
    EXPECT_TRUE(sound.has_value()) << sound.error();
  }
  void expect_the_same_whatever_happens();

  ElementType state_type_ = ElementType::F32;
};

// What the test compares: everything a client can see.
struct Seen {
  std::vector<Token> tokens;
  std::vector<std::uint32_t> logprobs;  // as bits
  friend bool operator==(const Seen&, const Seen&) = default;
};
Seen seen(const Collector& heard, std::size_t choice = 0) {
  Seen seen{heard.choices.at(choice).tokens, {}};
  for (const float logprob : heard.choices[choice].logprobs) {
    seen.logprobs.push_back(0);
    std::memcpy(&seen.logprobs.back(), &logprob, sizeof logprob);
  }
  return seen;
}

void EngineExact::expect_the_same_whatever_happens() {
  auto alone = host({.backend = {.threads = 1}, .prefix_cache = false});
  const std::uint32_t vocabulary = alone->model().hyperparameters().vocabulary;
  const auto request = [&](double temperature) {
    Request asked{.prompt = prompt_of(42, kPrompt, vocabulary), .max_tokens = kAnswer};
    asked.sampling = {.temperature = temperature, .top_k = 40, .top_p = 0.95, .min_p = 0.02, .seed = 9};
    asked.logprobs = 0;
    return asked;
  };
  const auto other = [&](std::uint32_t i) {
    Request asked{.prompt = prompt_of(100 + i, 1 + i * 7 % 60, vocabulary), .max_tokens = 1 + i % 20};
    asked.sampling = {.temperature = i % 2 == 0 ? 0.0 : 1.0, .seed = i};
    return asked;
  };

  for (const double temperature : {0.0, 1.0}) {
    const Request asked = request(temperature);
    const Asked reference = ask(*alone, asked);
    run(*alone);
    const Seen expected = seen(*reference.heard);
    ASSERT_EQ(expected.tokens.size(), kAnswer);
    const auto same = [&](const Asked& got, const std::string& what, std::size_t choice = 0) {
      EXPECT_EQ(got.heard->problem, "");
      ASSERT_TRUE(got.heard->ended) << what;
      EXPECT_EQ(seen(*got.heard, choice), expected) << what << ", temperature " << temperature;
    };

    // Among others, with several orders of arrival, budgets and thread counts; the cache cold, then warm.
    for (const std::uint32_t threads : {1u, 2u, 3u, 16u}) {
      const std::uint32_t budget = threads == 1 ? 256 : threads == 2 ? 40 : 33;
      auto busy = host({.backend = {.threads = threads}, .max_sequences = 33, .step_tokens = budget});
      std::mt19937 random(threads);
      const std::uint32_t others = threads == 2 ? 32 : 6;
      const std::uint32_t when = static_cast<std::uint32_t>(random() % others);
      Asked cold;
      for (std::uint32_t i = 0; i < others; ++i) {
        if (i == when) cold = ask(*busy, asked);
        ask(*busy, other(i));
        if (random() % 4 == 0) busy->engine().step();
      }
      run(*busy);
      same(cold, fmt::format("among {} others, {} threads, {} tokens a step", others, threads, budget));
      EXPECT_EQ(cold.heard->usage.hit.tokens, 0u);
      const Asked warm = ask(*busy, asked);
      run(*busy);
      same(warm, "with the prefix in the cache");
      EXPECT_GE(warm.heard->usage.hit.tokens, 48u) << name(warm.heard->usage.hit.end);
    }

    // Preempted during decode by a request of higher priority. Its cached pages are evicted meanwhile.
    for (const SuspendBy by : {SuspendBy::Copy, SuspendBy::Recompute}) {
      auto narrow =
          host({.backend = {.threads = 2}, .max_sequences = 1, .step_tokens = 64, .engine = {.suspend_by = by}});
      const Asked stopped = ask(*narrow, asked);
      while (stopped.heard->choices.empty() || stopped.heard->choices[0].tokens.size() < 5) narrow->engine().step();
      Request urgent = other(3);
      urgent.priority = 1;
      ask(*narrow, urgent);
      narrow->engine().step();
      narrow->pool().drop_cache();
      run(*narrow);
      same(stopped, by == SuspendBy::Copy ? "suspended by copy" : "suspended, and computed again");
      EXPECT_EQ(stopped.heard->usage.suspensions, 1u);
      const EngineStats stats = narrow->engine().stats();
      EXPECT_EQ(by == SuspendBy::Copy ? stats.suspensions_by_copy : stats.suspensions_by_recompute, 1u);
    }

    // As one of n; with half of its prefix evicted; without the cache.
    auto small = host({.backend = {.threads = 2}, .max_sequences = 4, .step_tokens = 64});
    Request several = asked;
    several.n = 3;
    several.sampling.seed -= 1;
    const Asked among = ask(*small, several);
    run(*small);
    same(among, "as the second of three", 1);
    // Other requests run until half of the prefix is evicted.
    Hit hit = small->pool().lookup(asked.prompt);
    for (std::uint32_t i = 0; i < 400 && hit.tokens > kPrompt / 2; ++i) {
      Request filler{.prompt = prompt_of(1000 + i, 60, vocabulary), .max_tokens = 1};
      ask(*small, filler);
      run(*small);
      hit = small->pool().lookup(asked.prompt);
    }
    EXPECT_LE(hit.tokens, kPrompt / 2);
    const Asked evicted = ask(*small, asked);
    run(*small);
    same(evicted, "with part of its prefix evicted");
    Request off = asked;
    off.reuse = false;
    const Asked without = ask(*small, off);
    run(*small);
    same(without, "with reuse off");
  }
}

TEST_P(EngineExact, AnAnswerIsTheSameBitsWhateverHappens) { expect_the_same_whatever_happens(); }

// The same with recurrent states in 16 bits.
TEST_P(EngineExact, AnAnswerIsTheSameBitsWhateverTheTypeOfTheStates) {
  if (!host({})->pool().layout().has_recurrent()) return;
  for (const ElementType type : {ElementType::F16, ElementType::BF16}) {
    SCOPED_TRACE(name(type));
    state_type_ = type;
    expect_the_same_whatever_happens();
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, EngineExact, model::testing::golden_files(), model::testing::readable);
INSTANTIATE_TEST_SUITE_P(Demo, EngineExact, model::testing::demo_files(), model::testing::readable);

}  // namespace
}  // namespace quire::engine::testing
