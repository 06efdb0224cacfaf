#include "quire/engine/hosted_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/tiers/memory_tier_testing.h"

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

// `quire serve` opens the tiers before the model, and holds them longer.
TEST(HostedModel, TiersEndWithTheModelThoughSomebodyStillHoldsThem) {
  tiers::testing::Store store;
  auto tiers = std::make_shared<tiers::Tiers>(tiers::TiersOptions{.staging_bytes = 1 << 20});
  tiers->add(std::make_unique<tiers::testing::MemoryTier>(TierKind::Disk, store, *tiers));
  auto made = host("llama", {.context = 64, .tiers = tiers});
  ASSERT_TRUE(made.has_value()) << made.error().message;
  EXPECT_EQ(tiers->stats().tiers.size(), 1u);
  EXPECT_GT(tiers->stats().staging_bytes, 0u);
  made->reset();
  EXPECT_EQ(tiers.use_count(), 1);
  EXPECT_EQ(tiers->stats().tiers.size(), 0u) << "their threads have ended";
  EXPECT_EQ(tiers->stats().staging_bytes, 0u) << "the memory is the device's, which is gone";
}

// The rotary factors follow from the context that was asked for, and saved sequences fit only models with the same
// ones.
TEST(HostedModel, AContextThatSelectsOtherRotaryFactorsIsAnotherFingerprint) {
  const auto fingerprint_of = [](std::uint32_t context, std::uint64_t memory = 0) {
    auto model = model::Model::load(QUIRE_SOURCE_DIR "/testdata/golden/phi3-longrope/model.gguf", context);
    EXPECT_TRUE(model.has_value());
    HostOptions options{.context = context, .memory = memory};
    options.backend.threads = 1;
    const auto made = HostedModel::create(std::move(*model), std::move(options));
    EXPECT_TRUE(made.has_value()) << made.error().message;
    EXPECT_TRUE(memory == 0 || (*made)->context() < 64);
    return (*made)->pool().config().model;
  };
  EXPECT_EQ(fingerprint_of(0), fingerprint_of(512));
  EXPECT_EQ(fingerprint_of(64), fingerprint_of(32));
  EXPECT_NE(fingerprint_of(0), fingerprint_of(64));
  // A pool that is too small for the trained length leaves the factors as they are.
  EXPECT_EQ(fingerprint_of(0, 12 << 10), fingerprint_of(0));
}

// Servers on two GPUs of a machine share what they store, and so does one that is moved to another GPU.
TEST(HostedModel, TheNumberOfAGpuIsNoPartOfTheArithmetic) {
  const BackendFacts first{.device = "cuda:0", .variant = "sm_90 x 132", .threads = 0};
  BackendFacts other = first;
  other.device = "cuda:1";
  EXPECT_EQ(arithmetic_of(first), arithmetic_of(other));
  other.variant = "sm_90 x 114";
  EXPECT_NE(arithmetic_of(first), arithmetic_of(other)) << "attention is divided in another way";
  EXPECT_NE(arithmetic_of({.device = "cpu", .variant = "avx2", .threads = 2}),
            arithmetic_of({.device = "cpu", .variant = "avx512", .threads = 2}));
  EXPECT_EQ(arithmetic_of({.device = "cpu", .variant = "avx2", .threads = 2}), "cpu avx2")
      << "another name would make strangers of what is stored on disks";
}

// Otherwise they lie at the ends of blocks only.
TEST(HostedModel, CheckpointsLieAtMultiplesOfTheUnitIfBlocksAreWholeUnits) {
  const auto unit_of = [](HostOptions options) {
    const auto made = host("hybrid", std::move(options));
    EXPECT_TRUE(made.has_value());
    return (*made)->pool().config().checkpoint_unit;
  };
  EXPECT_EQ(unit_of({}), 16u);
  EXPECT_EQ(unit_of({.checkpoint_unit = 8}), 8u);
  for (const std::uint32_t unit : {0u, 5u, 32u}) EXPECT_EQ(unit_of({.checkpoint_unit = unit}), 16u) << unit;
}

TEST(HostedModel, LittleMemoryShortensTheContextIfNoneIsGiven) {
  const auto made = host("llama", {.memory = 4 << 20});
  ASSERT_TRUE(made.has_value()) << made.error().message;
  EXPECT_LT((*made)->context(), 2048u);
  EXPECT_GE((*made)->context(), 512u);
}

TEST(HostedModel, StatesInHalfTheBytesGiveTwiceTheSequencesInTheSameMemory) {
  const auto sequences_in = [](ElementType type, std::uint64_t memory) {
    const auto made = host("mamba2", {.memory = memory, .state_type = type, .max_sequences = 64});
    EXPECT_TRUE(made.has_value()) << made.error().message;
    SequencePool& pool = (*made)->pool();
    EXPECT_EQ(pool.layout().recurrent.type, type);
    const std::vector<Token> prompt(2, 1);
    int sequences = 0;
    while (pool.create({.prompt = prompt, .reuse = false})) ++sequences;
    return sequences;
  };
  const auto f32 = host("mamba2", {.max_sequences = 1});
  ASSERT_TRUE(f32.has_value()) << f32.error().message;
  const StateShape& wide = (*f32)->pool().layout().recurrent;
  ASSERT_GT(wide.ssm_bytes, 10 * wide.conv_bytes);
  const std::uint64_t memory = 16 * wide.bytes();
  const int full = sequences_in(ElementType::F32, memory);
  EXPECT_GE(full, 15);
  for (const ElementType type : {ElementType::F16, ElementType::BF16}) {
    EXPECT_GE(sequences_in(type, memory), full * 18 / 10) << name(type);
  }
}

TEST(HostedModel, ATypeOfStatesThatTheBackendDoesNotHaveIsRefused) {
  const auto made = host("hybrid", {.state_type = ElementType::I8});
  ASSERT_FALSE(made.has_value());
  EXPECT_THAT(made.error().message, HasSubstr("recurrent states cannot be kept as i8 on cpu"));
}

// Two prompts, the second one beginning with the first: with room for no checkpoint the answers are the same.
TEST(HostedModel, ARecurrentModelAnswersWithRoomForNoCheckpoint) {
  std::vector<std::vector<Token>> answers;
  for (const std::uint32_t percent : {50u, 0u}) {
    const auto made = host("hybrid", {.context = 256, .max_sequences = 1, .checkpoint_percent = percent});
    ASSERT_TRUE(made.has_value()) << made.error().message;
    Engine& engine = (*made)->engine();
    std::vector<Token> prompt;
    for (Token token = 5; prompt.size() < 64; token = token % 90 + 1) prompt.push_back(token);
    std::vector<Token> together;
    for (int turn = 0; turn < 2; ++turn) {
      const auto listener = std::make_shared<Collecting>();
      ASSERT_TRUE(engine.submit({.prompt = prompt, .max_tokens = 16}, listener).has_value());
      while (engine.step()) {
      }
      EXPECT_EQ(listener->tokens.size(), 16u);
      together.insert(together.end(), listener->tokens.begin(), listener->tokens.end());
      prompt.insert(prompt.end(), listener->tokens.begin(), listener->tokens.end());
    }
    answers.push_back(together);
    const PoolStats stats = (*made)->pool().stats();
    EXPECT_EQ(stats.checkpoints_stored > 0, percent > 0);
    EXPECT_EQ(stats.hit_tokens > 0, percent > 0);
    EXPECT_TRUE((*made)->pool().check_integrity().has_value());
  }
  EXPECT_EQ(answers[0], answers[1]);
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
