// Real models with every kind of memory: with drafts by n-grams, by who knows the answer, or by a head, each answer has
// the bits of an engine without drafts, greedy and sampled, alone and in a batch, with other numbers of threads.
// QUIRE_SPECULATION_PROMPTS sets the number of prompts for each model and temperature, each with prompts of its own
// (`make speculation`: 1,024 in all).
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "quire/engine/engine_testing.h"
#include "quire/engine/heads_testing.h"
#include "quire/engine/hosted_testing.h"
#include "quire/engine/ngram_drafter.h"
#include "quire/engine/pool_size.h"

namespace quire::engine::testing {
namespace {

constexpr const char* kModels[] = {"llama",     "gpt2",   "gemma3",    "cohere2",  "gpt-oss", "deepseek2",
                                   "mamba",     "mamba2", "mixtral",   "qwen3moe", "jamba",   "granite-moe-hybrid",
                                   "falcon-h1", "qwen35", "qwen3next", "lfm2"};

std::uint32_t prompts_each() {
  const char* wanted = std::getenv("QUIRE_SPECULATION_PROMPTS");
  return wanted != nullptr ? static_cast<std::uint32_t>(std::strtoul(wanted, nullptr, 10)) : 8;
}

// Pieces that repeat, as in a text that is summarised.
std::vector<Token> prompt_of(std::uint32_t seed, std::uint32_t vocabulary) {
  std::mt19937 random(seed);
  std::vector<std::vector<Token>> pieces(1 + random() % 4);
  for (std::uint32_t i = 0; i < pieces.size(); ++i)
    pieces[i] = some_tokens(2 + random() % 9, seed * 31 + i, vocabulary);
  std::vector<Token> prompt;
  while (prompt.size() < 12 + seed % 60) {
    const auto& piece = pieces[random() % pieces.size()];
    prompt.insert(prompt.end(), piece.begin(), piece.end());
  }
  return prompt;
}

Request request_of(std::uint32_t seed, std::uint32_t vocabulary, double temperature) {
  Request request =
      temperature == 0 ? greedy(prompt_of(seed, vocabulary), 48) : seeded(prompt_of(seed, vocabulary), 48, seed);
  request.sampling.temperature = temperature;
  if (temperature > 0) request.sampling.top_k = 2 + seed % 3;  // so that guesses have a chance
  request.logprobs = seed % 2 == 0 ? -1 : 1;
  if (seed % 5 == 0) request.sampling.repetition_penalty = 1.02;
  if (seed % 7 == 0) request.n = 2;
  return request;
}

// Now and then one of the guesses is changed: tiny models repeat themselves without fail.
class Careless final : public Drafter {
 public:
  explicit Careless(std::vector<std::vector<Token>> known) : knowing_(std::move(known)) {}
  void propose(std::span<Drafts* const> wanted) override {
    knowing_.propose(wanted);
    for (Drafts* drafts : wanted) {
      if (drafts->count > 0 && ++proposals_ % 3 == 0) drafts->tokens[proposals_ % drafts->count] ^= 1;
    }
  }
  double expected(std::uint32_t kind) const override { return knowing_.expected(kind); }

 private:
  KnowingDrafter knowing_;
  std::uint32_t proposals_ = 0;
};

class SpeculationOnModels : public ::testing::TestWithParam<BackendAndModel> {
 protected:
  struct Answers {
    std::vector<Seen> seen;
    std::vector<std::vector<Token>> texts;  // every other prompt, with each of its answers
    EngineStats stats;
  };
  static Answers answers(EngineOptions options, double temperature, std::uint32_t batch, std::uint32_t threads) {
    const auto& [kind, name] = GetParam();
    options.check_integrity = true;
    const auto host = host_file("testdata/golden/" + name + "/model.gguf", kind,
                                {.context = 160, .max_sequences = 8, .engine = options}, threads);
    const std::uint32_t vocabulary = host->model().hyperparameters().vocabulary;
    const auto model = static_cast<std::uint32_t>(std::ranges::find(kModels, name) - std::begin(kModels));
    const std::uint32_t first = 2000 * model + (temperature > 0 ? 1000 : 0);
    Answers all;
    std::vector<std::shared_ptr<Collector>> heard;
    for (std::uint32_t i = 0; i < prompts_each(); ++i) {
      heard.push_back(std::make_shared<Collector>());
      const auto id = host->engine().submit(request_of(first + i, vocabulary, temperature), heard.back());
      EXPECT_TRUE(id.has_value()) << id.error().message;
      while ((i + 1) % batch == 0 && host->engine().step()) {
      }
    }
    while (host->engine().step()) {
    }
    for (std::uint32_t i = 0; i < heard.size(); ++i) {
      EXPECT_EQ(heard[i]->problem, "");
      for (const Collector::Choice& choice : heard[i]->choices) {
        all.seen.push_back(seen(choice));
        if (i % 2 != 0) continue;
        all.texts.push_back(prompt_of(first + i, vocabulary));
        all.texts.back().insert(all.texts.back().end(), choice.tokens.begin(), choice.tokens.end());
      }
    }
    all.stats = host->engine().stats();
    return all;
  }
};

TEST_P(SpeculationOnModels, GivesTheBitsOfAnEngineWithoutDrafts) {
  std::uint64_t accepted = 0, wrong = 0;
  for (const double temperature : {0.0, 1.0}) {
    const Answers plain = answers({}, temperature, 1, 1);
    for (const std::uint32_t batch : {1u, 5u}) {
      const Answers drafted = answers({.drafter = std::make_shared<Careless>(plain.texts),
                                       .draft_tokens = batch == 1 ? 7u : 3u,
                                       .draft_always = true},
                                      temperature, batch, batch == 1 ? 2 : 3);
      ASSERT_EQ(drafted.seen.size(), plain.seen.size());
      for (std::size_t i = 0; i < plain.seen.size(); ++i) {
        EXPECT_EQ(drafted.seen[i], plain.seen[i]) << "temperature " << temperature << ", answer " << i;
      }
      accepted += drafted.stats.accepted_tokens;
      wrong += drafted.stats.drafted_tokens - drafted.stats.accepted_tokens;
    }
  }
  EXPECT_GT(accepted, 0u);
  EXPECT_GT(wrong, 0u);
}

INSTANTIATE_TEST_SUITE_P(Golden, SpeculationOnModels, ::testing::ValuesIn(backends_and_models(kModels)), name_of);

// Heads with random weights, which are hardly ever right, and those that know the next token. Every prompt comes twice
// in a row, so that the second finds it in the cache, some have several choices, and the pool is so small that
// sequences leave it.
class HeadsOnModels : public ::testing::TestWithParam<BackendAndModel> {
 protected:
  struct Answers {
    std::vector<Seen> seen;
    EngineStats stats;
  };
  static Answers answers(HostedModel& host, double temperature, std::uint32_t batch) {
    const std::uint32_t vocabulary = host.model().hyperparameters().vocabulary;
    std::vector<std::shared_ptr<Collector>> heard;
    for (std::uint32_t i = 0; i < 2 * prompts_each(); ++i) {
      heard.push_back(std::make_shared<Collector>());
      const auto id = host.engine().submit(request_of(i / 2, vocabulary, temperature), heard.back());
      EXPECT_TRUE(id.has_value()) << id.error().message;
      while ((i + 1) % batch == 0 && host.engine().step()) {
      }
    }
    while (host.engine().step()) {
    }
    Answers all;
    for (const auto& each : heard) {
      EXPECT_EQ(each->problem, "");
      for (const Collector::Choice& choice : each->choices) all.seen.push_back(seen(choice));
    }
    all.stats = host.engine().stats();
    return all;
  }
  static HostOptions options_for(const model::Model& model, std::uint32_t batch) {
    HostOptions options{.context = 160, .max_sequences = 8};
    options.engine = {.draft_tokens = batch == 1 ? 5u : 3u, .draft_always = true, .check_integrity = true};
    if (batch > 1) {
      const auto layout = *model.layout(options.block_size, options.kv_type, options.state_type);
      options.memory = 2 * *bytes_for(layout, {.tokens = 160, .chunk = 256, .checkpoints = 1});
    }
    return options;
  }
};

TEST_P(HeadsOnModels, GiveTheBitsOfAnEngineWithoutDrafts) {
  using model::testing::HeadModel;
  const auto& [kind, name] = GetParam();
  const std::string file = "testdata/golden/" + name + "/model.gguf";
  const auto without_head = *model::Model::load(std::string(QUIRE_SOURCE_DIR) + "/" + file);
  std::uint64_t accepted = 0, wrong = 0, suspended = 0, cached = 0;
  for (const bool knowing : {false, true}) {
    const HeadModel test = knowing ? HeadModel(name).knowing() : HeadModel(name);
    for (const double temperature : {0.0, 1.0}) {
      // What a file without the head answers.
      HeadHost silent(test, options_for(*without_head, 1), false, kind);
      const Answers plain = knowing ? answers(*silent, temperature, 1)
                                    : answers(*host_file(file, kind, options_for(*without_head, 1)), temperature, 1);
      for (const std::uint32_t batch : {1u, 7u}) {
        HeadHost host(test, options_for(*without_head, batch), true, kind, batch == 1 ? 2 : 3);
        const Answers drafted = answers(*host, temperature, batch);
        ASSERT_EQ(drafted.seen.size(), plain.seen.size());
        for (std::size_t i = 0; i < plain.seen.size(); ++i) {
          EXPECT_EQ(drafted.seen[i], plain.seen[i]) << "temperature " << temperature << ", answer " << i;
        }
        accepted += drafted.stats.accepted_tokens;
        wrong += drafted.stats.drafted_tokens - drafted.stats.accepted_tokens;
        suspended += drafted.stats.suspensions_by_copy + drafted.stats.suspensions_by_recompute;
        cached += drafted.stats.cached_tokens;
      }
    }
  }
  EXPECT_GT(accepted, 0u);
  EXPECT_GT(wrong, 0u);
  EXPECT_GT(suspended, 0u);
  EXPECT_GT(cached, 0u);
}

INSTANTIATE_TEST_SUITE_P(Golden, HeadsOnModels, ::testing::ValuesIn(backends_and_models(model::testing::kHeadModels)),
                         name_of);

}  // namespace
}  // namespace quire::engine::testing
