#include "quire/engine/cost_model.h"

#include <random>
#include <string>

#include <gtest/gtest.h>

namespace quire::engine {
namespace {

// A machine: what its steps cost, with some noise.
struct Machine {
  StepCosts truth{
      .base = 0.035, .decode_row = 0.003, .prefill_row = 0.0028, .decode_context = 1e-6, .prefill_context = 1e-7};
  std::mt19937_64 random{1};
  double noise = 0.02;

  double step(const StepShape& shape) {
    return truth.seconds(shape) * std::normal_distribution<double>(1, noise)(random);
  }
  std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); }
  // A step as a server has them: some sequences decode, and most of the time a prompt is computed beside them.
  StepShape some_step() {
    StepShape shape;
    for (std::uint32_t i = below(9); i > 0; --i) shape.add_decode(100 + below(2000));
    if (shape.decode_rows == 0 || below(3) != 0) shape.add_prefill(below(2000), 1 + below(60));
    return shape;
  }
};

StepShape decodes(std::uint32_t rows, std::uint32_t position) {
  StepShape shape;
  for (std::uint32_t i = 0; i < rows; ++i) shape.add_decode(position);
  return shape;
}

StepShape prefill(std::uint32_t position, std::uint32_t rows) {
  StepShape shape;
  shape.add_prefill(position, rows);
  return shape;
}

void expect_right(const CostModel& model, const Machine& machine, double tolerance) {
  for (const StepShape& shape :
       {decodes(1, 500), decodes(8, 500), decodes(8, 2000), prefill(0, 60), prefill(1500, 60)}) {
    const double truth = machine.truth.seconds(shape);
    EXPECT_NEAR(model.costs().seconds(shape), truth, tolerance * truth)
        << shape.decode_rows << " decodes, " << shape.prefill_rows << " rows of prompts";
  }
}

TEST(CostModel, KnowsNothingBeforeTheFirstMeasurement) {
  const CostModel model;
  EXPECT_FALSE(model.knows_anything());
  EXPECT_EQ(model.costs().seconds(decodes(8, 100)), 0);
  EXPECT_EQ(model.costs().prefill_rows_within(0.1, 0, 256), 256u);
}

TEST(CostModel, StartsWithWhatItIsToldAndLearnsFromThere) {
  Machine machine;
  CostModel model;
  model.start_with(machine.truth);
  EXPECT_TRUE(model.knows_anything());
  expect_right(model, machine, 1e-9);
  for (int i = 0; i < 5; ++i) {
    const StepShape shape = machine.some_step();
    model.learn(shape, machine.step(shape));
  }
  expect_right(model, machine, 0.1);
  // It was told of another machine.
  StepCosts slower = machine.truth;
  slower.base *= 3, slower.decode_row *= 3, slower.prefill_row *= 3;
  CostModel wrong;
  wrong.start_with(slower);
  for (int i = 0; i < 300; ++i) {
    const StepShape shape = machine.some_step();
    wrong.learn(shape, machine.step(shape));
  }
  expect_right(wrong, machine, 0.15);
}

TEST(CostModel, CostsAreALineOfText) {
  const StepCosts costs = Machine().truth;
  std::string text = "something else";
  to_text(costs, "model 2 threads", text);
  EXPECT_EQ(text.find('\n'), std::string::npos);
  const auto read = costs_from_text(text, "model 2 threads");
  ASSERT_TRUE(read.has_value()) << text;
  EXPECT_DOUBLE_EQ(read->base, costs.base);
  EXPECT_DOUBLE_EQ(read->prefill_context, costs.prefill_context);
  EXPECT_FALSE(costs_from_text(text, "model 3 threads"));
  EXPECT_FALSE(costs_from_text(text, "model 2 thread"));
  EXPECT_FALSE(costs_from_text(text + " 1", "model 2 threads"));
  EXPECT_FALSE(costs_from_text(text + "\n", "model 2 threads"));
  for (std::size_t length = 0; length + 13 < text.size(); ++length) {
    EXPECT_FALSE(costs_from_text(text.substr(0, length), "model 2 threads")) << length;
  }
  const std::string begin = "quire step costs 1: m";
  EXPECT_TRUE(costs_from_text(begin + " 1e-2 1e-3 1e-3 0 0 0", "m"));
  EXPECT_FALSE(costs_from_text(begin + " 0 1e-3 1e-3 0 0 0", "m")) << "a step that costs nothing";
  EXPECT_FALSE(costs_from_text(begin + " -1 1e-3 1e-3 0 0 0", "m"));
  EXPECT_FALSE(costs_from_text(begin + " nan 1e-3 1e-3 0 0 0", "m"));
  EXPECT_FALSE(costs_from_text(begin + " 1e-2 inf 1e-3 0 0 0", "m"));
  EXPECT_FALSE(costs_from_text("", "m"));
}

TEST(CostModel, AFewStepsAreEnoughForARoughPrediction) {
  Machine machine;
  CostModel model;
  for (const StepShape& shape : {prefill(0, 256), prefill(256, 200), decodes(1, 456), decodes(1, 457)}) {
    model.learn(shape, machine.step(shape));
  }
  for (const StepShape& shape : {prefill(0, 100), decodes(1, 460)}) {
    EXPECT_NEAR(model.costs().seconds(shape), machine.truth.seconds(shape), 0.25 * machine.truth.seconds(shape));
  }
}

TEST(CostModel, LearnsWhatEachPartCostsFromMixedSteps) {
  Machine machine;
  CostModel model;
  for (int i = 0; i < 500; ++i) {
    const StepShape shape = machine.some_step();
    model.learn(shape, machine.step(shape));
  }
  expect_right(model, machine, 0.1);
}

// Steps whose time says nothing about a base, as those of a tiny model on a busy machine: without a floor the base
// fell to 0, and what was learned was then no costs for `quire simulate` nor for the next server.
TEST(CostModel, AStepAndARowNeverCostNothing) {
  Machine machine;
  machine.truth = {.prefill_row = 1e-5, .prefill_context = 1e-6};
  CostModel model;
  for (int i = 0; i < 2000; ++i) {
    const StepShape shape = machine.some_step();
    model.learn(shape, machine.step(shape));
    ASSERT_GT(model.costs().base, 0) << i;
    ASSERT_GT(model.costs().decode_row, 0) << i;
    ASSERT_GT(model.costs().prefill_row, 0) << i;
    std::string text;
    to_text(model.costs(), "x", text);
    ASSERT_TRUE(costs_from_text(text, "x")) << i;
  }
}

TEST(CostModel, StepsThatSomethingElseDelayedChangeLittle) {
  Machine machine;
  CostModel model;
  for (int i = 0; i < 1000; ++i) {
    const StepShape shape = machine.some_step();
    model.learn(shape, machine.step(shape) * (machine.below(20) == 0 ? 10 : 1));
  }
  expect_right(model, machine, 0.2);
}

TEST(CostModel, FollowsAMachineThatBecomesSlowerOrFaster) {
  for (const double factor : {3.0, 0.4}) {
    Machine machine;
    CostModel model;
    const auto run = [&](int steps) {
      for (int i = 0; i < steps; ++i) {
        const StepShape shape = machine.some_step();
        model.learn(shape, machine.step(shape));
      }
    };
    run(500);
    for (double* number : {&machine.truth.base, &machine.truth.decode_row, &machine.truth.prefill_row,
                           &machine.truth.decode_context, &machine.truth.prefill_context}) {
      *number *= factor;
    }
    run(300);
    expect_right(model, machine, 0.15);
  }
}

TEST(CostModel, DecodeAloneForHoursDoesNotForgetWhatPromptsCost) {
  Machine machine;
  CostModel model;
  for (int i = 0; i < 300; ++i) {
    const StepShape shape = machine.some_step();
    model.learn(shape, machine.step(shape));
  }
  for (int i = 0; i < 100'000; ++i) model.learn(decodes(4, 1000), machine.step(decodes(4, 1000)));
  expect_right(model, machine, 0.3);
}

TEST(CostModel, LatenessCoversAlmostAllSteps) {
  Machine machine;
  machine.noise = 0.08;
  CostModel model;
  int late = 0;
  for (int i = 0; i < 20'000; ++i) {
    const StepShape shape = machine.some_step();
    const double seconds = machine.step(shape);
    late += i >= 2000 && seconds > model.lateness() * model.costs().seconds(shape);
    model.learn(shape, seconds);
  }
  EXPECT_GT(late, 18'000 / 400);
  EXPECT_LT(late, 18'000 / 40);
}

TEST(CostModel, RowsWithinATimeAreTheMostThatFit) {
  const StepCosts costs = Machine().truth;
  for (const std::uint32_t position : {0u, 1000u, 30'000u}) {
    const std::uint32_t rows = costs.prefill_rows_within(0.5, position, 100'000);
    EXPECT_LE(costs.prefill_seconds(position, rows), 0.5 * 1.01);
    EXPECT_GE(costs.prefill_seconds(position, rows + 2), 0.5 * 0.99);
  }
  EXPECT_EQ(costs.prefill_rows_within(0.5, 0, 10), 10u);
  EXPECT_EQ(costs.prefill_rows_within(0, 0, 10), 0u);
  EXPECT_EQ(costs.prefill_rows_within(-1, 0, 10), 0u);
}

TEST(CostModel, ImpossibleMeasurementsAreIgnored) {
  CostModel model;
  model.learn(decodes(1, 1), 0);
  model.learn(decodes(1, 1), -1);
  model.learn({}, 1);
  EXPECT_FALSE(model.knows_anything());
}

}  // namespace
}  // namespace quire::engine
