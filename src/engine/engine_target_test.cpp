// How long steps are: prompts fill a step up to the target and share it. The model has no weights, and the time that
// its steps take is simulated.
#include <algorithm>
#include <chrono>
#include <vector>

#include <gtest/gtest.h>

#include "quire/engine/cost_model.h"
#include "quire/engine/engine.h"
#include "quire/engine/engine_testing.h"

namespace quire::engine::testing {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// An engine on a machine whose steps take a known time.
struct Machine {
  explicit Machine(std::optional<microseconds> target = {}, std::uint32_t rows = 256) {
    Options options{.budget = 8 << 20, .max_sequences = 32, .max_tokens = 4096, .rows = rows};
    options.engine.target_itl = target;
    options.engine.now = [this] { return now; };
    fixture = std::make_unique<Fixture>(options);
    fixture->model->on_step = [this](const Batch& batch) {
      StepShape shape;
      for (const BatchEntry& entry : batch.entries()) {
        if (entry.rows == 1 && entry.logits == Logits::Last) {
          shape.add_decode(entry.position);
        } else {
          shape.add_prefill(entry.position, entry.rows);
        }
      }
      seconds = costs.seconds(shape);
      prefill_rows = shape.prefill_rows;
      decode_rows = shape.decode_rows;
      prompts = static_cast<std::uint32_t>(batch.entries().size()) - decode_rows;
      now += std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    };
  }
  double elapsed() const { return std::chrono::duration<double>(now.time_since_epoch()).count(); }

  StepCosts costs{
      .base = 0.035, .decode_row = 0.003, .prefill_row = 0.0028, .decode_context = 1e-6, .prefill_context = 1e-7};
  Clock::time_point now{};
  std::unique_ptr<Fixture> fixture;
  double seconds = 0;  // of the last step
  std::uint32_t prefill_rows = 0, decode_rows = 0, prompts = 0;
};

TEST(EngineTarget, PromptsFillAStepUpToTheTarget) {
  for (const int target : {60, 100, 200, 400}) {
    SCOPED_TRACE(target);
    Machine machine(milliseconds{target});
    for (std::uint64_t i = 0; i < 3; ++i) machine.fixture->submit(greedy(some_tokens(20, i), 1000));
    for (int i = 0; i < 30; ++i) machine.fixture->engine->step();
    const auto prompt = machine.fixture->submit(greedy(some_tokens(3000, 9), 1));
    for (int steps = 0; steps < 10; ++steps) machine.fixture->engine->step();  // the predictions become good
    for (int steps = 0; steps < 20 && !prompt->ended; ++steps) {
      machine.fixture->engine->step();
      EXPECT_LE(machine.seconds, target * 1e-3 * 1.02);
      if (!prompt->ended) {
        EXPECT_GE(machine.seconds, target * 1e-3 * 0.75) << machine.prefill_rows;
      }
    }
  }
}

TEST(EngineTarget, WithoutATargetAStepTakesTwiceTheTimeOfDecodeAndAtLeastATenthOfASecond) {
  for (const std::uint32_t decodes : {1u, 30u}) {
    SCOPED_TRACE(decodes);
    Machine machine;
    for (std::uint64_t i = 0; i < decodes; ++i) machine.fixture->submit(greedy(some_tokens(20, i), 1000));
    while (machine.decode_rows < decodes) machine.fixture->engine->step();
    for (int i = 0; i < 20; ++i) machine.fixture->engine->step();
    const double target = std::max(0.1, 2 * machine.seconds);
    machine.fixture->submit(greedy(some_tokens(3000, 99), 1));
    for (int steps = 0; steps < 10; ++steps) machine.fixture->engine->step();
    for (int steps = 0; steps < 20; ++steps) {
      machine.fixture->engine->step();
      EXPECT_LE(machine.seconds, target * 1.03);
      EXPECT_GE(machine.seconds, target * 0.75);
    }
  }
}

TEST(EngineTarget, ThePoolIsToldWhatATokenCosts) {
  Machine machine;
  machine.fixture->submit(greedy(some_tokens(1000), 200));
  machine.fixture->run();
  const RecomputeCosts told = machine.fixture->pool->costs();
  EXPECT_NEAR(told.token, machine.costs.prefill_row, 0.3 * machine.costs.prefill_row);
}

TEST(EngineTarget, ATargetOfZeroMeansThroughput) {
  Machine machine(microseconds{0});
  machine.fixture->submit(greedy(some_tokens(20), 1000));
  for (int i = 0; i < 10; ++i) machine.fixture->engine->step();
  machine.fixture->submit(greedy(some_tokens(3000, 2), 1));
  machine.fixture->engine->step();
  machine.fixture->engine->step();
  EXPECT_EQ(machine.prefill_rows + machine.decode_rows, 256u);
}

TEST(EngineTarget, PromptsGetOnEvenIfDecodeAloneTakesLongerThanTheTarget) {
  Machine machine(milliseconds{1});
  machine.fixture->submit(greedy(some_tokens(20), 4000));
  for (int i = 0; i < 10; ++i) machine.fixture->engine->step();
  const auto prompt = machine.fixture->submit(greedy(some_tokens(200, 2), 1));
  for (int steps = 0; steps < 400 && !prompt->ended; ++steps) machine.fixture->engine->step();
  EXPECT_TRUE(prompt->ended);
}

TEST(EngineTarget, SeveralPromptsShareAStep) {
  Machine machine;
  machine.fixture->submit(greedy(some_tokens(20), 1000));
  for (int i = 0; i < 20; ++i) machine.fixture->engine->step();
  for (std::uint64_t i = 0; i < 3; ++i) machine.fixture->submit(greedy(some_tokens(5, 10 + i), 1));
  machine.fixture->engine->step();
  EXPECT_EQ(machine.prompts, 3u);
  EXPECT_EQ(machine.prefill_rows, 15u);
}

TEST(EngineTarget, AShortPromptIsNotStuckBehindALongOne) {
  Machine machine;
  machine.fixture->submit(greedy(some_tokens(20), 1000));
  for (int i = 0; i < 20; ++i) machine.fixture->engine->step();
  const auto long_one = machine.fixture->submit(greedy(some_tokens(2000, 2), 1));
  for (int i = 0; i < 5; ++i) machine.fixture->engine->step();
  const auto short_one = machine.fixture->submit(greedy(some_tokens(30, 3), 1));
  for (int i = 0; i < 3; ++i) machine.fixture->engine->step();
  EXPECT_TRUE(short_one->ended);
  EXPECT_FALSE(long_one->ended);
  machine.fixture->engine->cancel_all();
}

TEST(EngineTarget, ALongPromptIsNotStarvedByShortOnes) {
  Machine machine;
  machine.fixture->submit(greedy(some_tokens(20), 4000));
  for (int i = 0; i < 20; ++i) machine.fixture->engine->step();
  const double began = machine.elapsed();
  const auto long_one = machine.fixture->submit(greedy(some_tokens(1000, 2), 1));
  // More short prompts than the machine can compute.
  for (std::uint64_t i = 0; i < 4000 && !long_one->ended; ++i) {
    machine.fixture->submit(greedy(some_tokens(30, 100 + i), 1));
    machine.fixture->engine->step();
  }
  EXPECT_TRUE(long_one->ended);
  // Alone it takes 2.8 s of computing; beside decode about twice that. It is overtaken for as long as it waits at most.
  EXPECT_LT(machine.elapsed() - began, 25);
  machine.fixture->engine->cancel_all();
}

}  // namespace
}  // namespace quire::engine::testing
