// A smaller model drafts. Here it is the same model, so that every greedy guess is right, or one that knows nothing.
#include "quire/engine/model_drafter.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "quire/engine/engine_testing.h"
#include "quire/engine/hosted_testing.h"

namespace quire::engine::testing {
namespace {

std::string golden(const std::string& name) { return "testdata/golden/" + name + "/model.gguf"; }

std::unique_ptr<HostedModel> host(const std::string& name, const HostOptions& options) {
  return host_file(golden(name), best_backends().front(), options);
}

std::unique_ptr<model::Model> model_of(const std::string& name) {
  return *model::Model::load(std::string(QUIRE_SOURCE_DIR) + "/" + golden(name));
}

class DraftingModel : public ::testing::TestWithParam<const char*> {
 protected:
  struct Answers {
    std::vector<Seen> seen;
    EngineStats stats;
  };
  static Answers answers(EngineOptions options, double temperature) {
    options.check_integrity = true;
    const auto main = host(GetParam(), {.context = 160, .max_sequences = 6, .engine = std::move(options)});
    std::vector<std::shared_ptr<Collector>> heard;
    for (std::uint32_t i = 0; i < 10; ++i) {
      Request request = seeded(some_tokens(5 + 7 * i, i, main->model().hyperparameters().vocabulary), 40, i);
      request.sampling.temperature = temperature;
      heard.push_back(std::make_shared<Collector>());
      EXPECT_TRUE(main->engine().submit(std::move(request), heard.back()).has_value());
    }
    while (main->engine().step()) {
    }
    Answers all{.seen = {}, .stats = main->engine().stats()};
    for (const auto& each : heard) all.seen.push_back(seen(each->choices.at(0)));
    return all;
  }
  static EngineOptions drafting(std::uint32_t max_sequences, std::uint64_t memory = 0) {
    auto small = host(GetParam(), {.context = 160,
                                   .memory = memory,
                                   .max_sequences = max_sequences,
                                   .prefix_cache = false,
                                   .engine = {.host_bytes = 0}});
    return {.drafter = std::make_shared<ModelDrafter>(std::move(small)), .draft_tokens = 4, .draft_always = true};
  }
};

TEST_P(DraftingModel, ChangesNoBitAndIsRightWhereItIsTheModelItself) {
  for (const double temperature : {0.0, 1.0}) {
    const Answers plain = answers({}, temperature);
    const Answers drafted = answers(drafting(12), temperature);
    EXPECT_EQ(drafted.seen, plain.seen);
    EXPECT_GT(drafted.stats.drafted_tokens, 0u);
    if (temperature == 0) {
      EXPECT_EQ(drafted.stats.accepted_tokens, drafted.stats.drafted_tokens);
      EXPECT_LT(drafted.stats.steps, plain.stats.steps * 2 / 3);
    } else {
      EXPECT_LT(drafted.stats.accepted_tokens, drafted.stats.drafted_tokens);
    }
  }
}

// Two choices at most can draft at a time, and their sequences make room for those of others.
TEST_P(DraftingModel, GivesUpSequencesThatHaveNotDraftedForLongest) {
  const Answers plain = answers({}, 0);
  const Answers drafted = answers(drafting(4), 0);
  EXPECT_EQ(drafted.seen, plain.seen);
  EXPECT_GT(drafted.stats.accepted_tokens, 0u);
}

INSTANTIATE_TEST_SUITE_P(Golden, DraftingModel, ::testing::Values("llama", "gemma3", "mamba2", "qwen35"),
                         [](const auto& run) { return std::string(run.param); });

TEST(Vocabularies, OfAnotherSizeAreRefusedWithBothSizes) {
  const auto llama = model_of("llama"), gpt2 = model_of("gpt2");
  EXPECT_TRUE(same_vocabulary(*llama, *model_of("llama")).has_value());
  if (llama->hyperparameters().vocabulary == gpt2->hyperparameters().vocabulary) GTEST_SKIP() << "they agree";
  const auto refused = same_vocabulary(*llama, *gpt2);
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message.find("vocabulary"), std::string::npos);
}

}  // namespace
}  // namespace quire::engine::testing
