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
using ::testing::Pointwise;
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
  for (const char* kind : {"dynamic", "su"}) {
    EXPECT_THAT(refusal(TestModel::attention("qwen2").set("rope.scaling.type", std::string(kind))),
                HasSubstr("'qwen2.rope.scaling.type': rotary scaling '" + std::string(kind) + "'"));
  }
  EXPECT_THAT(refusal(TestModel::attention("llama").set("rope.scaling.type", std::string("\x1b[31m"))),
              HasSubstr("'\\x1b[31m'"));
}

TEST(Constants, YarnScalesEveryArchitectureAlike) {
  for (const char* name : {"llama", "qwen2", "qwen3"}) {
    const TestModel model = TestModel::attention(name)
                                .set("context_length", 4096U)
                                .set("rope.scaling.type", std::string("yarn"))
                                .set("rope.scaling.factor", 4.0F)
                                .set("rope.scaling.original_context_length", 1024U);
    std::vector<float> expected = {1.0f, 0.1f, 0.01f, 0.001f};
    apply_yarn(expected, {.factor = 4, .original_length = 1024});
    const Constants read_ones = constants(model);
    EXPECT_THAT(read_ones.frequencies, Pointwise(FloatEq(), expected));
    EXPECT_THAT(read_ones.window_frequencies, Pointwise(FloatEq(), expected));
    EXPECT_FLOAT_EQ(read_ones.rope_magnitude, yarn_magnitude(4));
    // A file without a factor: as many times as the context became longer.
    EXPECT_EQ(constants(TestModel(model).remove("rope.scaling.factor")).frequencies, read_ones.frequencies);
  }
}

TEST(Constants, YarnsNumbersAreTheFiles) {
  const TestModel model = TestModel::attention("llama")
                              .set("rope.scaling.type", std::string("yarn"))
                              .set("rope.scaling.factor", 8.0F)
                              .set("rope.scaling.original_context_length", 64U);
  const auto with = [&](const char* name, float value) { return constants(TestModel(model).set(name, value)); };
  EXPECT_FLOAT_EQ(with("rope.scaling.attn_factor", 0.5F).rope_magnitude, yarn_magnitude(8) * 0.5f);
  EXPECT_FLOAT_EQ(with("rope.scaling.yarn_attn_factor", 1.5F).rope_magnitude, 1.5f);
  EXPECT_FLOAT_EQ(with("rope.scaling.yarn_log_multiplier", 1.0F).rope_magnitude, 1.0f);
  EXPECT_EQ(with("rope.scaling.yarn_ext_factor", 0.0F).rope_magnitude, 1.0f);
  EXPECT_THAT(with("rope.scaling.yarn_ext_factor", 0.0F).frequencies, angles(10000, 8));
  std::vector<float> narrow = {1.0f, 0.1f, 0.01f, 0.001f};
  apply_yarn(narrow, {.factor = 8, .original_length = 64, .beta_fast = 4, .beta_slow = 2});
  const Constants betas =
      constants(TestModel(model).set("rope.scaling.yarn_beta_fast", 4.0F).set("rope.scaling.yarn_beta_slow", 2.0F));
  EXPECT_THAT(betas.frequencies, Pointwise(FloatEq(), narrow));
  EXPECT_THAT(refusal(TestModel(model).set("rope.scaling.yarn_beta_fast", 0.0F)), HasSubstr("yarn_beta_fast"));
  EXPECT_THAT(refusal(TestModel(model).set("rope.scaling.original_context_length", 0U)),
              HasSubstr("original_context_length"));
  EXPECT_THAT(refusal(TestModel(model).set("rope.freq_base", 1.0F)), HasSubstr("rope.freq_base"));
}

TEST(Constants, WindowsOfOlmo3AreNotScaled) {
  const Constants olmo = constants(TestModel::attention("olmo2", 4)
                                       .set("attention.sliding_window", 16U)
                                       .set("rope.scaling.type", std::string("yarn"))
                                       .set("rope.scaling.factor", 8.0F)
                                       .set("rope.scaling.original_context_length", 64U));
  EXPECT_THAT(olmo.window_frequencies, angles(10000, 1));
  EXPECT_EQ(olmo.window_rope_magnitude, 1.0f);
  EXPECT_NE(olmo.frequencies, olmo.window_frequencies);
  EXPECT_FLOAT_EQ(olmo.rope_magnitude, yarn_magnitude(8));
}

// The zeros of a model without weights are no factors; these tests read the golden one.
class LongRope : public ::testing::Test {
 protected:
  Constants with_context(std::uint32_t context) const {
    auto read_ones = read_constants(*file_, *read_hyperparameters(*file_), context);
    EXPECT_TRUE(read_ones) << read_ones.error().message;
    return read_ones ? std::move(*read_ones) : Constants();
  }
  std::vector<float> factors(const char* name) const {
    std::vector<float> values(8);
    EXPECT_TRUE(gguf::dequantize(gguf::Type::F32, file_->tensor(name)->data, values));
    return values;
  }
  const Result<gguf::File> file_ = gguf::File::open(QUIRE_SOURCE_DIR "/testdata/golden/phi3-longrope/model.gguf");
};

TEST_F(LongRope, TheContextThatWasAskedForDecidesBetweenLongAndShortFactors) {
  const std::vector<float> longer = factors("rope_factors_long.weight"), shorter = factors("rope_factors_short.weight");
  ASSERT_NE(longer, shorter);
  std::vector<float> by_long, by_short;
  for (std::uint32_t i = 0; i < 8; ++i) {
    const float own = std::pow(10000.0f, -2.0f * static_cast<float>(i) / 16);
    by_long.push_back(own / longer[i]);
    by_short.push_back(own / shorter[i]);
  }
  // 0: the 512 tokens that the model was trained for. Its first training had 64.
  for (const std::uint32_t context : {0u, 65u, 512u}) {
    EXPECT_THAT(with_context(context).frequencies, Pointwise(FloatEq(), by_long)) << context;
    EXPECT_TRUE(with_context(context).rope_scaling.long_factors);
  }
  for (const std::uint32_t context : {1u, 64u}) {
    EXPECT_THAT(with_context(context).frequencies, Pointwise(FloatEq(), by_short)) << context;
    EXPECT_FALSE(with_context(context).rope_scaling.long_factors);
  }
  EXPECT_FLOAT_EQ(with_context(0).rope_magnitude, 1.22474492f);
  EXPECT_FLOAT_EQ(with_context(64).rope_magnitude, 1.22474492f);
}

TEST(Constants, HalfOfTheFactorsOfLongropeAreRefused) {
  EXPECT_THAT(refusal(TestModel::attention("phi3").tensor("rope_factors_long.weight", {4})),
              HasSubstr("has no tensor 'rope_factors_short.weight'"));
  EXPECT_THAT(refusal(TestModel::attention("phi3").tensor("rope_factors_short.weight", {4})),
              HasSubstr("has no tensor 'rope_factors_long.weight'"));
  EXPECT_THAT(refusal(TestModel::attention("phi3").set("rope.scaling.type", std::string("longrope"))),
              HasSubstr("has no tensor 'rope_factors_long.weight'"));
  const TestModel both =
      TestModel::attention("phi3").tensor("rope_factors_long.weight", {4}).tensor("rope_factors_short.weight", {4});
  EXPECT_THAT(refusal(both), HasSubstr("which is not a valid factor"));
  EXPECT_THAT(refusal(TestModel(both).set("rope.scaling.type", std::string("yarn"))), HasSubstr("'yarn' beside"));
  EXPECT_THAT(refusal(TestModel(both).set("rope.scaling.factor", 4.0F)), HasSubstr("'phi3.rope.scaling.factor'"));
}

}  // namespace
}  // namespace quire::model
