// The published shapes at full size, without writing them, and the values of small ones.
#include "quire/bench/synth/plan.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/bench/synth/random.h"
#include "quire/bench/synth/synth_testing.h"
#include "quire/gguf/gguf.h"
#include "quire/gguf/gguf_testing.h"

namespace quire::synth {
namespace {

using gguf::Type;
using gguf::testing::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::Pair;

std::vector<Tensor> tensors_of(std::string_view name, std::string_view type) {
  const auto plan = Plan::make(*find_shape(name), *find_mix(type));
  EXPECT_TRUE(plan) << plan.error().message;
  return plan ? plan->tensors() : std::vector<Tensor>();
}

Type type_of(const std::vector<Tensor>& tensors, std::string_view name) {
  const auto found = std::ranges::find(tensors, name, &Tensor::name);
  EXPECT_NE(found, tensors.end()) << name;
  return found == tensors.end() ? Type::F64 : found->type;
}

std::map<std::string, int> counts_of(std::string_view name, std::string_view type) {
  std::map<std::string, int> counts;
  for (const Tensor& tensor : tensors_of(name, type)) ++counts[std::string(gguf::type_name(tensor.type))];
  return counts;
}

// What llama.cpp prints of ggml-org/gpt-oss-20b-GGUF and of Qwen/Qwen3-30B-A3B-GGUF.
TEST(PublishedFiles, HaveAsManyTensorsOfEachType) {
  EXPECT_THAT(counts_of("gpt-oss-20b", "MXFP4_MOE"),
              ElementsAre(Pair("F32", 289), Pair("MXFP4", 72), Pair("Q8_0", 98)));
  EXPECT_THAT(counts_of("qwen3-30b-a3b", "Q4_K_M"), ElementsAre(Pair("F32", 241), Pair("Q4_K", 289), Pair("Q6_K", 49)));
}

TEST(PublishedFiles, AreAsLarge) {
  const auto gigabytes = [](std::string_view name, std::string_view type) {
    return static_cast<double>(summarize(*find_shape(name), type)->bytes) / 1e9;
  };
  EXPECT_NEAR(gigabytes("gpt-oss-20b", "MXFP4_MOE"), 12.1, 0.05);
  EXPECT_NEAR(gigabytes("qwen3-30b-a3b", "Q4_K_M"), 18.6, 0.1);
}

TEST(PublishedFiles, RowsThatDoNotFitHaveTheFallbackOfEachRole) {
  const std::vector<Tensor> tensors = tensors_of("deepseek-v2-lite", "Q4_K_M");
  EXPECT_EQ(type_of(tensors, "blk.0.ffn_down.weight"), Type::Q8_0);       // 10944, Q6_K in the first layers
  EXPECT_EQ(type_of(tensors, "blk.1.ffn_down_exps.weight"), Type::Q8_0);  // 1408
  EXPECT_EQ(type_of(tensors, "blk.4.ffn_down_exps.weight"), Type::Q5_0);
  EXPECT_EQ(type_of(tensors, "blk.4.ffn_down_shexp.weight"), Type::Q4_K);  // 2816
  EXPECT_EQ(type_of(tensors, "blk.4.attn_k_b.weight"), Type::Q5_0);        // 128
  EXPECT_EQ(type_of(tensors, "blk.4.attn_v_b.weight"), Type::Q4_K);
  EXPECT_EQ(type_of(tensors, "blk.4.ffn_gate_inp.weight"), Type::F32);
  EXPECT_EQ(type_of(tensors_of("mamba-370m", "Q4_K_M"), "blk.0.ssm_dt.weight"), Type::Q5_0);  // 64
}

// llama.cpp counts the joint projections of recurrent layers and the values of attention layers together.
TEST(PublishedFiles, JointProjectionsOfTheDeltaRuleAreQuantisedLikeValues) {
  const std::vector<Tensor> tensors = tensors_of("qwen35-2b", "Q4_K_M");
  EXPECT_EQ(type_of(tensors, "blk.0.attn_qkv.weight"), Type::Q6_K);
  EXPECT_EQ(type_of(tensors, "blk.4.attn_qkv.weight"), Type::Q4_K);
  EXPECT_EQ(type_of(tensors, "blk.5.attn_qkv.weight"), Type::Q6_K);
  EXPECT_EQ(type_of(tensors, "blk.7.attn_v.weight"), Type::Q4_K);
  EXPECT_EQ(type_of(tensors, "blk.23.attn_v.weight"), Type::Q6_K);
}

TEST(PublishedFiles, AttentionAndExpertsAreInTheLayersOfTheModel) {
  const auto layers_with = [](std::string_view shape, std::string_view name) {
    std::vector<std::uint32_t> layers;
    const std::vector<Tensor> tensors = tensors_of(shape, "Q8_0");
    for (std::uint32_t i = 0; i < find_shape(shape)->layers; ++i) {
      const std::string wanted = fmt::format("blk.{}.{}", i, name);
      if (std::ranges::find(tensors, wanted, &Tensor::name) != tensors.end()) layers.push_back(i);
    }
    return layers;
  };
  EXPECT_THAT(layers_with("lfm2-1.2b", "attn_k.weight"), ElementsAre(2, 5, 8, 10, 12, 14));
  EXPECT_EQ(layers_with("lfm2-1.2b", "shortconv.conv.weight").size(), 10u);
  EXPECT_THAT(layers_with("lfm2-8b-a1b", "attn_k.weight"), ElementsAre(2, 6, 10, 14, 18, 21));
  EXPECT_THAT(layers_with("lfm2-8b-a1b", "ffn_gate.weight"), ElementsAre(0, 1));
  EXPECT_EQ(layers_with("lfm2-8b-a1b", "ffn_gate_exps.weight").size(), 22u);
  EXPECT_THAT(layers_with("qwen35-2b", "attn_k.weight"), ElementsAre(3, 7, 11, 15, 19, 23));
  EXPECT_EQ(layers_with("qwen35-2b", "attn_qkv.weight").size(), 18u);
  EXPECT_EQ(layers_with("falcon-h1-0.5b", "attn_k.weight").size(), 36u);
  EXPECT_EQ(layers_with("falcon-h1-0.5b", "ssm_in.weight").size(), 36u);
  EXPECT_THAT(layers_with("granite-h-tiny", "attn_k.weight"), ElementsAre(5, 15, 25, 35));
  EXPECT_EQ(layers_with("granite-h-tiny", "ffn_up_exps.weight").size(), 40u);
  EXPECT_THAT(layers_with("deepseek-v2-lite", "ffn_gate.weight"), ElementsAre(0));
  EXPECT_EQ(layers_with("mamba-370m", "attn_k.weight").size(), 0u);
}

std::vector<float> values_of(const gguf::File& file, const std::string& name) {
  const auto tensor = file.find_tensor(name);
  EXPECT_TRUE(tensor) << name;
  if (!tensor) return {};
  std::vector<float> values(tensor->elements());
  EXPECT_TRUE(gguf::dequantize(tensor->type, tensor->data, values)) << name;
  return values;
}

Result<gguf::File> written(const TemporaryFolder& folder, const Shape& shape) {
  const auto ok = write_model(shape, "F16", 1, folder / "model.gguf", {});
  EXPECT_TRUE(ok) << ok.error().message;
  return gguf::File::open(folder / "model.gguf");
}

// States would grow without limit if A were positive, and be lost at once if the steps were large.
TEST(Values, RecurrencesDecay) {
  const TemporaryFolder folder;
  for (const char* name : {"mamba-370m", "qwen35-2b", "falcon-h1-0.5b", "granite-h-tiny"}) {
    const auto file = written(folder, testing::small(name));
    ASSERT_TRUE(file) << file.error().message;
    const std::vector<float> a = values_of(*file, "blk.0.ssm_a"), steps = values_of(*file, "blk.0.ssm_dt.bias");
    const auto [least, most] = std::ranges::minmax(a);
    EXPECT_LT(most, 0) << name;
    EXPECT_GT(least, -60) << name;
    for (const float step : steps) {
      ASSERT_GT(step, -7) << name;
      ASSERT_LT(step, -2) << name;
    }
  }
}

TEST(Values, EachChannelOfMamba1HasStatesThatLastFromLongToShort) {
  const TemporaryFolder folder;
  const auto file = written(folder, testing::small("mamba-370m"));
  ASSERT_TRUE(file) << file.error().message;
  const std::vector<float> a = values_of(*file, "blk.0.ssm_a");
  for (std::size_t i = 0; i < a.size(); ++i) {
    const auto rank = static_cast<float>(i % 32 + 1);
    ASSERT_NEAR(-a[i] / rank, 1, 0.4);
  }
}

// The keys of latent attention have the size of other keys, though their projection is transposed in the file.
TEST(Values, OfLatentKeysFollowFromTheRankAndNotFromTheRow) {
  const TemporaryFolder folder;
  const auto file = written(folder, testing::small("deepseek-v2-lite"));
  ASSERT_TRUE(file) << file.error().message;
  const auto deviation = [&](const std::string& name) {
    const std::vector<float> values = values_of(*file, name);
    return std::sqrt(std::inner_product(values.begin(), values.end(), values.begin(), 0.0) /
                     static_cast<double>(values.size()));
  };
  EXPECT_NEAR(deviation("blk.0.attn_k_b.weight"), 1.0 / 16, 0.002);  // rank 256, rows of 32
  EXPECT_NEAR(deviation("blk.0.attn_v_b.weight"), 1.0 / 16, 0.002);
}

// Tokens choose their experts evenly: none is chosen much more often than its share, and none never.
TEST(Values, RoutersSpreadTokensOverAllExperts) {
  const TemporaryFolder folder;
  constexpr std::size_t kTokens = 2000;
  for (const char* name : {"olmoe-1b-7b", "gpt-oss-20b", "lfm2-8b-a1b"}) {
    const Shape shape = testing::small(name);
    const auto file = written(folder, shape);
    ASSERT_TRUE(file) << file.error().message;
    const std::vector<float> router = values_of(*file, "blk.1.ffn_gate_inp.weight");
    std::vector<std::size_t> chosen(shape.experts);
    for (std::size_t token = 0; token < kTokens; ++token) {
      const Stream stream(99, token);
      std::vector<std::pair<double, std::size_t>> scores;
      for (std::size_t expert = 0; expert < shape.experts; ++expert) {
        double score = 0;
        for (std::size_t i = 0; i < shape.embedding; ++i)
          score += stream.normal(i) * router[expert * shape.embedding + i];
        scores.emplace_back(score, expert);
      }
      std::ranges::sort(scores, std::greater());
      for (std::size_t i = 0; i < shape.experts_used; ++i) ++chosen[scores[i].second];
    }
    const double share = static_cast<double>(kTokens * shape.experts_used) / shape.experts;
    for (const std::size_t times : chosen) {
      EXPECT_GT(static_cast<double>(times), 0.5 * share) << name;
      EXPECT_LT(static_cast<double>(times), 2 * share) << name;
    }
  }
}

}  // namespace
}  // namespace quire::synth
