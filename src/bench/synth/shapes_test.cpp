#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/bench/synth/synth.h"
#include "quire/bench/synth/synth_testing.h"

namespace quire::synth {
namespace {

using testing::small;
using ::testing::StartsWith;

std::uint64_t parameters(std::string_view name) {
  const auto summary = summarize(*find_shape(name), "Q8_0");
  EXPECT_TRUE(summary) << summary.error().message;
  return summary ? summary->parameters : 0;
}

// The known totals of the real models, so that a mistake in a shape is noticed.
TEST(Shapes, HaveTheParametersOfTheModelsThatTheyAreNamedAfter) {
  EXPECT_EQ(parameters("llama-1.1b"), 1'100'048'384u);
  EXPECT_EQ(parameters("mistral-7b"), 7'241'732'096u);
  EXPECT_EQ(parameters("llama-8b"), 8'030'261'248u + 64);  // plus the RoPE frequency factors
  EXPECT_EQ(parameters("qwen2.5-0.5b"), 494'032'768u);
  EXPECT_EQ(parameters("qwen3-0.6b"), 596'049'920u);
  EXPECT_NEAR(static_cast<double>(parameters("mamba2-130m")), 129e6, 0.5e6);
  EXPECT_NEAR(static_cast<double>(parameters("mamba2-370m")), 368e6, 0.5e6);
  EXPECT_NEAR(static_cast<double>(parameters("granite-h-350m")), 340e6, 0.5e6);
  EXPECT_NEAR(static_cast<double>(parameters("granite-h-1b")), 1.46e9, 0.01e9);
  EXPECT_EQ(parameters("mamba-370m"), 371'516'416u);
  EXPECT_EQ(parameters("lfm2-1.2b"), 1'170'340'608u);
  EXPECT_EQ(parameters("falcon-h1-0.5b"), 521'411'104u);
  EXPECT_NEAR(static_cast<double>(parameters("qwen35-2b")), 1.88e9, 0.01e9);  // of the text model
  EXPECT_EQ(parameters("qwen3-30b-a3b"), 30'532'122'624u);
  EXPECT_EQ(parameters("gpt-oss-20b"), 20'914'757'184u);
  EXPECT_EQ(parameters("olmoe-1b-7b"), 6'919'161'856u);
  EXPECT_EQ(parameters("lfm2-8b-a1b"), 8'339'929'856u + 22 * 32);  // plus the biases of its routers
  EXPECT_NEAR(static_cast<double>(parameters("granite-h-tiny")), 6.94e9, 0.01e9);
  EXPECT_EQ(parameters("deepseek-v2-lite"), 15'706'484'224u);
}

TEST(Shapes, ThoseWithNamesCanBe) {
  for (const std::string& name : shape_names()) {
    ASSERT_NE(find_shape(name), nullptr) << name;
    EXPECT_TRUE(check_shape(*find_shape(name))) << name;
  }
  EXPECT_EQ(find_shape("llama-2b"), nullptr);
}

TEST(Shapes, WhatFollowsFromAChangeChangesToo) {
  const Shape llama = changed(*find_shape("llama-1.1b"), {.embedding = 512, .heads = 4, .kv_heads = 2});
  EXPECT_EQ(llama.head_dim, 128u);
  EXPECT_EQ(llama.feed_forward, 5632u);
  const Shape qwen = changed(*find_shape("qwen3-0.6b"), {.embedding = 512});
  EXPECT_EQ(qwen.head_dim, 128u);  // in the real model it is not embedding / heads
  const Shape mamba = changed(*find_shape("mamba2-370m"), {.embedding = 256});
  EXPECT_EQ(mamba.inner, 512u);
  EXPECT_EQ(mamba.ssm_heads, 8u);
  const Shape granite = changed(*find_shape("granite-h-350m"), {.layers = 14});
  EXPECT_EQ(granite.attention_layers, (std::vector<std::uint32_t>{10, 13}));
  const Shape lfm = changed(*find_shape("lfm2-8b-a1b"), {.layers = 2});
  EXPECT_EQ(lfm.dense_layers, 1u);
  const Shape delta = changed(*find_shape("qwen35-2b"), {.head_dim = 128, .ssm_heads = 32});
  EXPECT_EQ(delta.inner, 4096u);
  EXPECT_EQ(delta.rope_dim, 32u);
  EXPECT_EQ(changed(*find_shape("mamba-370m"), {.embedding = 2048}).dt_rank, 128u);
  const Shape own = changed(usual_shape("llama"), {.layers = 1, .embedding = 64, .heads = 2, .feed_forward = 128});
  EXPECT_TRUE(check_shape(own)) << check_shape(own).error().message;
  EXPECT_EQ(own.kv_heads, 2u);
  EXPECT_EQ(own.head_dim, 32u);
}

TEST(Shapes, WhatCannotBeIsRefusedByName) {
  const auto refusal = [](const Shape& shape) {
    const auto ok = check_shape(shape);
    return ok ? "can be" : ok.error().message;
  };
  Shape shape = small("llama-1.1b");
  shape.architecture = "mamba3";
  EXPECT_THAT(refusal(shape),
              StartsWith("arch: 'mamba3' is not one of deepseek2, falcon-h1, gpt-oss, granitehybrid, lfm2, "));
  const auto with = [&](std::string_view name, std::uint32_t Shape::*number, std::uint32_t value) {
    Shape changed = small(name);
    changed.*number = value;
    return refusal(changed);
  };
  EXPECT_EQ(with("llama-1.1b", &Shape::layers, 0), "layers: a model of architecture llama needs it");
  EXPECT_EQ(with("llama-1.1b", &Shape::layers, 1025), "layers: 1025 is more than 1024");
  EXPECT_EQ(with("llama-1.1b", &Shape::kv_heads, 3), "kv-heads: 4 heads are not a multiple of 3");
  EXPECT_THAT(with("llama-1.1b", &Shape::head_dim, 63), StartsWith("head-dim: 63 "));
  EXPECT_THAT(with("llama-1.1b", &Shape::vocabulary, 259), StartsWith("vocabulary: 259 tokens are too few"));
  EXPECT_EQ(with("llama-1.1b", &Shape::state, 16), "state: a model of architecture llama has none");
  EXPECT_EQ(with("mamba2-130m", &Shape::heads, 4), "heads: a model of architecture mamba2 has none");
  EXPECT_EQ(with("mamba2-130m", &Shape::ssm_heads, 7), "ssm-heads: 512 channels do not divide into 7 heads");
  EXPECT_EQ(with("mamba2-130m", &Shape::groups, 3), "groups: 8 heads do not divide into 3 groups");
  shape = small("granite-h-1b");
  shape.attention_layers = {2};
  EXPECT_EQ(refusal(shape), "attention-layers: there is no layer 2 of 2");
  shape.attention_layers = {1, 0};
  EXPECT_EQ(refusal(shape), "attention-layers: 0 does not come after 1");
  shape.attention_layers = {};
  EXPECT_EQ(refusal(shape), "attention-layers: a hybrid has at least one");
  EXPECT_EQ(with("qwen3-30b-a3b", &Shape::experts_used, 13), "experts-used: 13 is more than the 12 experts");
  EXPECT_EQ(with("qwen3-30b-a3b", &Shape::experts, 0), "experts: a model of architecture qwen3moe needs it");
  EXPECT_EQ(with("qwen3-30b-a3b", &Shape::dense_layers, 1), "dense-layers: a model of architecture qwen3moe has none");
  EXPECT_EQ(with("lfm2-8b-a1b", &Shape::dense_layers, 2), "dense-layers: 2 of 2 layers leave none with experts");
  EXPECT_EQ(with("olmoe-1b-7b", &Shape::feed_forward, 64), "feed-forward: a model of architecture olmoe has none");
  EXPECT_EQ(with("granite-h-1b", &Shape::experts_used, 2),
            "experts-used: a model of architecture granitehybrid has none");
  EXPECT_EQ(with("granite-h-tiny", &Shape::expert_feed_forward, 0),
            "expert-feed-forward: a model of architecture granitehybrid needs it");
  EXPECT_EQ(with("granite-h-tiny", &Shape::outliers, 2),
            "outliers: they are not written for architecture granitehybrid with experts");
  EXPECT_EQ(with("deepseek-v2-lite", &Shape::shared_feed_forward, 300),
            "shared-feed-forward: 300 is not a number of experts of 256");
  EXPECT_EQ(with("deepseek-v2-lite", &Shape::kv_heads, 2), "kv-heads: all heads share one row, and 2 is not 1");
  EXPECT_EQ(with("deepseek-v2-lite", &Shape::rope_dim, 64),
            "rope-dim: 64 is not an even part of the 64 elements of a head");
  EXPECT_EQ(with("qwen35-2b", &Shape::inner, 256), "inner: 256 channels are not 4 heads of 32");
  EXPECT_EQ(with("qwen35-2b", &Shape::attention_interval, 3), "attention-interval: there is no layer 2 of 2");
  EXPECT_EQ(with("lfm2-1.2b", &Shape::state, 16), "state: a model of architecture lfm2 has none");
  EXPECT_EQ(with("mamba-370m", &Shape::dt_rank, 0), "dt-rank: a model of architecture mamba needs it");
  shape = small("llama-8b");
  shape.attention_layers = {0};
  EXPECT_EQ(refusal(shape), "attention-layers: only hybrids choose them, not llama");
}

}  // namespace
}  // namespace quire::synth
