// Answers with adapters are exact: two adapters and none in one batch, each the bits of the one given alone, with
// chunks, suspensions, the prefix cache, drafts, each instruction set and several numbers of threads. And what was
// computed with one adapter is never found by a request with another or with none: in the pool, in a tier, after a
// restart with the adapters in another order.
#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "quire/engine/hosted_model.h"
#include "quire/engine/hosted_testing.h"
#include "quire/model/adapter_testing.h"
#include "quire/tiers/memory_tier_testing.h"

namespace quire::engine::testing {
namespace {

constexpr std::uint32_t kPrompt = 53, kAnswer = 12, kContext = 128;
constexpr std::uint32_t kAdapters = 2;

std::vector<Token> prompt_of(std::uint32_t seed, std::uint32_t vocabulary) {
  std::mt19937 random(seed);
  std::vector<Token> tokens(kPrompt);
  for (Token& token : tokens) token = static_cast<Token>(random() % vocabulary);
  return tokens;
}

class EngineAdapters : public ::testing::TestWithParam<std::string> {
 protected:
  EngineAdapters() {
    const auto file = gguf::File::open(path());
    EXPECT_TRUE(file.has_value());
    for (std::uint32_t i = 0; i < kAdapters; ++i) {
      images_.push_back(model::testing::adapter_for(*file, 4 + 8 * i, 7 + i, 0, {}, 0.02F).image());
    }
  }
  static std::string path() { return std::string(QUIRE_SOURCE_DIR) + "/" + GetParam(); }

  // Adapters a and b are 1 and 2, or the other way round.
  std::unique_ptr<HostedModel> host(HostOptions options, bool swapped = false) {
    options.context = kContext;
    auto model = model::Model::load(path());
    EXPECT_TRUE(model.has_value()) << model.error().message;
    for (std::uint32_t i = 0; i < kAdapters; ++i) {
      const std::uint32_t which = swapped ? kAdapters - 1 - i : i;
      const auto ok = (*model)->add_adapter(*gguf::File::from_memory(images_[which], "adapter"),
                                            {.name = std::string(1, static_cast<char>('a' + which)), .file = {}});
      EXPECT_TRUE(ok.has_value()) << ok.error().message;
    }
    auto made = HostedModel::create(std::move(*model), std::move(options));
    EXPECT_TRUE(made.has_value()) << made.error().message;
    return std::move(*made);
  }
  static Request asked(std::uint32_t adapter, double temperature, std::uint32_t vocabulary) {
    Request request{.prompt = prompt_of(42, vocabulary), .max_tokens = kAnswer};
    request.sampling = {.temperature = temperature, .top_k = 40, .seed = 9};
    request.logprobs = 0;
    request.adapter = adapter;
    return request;
  }
  static std::shared_ptr<Collector> ask(HostedModel& on, Request request) {
    auto heard = std::make_shared<Collector>();
    const auto id = on.engine().submit(std::move(request), heard);
    EXPECT_TRUE(id.has_value()) << id.error().message;
    return heard;
  }
  static void run(HostedModel& on) {
    while (on.engine().step()) {
    }
    const auto sound = on.pool().check_integrity();
    EXPECT_TRUE(sound.has_value()) << sound.error();
  }

  void in_one_batch(const std::string& variant);

 private:
  std::vector<std::vector<std::byte>> images_;
};

TEST_P(EngineAdapters, AnswersInOneBatchAreTheBitsOfThoseGivenAlone) {
  for (const BackendKind& kind : thorough() ? quire::testing::backend_kinds() : best_backends()) {
    if (!kind.gpu) in_one_batch(kind.options.variant);
  }
}

void EngineAdapters::in_one_batch(const std::string& variant) {
  SCOPED_TRACE(variant);
  const auto with = [&](std::uint32_t threads) { return BackendOptions{.threads = threads, .variant = variant}; };
  auto alone = host({.backend = with(1), .prefix_cache = false});
  const std::uint32_t vocabulary = alone->model().hyperparameters().vocabulary;
  for (const double temperature : {0.0, 1.0}) {
    std::vector<Seen> expected;
    std::vector<std::vector<Token>> texts;
    for (std::uint32_t adapter = 0; adapter <= kAdapters; ++adapter) {
      const auto heard = ask(*alone, asked(adapter, temperature, vocabulary));
      run(*alone);
      expected.push_back(seen(heard->choices.at(0)));
      texts.push_back(prompt_of(42, vocabulary));
      texts.back().insert(texts.back().end(), expected.back().tokens.begin(), expected.back().tokens.end());
    }
    EXPECT_NE(expected[0].logprobs, expected[1].logprobs);
    EXPECT_NE(expected[1].logprobs, expected[2].logprobs);
    std::uint64_t accepted = 0;
    for (const std::uint32_t threads : {1u, 2u, 3u, 16u}) {
      // With three threads answers are drafted, of all adapters and none in the same steps. The prompt is the same, so
      // guesses for one adapter are made for the others too.
      EngineOptions drafts;
      if (threads == 3) drafts = {.drafter = std::make_shared<KnowingDrafter>(texts), .draft_always = true};
      auto busy = host({.backend = with(threads),
                        .max_sequences = 9,
                        .step_tokens = threads == 1 ? 256u : 21u,
                        .engine = std::move(drafts)});
      for (const bool warm : {false, true}) {
        std::vector<std::shared_ptr<Collector>> heard;
        for (std::uint32_t i = 0; i < 9; ++i) {
          heard.push_back(ask(*busy, asked(i % 3, temperature, vocabulary)));
          if (i % 2 == 0) busy->engine().step();
        }
        run(*busy);
        for (std::uint32_t i = 0; i < 9; ++i) {
          EXPECT_EQ(heard[i]->problem, "");
          EXPECT_EQ(seen(heard[i]->choices.at(0)), expected[i % 3])
              << "request " << i << ", " << threads << " threads, " << (warm ? "warm" : "cold");
          EXPECT_GE(heard[i]->usage.hit.tokens, warm ? 48u : 0u);
        }
      }
      accepted += busy->engine().stats().accepted_tokens;
    }
    EXPECT_GT(accepted, 0u);
    // Preempted while it decodes.
    for (const SuspendBy by : {SuspendBy::Copy, SuspendBy::Recompute}) {
      for (std::uint32_t adapter = 0; adapter <= kAdapters; ++adapter) {
        auto narrow = host({.backend = with(2), .max_sequences = 1, .step_tokens = 64, .engine = {.suspend_by = by}});
        const auto stopped = ask(*narrow, asked(adapter, temperature, vocabulary));
        while (stopped->choices.empty() || stopped->choices[0].tokens.size() < 5) narrow->engine().step();
        Request urgent = asked((adapter + 1) % 3, 0, vocabulary);
        urgent.priority = 1;
        ask(*narrow, urgent);
        run(*narrow);
        EXPECT_EQ(stopped->usage.suspensions, 1u);
        EXPECT_EQ(seen(stopped->choices.at(0)), expected[adapter]) << "suspended, adapter " << adapter;
      }
    }
  }
}

TEST_P(EngineAdapters, PrefixesAreFoundWithTheSameAdapterOnly) {
  auto on = host({.backend = {.threads = 2}});
  const std::uint32_t vocabulary = on->model().hyperparameters().vocabulary;
  for (const bool known : {false, true}) {
    for (std::uint32_t adapter = 0; adapter <= kAdapters; ++adapter) {
      const auto heard = ask(*on, asked(adapter, 0, vocabulary));
      run(*on);
      EXPECT_EQ(heard->usage.hit.tokens >= 48, known) << adapter;
      EXPECT_TRUE(known || heard->usage.hit.tokens == 0) << adapter;
    }
  }
}

TEST_P(EngineAdapters, TiersAreKeyedByTheContentsOfTheAdapter) {
  tiers::testing::Store store;
  const auto fetched = [&](std::uint32_t adapter, bool swapped) {
    auto all = std::make_shared<tiers::Tiers>(tiers::TiersOptions{.staging_bytes = 16 << 20});
    auto memory = std::make_unique<tiers::testing::MemoryTier>(TierKind::Disk, store, *all);
    tiers::testing::MemoryTier* const tier = memory.get();
    all->add(std::move(memory));
    HostOptions options{.backend = {.threads = 2}};
    options.tiers = std::move(all);
    auto on = host(std::move(options), swapped);
    const std::uint32_t vocabulary = on->model().hyperparameters().vocabulary;
    const auto heard = ask(*on, asked(adapter, 0, vocabulary));
    for (int i = 0; i < 100'000 && (!on->engine().idle() || on->tiers()->busy()); ++i) {
      on->engine().step();
      tier->run();
    }
    EXPECT_TRUE(heard->ended);
    return heard->usage.from[static_cast<std::size_t>(TierKind::Disk)];
  };
  EXPECT_EQ(fetched(1, false), 0u);
  EXPECT_EQ(fetched(0, false), 0u) << "none, after a";
  EXPECT_EQ(fetched(2, false), 0u) << "b, after a and none";
  EXPECT_GE(fetched(1, false), 48u) << "a again";
  EXPECT_GE(fetched(2, true), 48u) << "a, which is the second now";
  EXPECT_GE(fetched(0, true), 48u) << "none again";
}

TEST_P(EngineAdapters, AnUnknownAdapterIsRefused) {
  auto on = host({.backend = {.threads = 1}});
  const auto id = on->engine().submit(asked(kAdapters + 1, 0, 10), std::make_shared<Collector>());
  ASSERT_FALSE(id.has_value());
  EXPECT_EQ(id.error().message, "there is no adapter 3: the model has 2 of them");
}

INSTANTIATE_TEST_SUITE_P(Models, EngineAdapters,
                         ::testing::Values("models/quire-demo-llama-q8_0.gguf", "models/quire-demo-hybrid-q8_0.gguf",
                                           "models/quire-demo-mamba2-q8_0.gguf"),
                         [](const auto& model) { return "Demo" + std::to_string(model.index); });

}  // namespace
}  // namespace quire::engine::testing
