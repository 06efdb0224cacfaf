#include "quire/model/constants.h"

#include <cmath>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/model/model_testing.h"

namespace quire::model {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatEq;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::OpenedModel;
using ::testing::SizeIs;
using testing::TestModel;

Result<Constants> read(const TestModel& model) {
  const OpenedModel opened(model);
  const auto hyperparameters = read_hyperparameters(*opened.file);
  if (!hyperparameters) return std::unexpected(hyperparameters.error());
  return read_constants(*opened.file, *hyperparameters);
}

Constants constants(const TestModel& model) {
  auto read_ones = read(model);
  EXPECT_TRUE(read_ones) << read_ones.error().message;
  return read_ones ? std::move(*read_ones) : Constants();
}

std::string refusal(const TestModel& model) {
  const auto read_ones = read(model);
  return read_ones ? "(it was read)" : read_ones.error().message;
}

// The frequencies of a head of 8 elements, divided by a factor.
auto angles(float base, float factor) {
  return ElementsAre(FloatEq(1 / factor), FloatEq(std::pow(base, -0.25f) / factor),
                     FloatEq(std::pow(base, -0.5f) / factor), FloatEq(std::pow(base, -0.75f) / factor));
}

TEST(Constants, AMissingEpsilonIsNamed) {
  EXPECT_EQ(constants(TestModel::attention("llama").set("attention.layer_norm_rms_epsilon", 1e-3F)).epsilon, 1e-3F);
  EXPECT_THAT(refusal(TestModel::attention("llama").remove("attention.layer_norm_rms_epsilon")),
              HasSubstr("has no metadata 'llama.attention.layer_norm_rms_epsilon'"));
  EXPECT_THAT(refusal(TestModel::recurrent("mamba2").remove("attention.layer_norm_rms_epsilon")),
              HasSubstr("has no metadata 'mamba2.attention.layer_norm_rms_epsilon'"));
}

TEST(Constants, Gemma2CapsItsScoresAndLogitsAlsoWhereAFileDoesNotSaySo) {
  const Constants silent = constants(TestModel::attention("gemma2"));
  EXPECT_EQ(silent.attention_cap, 50.0f);
  EXPECT_EQ(silent.logit_cap, 30.0f);
  const Constants outspoken = constants(
      TestModel::attention("gemma2").set("attn_logit_softcapping", 5.0F).set("final_logit_softcapping", 3.0F));
  EXPECT_EQ(outspoken.attention_cap, 5.0f);
  EXPECT_EQ(outspoken.logit_cap, 3.0f);
  for (const char* other : {"gemma3", "llama", "qwen3"}) {
    EXPECT_EQ(constants(TestModel::attention(other)).attention_cap, 0.0f);
    EXPECT_EQ(constants(TestModel::attention(other)).logit_cap, 0.0f);
  }
}

TEST(Constants, AGraniteHybridRotatesUnlessItsFileSaysNo) {
  const TestModel model = TestModel::hybrid("granitehybrid", {0, 1});
  EXPECT_THAT(constants(model).frequencies, SizeIs(4));
  EXPECT_THAT(constants(TestModel(model).set("rope.scaling.finetuned", true)).frequencies, SizeIs(4));
  EXPECT_THAT(constants(TestModel(model).set("rope.scaling.finetuned", false)).frequencies, IsEmpty());
  // In other architectures the key has another meaning.
  EXPECT_THAT(constants(TestModel::attention("llama").set("rope.scaling.finetuned", false)).frequencies, SizeIs(4));
}

TEST(Constants, AFactorWithoutAKindOfScalingStretchesAllFrequencies) {
  const TestModel model = TestModel::attention("llama");
  EXPECT_THAT(constants(model).frequencies, angles(10000, 1));
  EXPECT_THAT(constants(TestModel(model).set("rope.scaling.factor", 4.0F)).frequencies, angles(10000, 4));
  EXPECT_THAT(constants(TestModel(model).set("rope.scale_linear", 4.0F)).frequencies, angles(10000, 4));
  EXPECT_THAT(constants(TestModel(model).set("rope.scaling.factor", 4.0F).set("rope.scale_linear", 2.0F)).frequencies,
              angles(10000, 4));
  EXPECT_THAT(constants(TestModel(model).set("rope.scaling.type", std::string("linear"))).frequencies,
              angles(10000, 1));
  // Some files have 0 for "none".
  EXPECT_THAT(constants(TestModel(model).set("rope.scaling.factor", 0.0F)).frequencies, angles(10000, 1));
  EXPECT_THAT(refusal(TestModel(model).set("rope.scaling.factor", -1.0F)), HasSubstr("'llama.rope.scaling.factor'"));
}

TEST(Constants, NoScalingMeansNoFactor) {
  const TestModel model = TestModel::attention("llama").set("rope.scaling.type", std::string("none"));
  EXPECT_THAT(constants(TestModel(model).set("rope.scaling.factor", 4.0F)).frequencies, angles(10000, 1));
  EXPECT_THAT(constants(TestModel(model).set("rope.scale_linear", 4.0F)).frequencies, angles(10000, 1));
}

TEST(Constants, LayersWithAWindowAndABaseOfTheirOwnAreNotStretched) {
  const Constants gemma = constants(TestModel::attention("gemma3")
                                        .set("attention.sliding_window", 16U)
                                        .set("rope.freq_base", 1000000.0F)
                                        .set("rope.scaling.factor", 8.0F));
  EXPECT_THAT(gemma.frequencies, angles(1000000, 8));
  EXPECT_THAT(gemma.window_frequencies, angles(10000, 1));
}

TEST(Constants, OtherScalingsAreRefusedByName) {
  for (const char* kind : {"yarn", "longrope", "dynamic"}) {
    EXPECT_THAT(refusal(TestModel::attention("qwen2").set("rope.scaling.type", std::string(kind))),
                HasSubstr("'qwen2.rope.scaling.type': rotary scaling '" + std::string(kind) + "'"));
  }
  for (const char* tensor : {"rope_factors_long.weight", "rope_factors_short.weight"}) {
    EXPECT_THAT(refusal(TestModel::attention("phi3").tensor(tensor, {4})), HasSubstr(tensor));
  }
  EXPECT_THAT(refusal(TestModel::attention("phi3").set("rope.scaling.attn_factor", 1.19F)),
              HasSubstr("'phi3.rope.scaling.attn_factor'"));
  EXPECT_EQ(constants(TestModel::attention("phi3").set("rope.scaling.attn_factor", 1.0F)).frequencies.size(), 4u);
  EXPECT_THAT(refusal(TestModel::attention("llama").set("rope.scaling.type", std::string("\x1b[31m"))),
              HasSubstr("'\\x1b[31m'"));
}

}  // namespace
}  // namespace quire::model
