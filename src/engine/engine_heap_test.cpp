// In steady state a step of the engine does not allocate from the heap. The test counts every allocation of this
// program while answers are running, on the weightless model and on the demo models.

#include <gtest/gtest.h>

#include "quire/base/counted_heap_testing.h"
#include "quire/engine/hosted_model.h"
#include "quire/engine/weightless_testing.h"
#include "quire/model/model_files_testing.h"
#include "quire/tiers/memory_tier_testing.h"

namespace quire::engine::testing {
namespace {

using quire::testing::allocations;

class Counter final : public Listener {
 public:
  void on_event(const Event& event) override { tokens += event.kind == Event::Kind::Token; }
  std::uint64_t tokens = 0;
};

Request asked(std::uint32_t i, std::uint32_t vocabulary, std::uint32_t tokens) {
  Request request{.max_tokens = tokens};
  for (std::uint32_t t = 0; t < 10 + i; ++t) {
    request.prompt.push_back(static_cast<Token>(scramble(i * 1000 + t) % vocabulary));
  }
  request.sampling = {.temperature = i % 2 == 0 ? 0.0 : 1.0, .seed = i};
  if (i % 3 == 0) request.sampling.presence_penalty = 0.5;
  if (i % 4 == 0) request.logprobs = 3;
  return request;
}

void expect_no_allocation(Engine& engine, std::uint32_t requests, std::uint32_t tokens) {
  const auto listener = std::make_shared<Counter>();
  for (std::uint32_t i = 0; i < requests; ++i) {
    ASSERT_TRUE(engine.submit(asked(i, engine.vocabulary(), tokens), listener).has_value());
  }
  while (listener->tokens < 3 * requests) ASSERT_TRUE(engine.step());
  const std::uint64_t before = allocations, told = listener->tokens;
  for (std::uint32_t i = 0; i < tokens / 2; ++i) engine.step();
  EXPECT_EQ(allocations - before, 0u);
  EXPECT_EQ(listener->tokens - told, std::uint64_t{requests} * (tokens / 2));
  while (engine.step()) {
  }
}

TEST(EngineHeap, AStepOfRunningAnswersAllocatesNothing) {
  for (const Kind kind : kAllKinds) {
    Fixture fixture({.kind = kind, .engine = {}});
    expect_no_allocation(*fixture.engine, 16, 100);
    Fixture sampling(
        {.kind = kind, .sampling = {.vocabulary = 32, .jobs = 10, .listed = 500, .reported = 30}, .engine = {}});
    expect_no_allocation(*sampling.engine, 16, 100);
  }
}

// What steps cost is told to the tiers every 64 steps.
TEST(EngineHeap, AStepThatKeepsItsCostsAllocatesNothing) {
  tiers::testing::Store store;
  tiers::Tiers tiers({.staging_bytes = 1 << 20});
  auto memory = std::make_unique<tiers::testing::MemoryTier>(TierKind::Disk, store, tiers);
  std::string& note = memory->note;
  note.reserve(1024);
  tiers.add(std::move(memory));
  // Without a prefix cache nothing else goes to the tier.
  Fixture fixture({.prefix_cache = false, .tiers = &tiers, .engine = {.machine = "a machine with some threads"}});
  expect_no_allocation(*fixture.engine, 8, 200);
  EXPECT_NE(note.find("a machine with some threads"), std::string::npos);
}

// Answers grow until one is suspended. Then another is cancelled, and the suspended one is resumed.
TEST(EngineHeap, AStepThatSuspendsOrResumesAllocatesNothing) {
  for (const Kind kind : kGrowingKinds) {
    Fixture fixture({.kind = kind,
                     .budget = 24 << 10,
                     .engine = {.target_itl = std::chrono::microseconds(0), .suspend_by = SuspendBy::Copy}});
    Engine& engine = *fixture.engine;
    const auto listener = std::make_shared<Counter>();
    std::vector<RequestId> ids;
    for (std::uint32_t i = 0; i < 4; ++i) ids.push_back(engine.submit(asked(i, 32, 200), listener).value());
    while (listener->tokens < 12) ASSERT_TRUE(engine.step());
    std::uint64_t counted = 0;
    const auto step = [&] {
      const std::uint64_t before = allocations;
      const bool worked = engine.step();
      counted += allocations - before;
      return worked;
    };
    while (engine.stats().suspensions_by_copy == 0) ASSERT_TRUE(step()) << name(kind);
    engine.cancel(ids[0]);
    engine.cancel(ids[1]);
    while (engine.stats().resumed == 0) ASSERT_TRUE(step()) << name(kind);
    for (int i = 0; i < 10; ++i) ASSERT_TRUE(step());
    EXPECT_EQ(counted, 0u) << name(kind);
    EXPECT_EQ(engine.stats().suspensions_by_recompute, 0u);
    engine.cancel_all();
  }
}

class EngineHeapOnModels : public ::testing::TestWithParam<std::string> {};

TEST_P(EngineHeapOnModels, AStepOfRunningAnswersAllocatesNothing) {
  auto model = model::Model::load(std::string(QUIRE_SOURCE_DIR) + "/" + GetParam());
  ASSERT_TRUE(model.has_value()) << model.error().message;
  auto host = *HostedModel::create(std::move(*model), {.backend = {.threads = 2}, .context = 256, .max_sequences = 8});
  expect_no_allocation(host->engine(), 8, 60);
}

INSTANTIATE_TEST_SUITE_P(Demo, EngineHeapOnModels, model::testing::demo_files(), model::testing::readable);
// With experts, and with sinks.
INSTANTIATE_TEST_SUITE_P(Golden, EngineHeapOnModels,
                         ::testing::Values("testdata/golden/gpt-oss/model.gguf", "testdata/golden/mixtral/model.gguf"),
                         model::testing::readable);

// A table by token took 608 KB for each choice with the vocabulary of Qwen, and a request can have 1,024 choices.
TEST(EngineHeap, PenaltiesTakeMemoryForTheTokensAndNotForTheVocabulary) {
  std::vector<Token> prompt;
  for (Token i = 0; i < 500; ++i) prompt.push_back(i * 397);
  const std::size_t before = quire::testing::live_bytes;
  Sampler sampler({.repetition_penalty = 1.1, .presence_penalty = 1}, 200'000, -1, 600);
  sampler.see_prompt(prompt);
  const std::uint64_t counted = allocations;
  for (Token i = 0; i < 100; ++i) sampler.see(i * 991 + 7);
  EXPECT_EQ(allocations - counted, 0u) << "room for the answer is reserved";
  EXPECT_LT(quire::testing::live_bytes - before, 16u << 10);
}

TEST(EngineHeap, TheCounterCounts) {
  const std::uint64_t before = allocations;
  auto something = std::make_unique<int>(1);
  EXPECT_EQ(*something, 1);
  EXPECT_EQ(allocations - before, 1u);
}

}  // namespace
}  // namespace quire::engine::testing
