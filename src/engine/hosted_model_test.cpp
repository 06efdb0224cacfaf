#include "quire/engine/hosted_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace quire::engine {
namespace {

using ::testing::HasSubstr;

Result<std::unique_ptr<HostedModel>> host(const char* name, HostOptions options) {
  auto model = model::Model::load(std::string(QUIRE_SOURCE_DIR "/models/quire-demo-") + name + "-q8_0.gguf");
  EXPECT_TRUE(model.has_value());
  if (options.backend.threads == 0) options.backend.threads = 1;
  return HostedModel::create(std::move(*model), std::move(options));
}

class Collecting final : public Listener {
 public:
  void on_event(const Event& event) override {
    if (event.kind == Event::Kind::Token) tokens.push_back(event.token);
  }
  std::vector<Token> tokens;
};

TEST(HostedModel, HasRoomForSequencesOfTheWholeContextUnlessToldOtherwise) {
  for (const char* name : {"llama", "mamba2", "hybrid"}) {
    const auto made = host(name, {.max_sequences = 20});
    ASSERT_TRUE(made.has_value()) << made.error().message;
    SequencePool& pool = (*made)->pool();
    EXPECT_EQ((*made)->context(), (*made)->model().hyperparameters().context_length);
    // Sixteen sequences at once, each as long as the context.
    const std::vector<Token> prompt(2, 1);
    for (int i = 0; i < 16; ++i) {
      const auto sequence = pool.create({.prompt = prompt, .reuse = false});
      ASSERT_TRUE(sequence.has_value());
      EXPECT_TRUE(pool.reserve(sequence->id, (*made)->context()).has_value()) << name << " " << i;
    }
  }
}

TEST(HostedModel, RefusesOptionsThatContradictEachOther) {
  const auto too_long = host("llama", {.context = 1 << 20});
  ASSERT_FALSE(too_long.has_value());
  EXPECT_THAT(too_long.error().message, HasSubstr("is longer than the 2048 that the model was trained for"));
  const auto too_small = host("llama", {.context = 2048, .memory = 1 << 20});
  ASSERT_FALSE(too_small.has_value());
  EXPECT_THAT(too_small.error().message, HasSubstr("is too small for one sequence of 2048 tokens"));
  EXPECT_FALSE(host("llama", {.memory = UINT64_MAX}).has_value());
  EXPECT_FALSE(host("llama", {.max_sequences = 0}).has_value());
}

TEST(HostedModel, LittleMemoryShortensTheContextIfNoneIsGiven) {
  const auto made = host("llama", {.memory = 4 << 20});
  ASSERT_TRUE(made.has_value()) << made.error().message;
  EXPECT_LT((*made)->context(), 2048u);
  EXPECT_GE((*made)->context(), 512u);
}

TEST(HostedModel, AllSequencesDecodeEvenIfThereAreMoreThanStepTokens) {
  const auto made = host("llama", {.max_sequences = 8, .step_tokens = 2});
  ASSERT_TRUE(made.has_value()) << made.error().message;
  Engine& engine = (*made)->engine();
  std::vector<std::shared_ptr<Collecting>> listeners;
  for (std::uint32_t i = 0; i < 8; ++i) {
    listeners.push_back(std::make_shared<Collecting>());
    ASSERT_TRUE(engine.submit({.prompt = {5, 6, 7}, .max_tokens = 20}, listeners.back()).has_value());
  }
  while (engine.step()) {
  }
  for (const auto& listener : listeners) EXPECT_EQ(listener->tokens, listeners[0]->tokens);
  EXPECT_EQ(listeners[0]->tokens.size(), 20u);
  EXPECT_TRUE((*made)->pool().check_integrity().has_value());
}

}  // namespace
}  // namespace quire::engine
