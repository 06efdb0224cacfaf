#include "quire/model/hyperparameters.h"

#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/model/model.h"
#include "quire/model/model_testing.h"
#include "quire/model/state_layout.h"

namespace quire::model {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using testing::OpenedModel;
using ::testing::SizeIs;
using testing::TestModel;

Hyperparameters read(const TestModel& model) {
  const OpenedModel opened(model);
  auto read = read_hyperparameters(*opened.file);
  EXPECT_TRUE(read) << read.error().message;
  return read ? std::move(*read) : Hyperparameters();
}

std::string refusal(const TestModel& model) {
  const OpenedModel opened(model);
  const auto read = read_hyperparameters(*opened.file);
  return read ? "(it was read)" : read.error().message;
}

std::vector<std::uint32_t> windows(const Hyperparameters& model) {
  std::vector<std::uint32_t> windows;
  for (const Layer& layer : model.layers) windows.push_back(layer.window);
  return windows;
}

TEST(Hyperparameters, EveryRowOfTheTableReadsAModelOfItsKind) {
  for (const Architecture& row : architectures()) {
    SCOPED_TRACE(row.name);
    const Hyperparameters hyperparameters = read(TestModel::of(row));
    EXPECT_EQ(hyperparameters.architecture, &row);
    EXPECT_EQ(hyperparameters.layers.size(), 2u);
    EXPECT_EQ(hyperparameters.vocabulary, 3u);
    EXPECT_TRUE(state_layout(hyperparameters));
  }
}

TEST(Hyperparameters, MissingKeysHaveDefaults) {
  const Hyperparameters model = read(TestModel::attention("llama").remove("attention.head_count_kv"));
  EXPECT_EQ(model.key_length, 8u);
  EXPECT_EQ(model.value_length, 8u);
  EXPECT_THAT(model.layers, Each(AllOf(Field(&Layer::heads, 2u), Field(&Layer::kv_heads, 2u), Field(&Layer::window, 0u),
                                       Field(&Layer::feed_forward, 32u))));
  EXPECT_EQ(model.recurrent, RecurrentShape());
}

TEST(Hyperparameters, SizesMayDifferFromLayerToLayer) {
  const Hyperparameters model = read(TestModel::attention("llama")
                                         .set("attention.head_count", std::vector<std::int32_t>{4, 2})
                                         .set("attention.head_count_kv", std::vector<std::int32_t>{2, 1})
                                         .set("feed_forward_length", std::vector<std::int32_t>{48, 0})
                                         .set("attention.key_length", 8U)
                                         .set("attention.value_length", 8U));
  EXPECT_THAT(model.layers,
              ElementsAre(Layer{.heads = 4, .kv_heads = 2, .feed_forward = 48}, Layer{.heads = 2, .kv_heads = 1}));
}

TEST(Hyperparameters, ALayerOfAHybridWithoutKvHeadsIsRecurrent) {
  const Hyperparameters model = read(TestModel::hybrid("granitehybrid", {0, 0, 1, 0}));
  EXPECT_EQ(model.count(BlockKind::Mamba2), 3u);
  EXPECT_FALSE(model.layers[2].recurrent);
  EXPECT_EQ(model.layers[0].heads, 0u);
  EXPECT_EQ(model.recurrent, (RecurrentShape{.conv_kernel = 4, .inner = 32, .state = 4, .groups = 1, .heads = 4}));
}

TEST(Hyperparameters, AttentionComesAtAnIntervalOrWhereTheFileSaysSo) {
  const auto recurrent = [](const Hyperparameters& model) {
    std::vector<bool> flags;
    for (const Layer& layer : model.layers) flags.push_back(layer.recurrent);
    return flags;
  };
  const TestModel model = TestModel::hybrid("qwen35", {1, 1, 1, 1, 1}).remove("full_attention_interval");
  EXPECT_THAT(recurrent(read(model)), ElementsAre(true, true, true, false, true));
  EXPECT_THAT(recurrent(read(TestModel(model).set("full_attention_interval", 2U))),
              ElementsAre(true, false, true, false, true));
  EXPECT_THAT(
      recurrent(read(TestModel(model).set("attention.recurrent_layers", std::vector<std::int32_t>{0, 1, 1, 0, 0}))),
      ElementsAre(false, true, true, false, false));
  EXPECT_THAT(refusal(TestModel(model).set("attention.recurrent_layers", std::vector<std::int32_t>{0, 1})),
              HasSubstr("'qwen35.attention.recurrent_layers': has 2 elements for 5 layers"));
  EXPECT_THAT(refusal(TestModel(model).set("full_attention_interval", 0U)),
              HasSubstr("'qwen35.full_attention_interval': 0 is out of range"));
  EXPECT_THAT(refusal(TestModel::hybrid("qwen35", {0, 0})), HasSubstr("layer 1 has attention but no KV heads"));
}

TEST(Hyperparameters, KindsOfRecurrentLayersReadTheirOwnKeys) {
  EXPECT_EQ(read(TestModel::recurrent("mamba")).recurrent,
            (RecurrentShape{.conv_kernel = 4, .inner = 32, .state = 4, .rank = 4}));
  EXPECT_TRUE(read(TestModel::recurrent("mamba").set("ssm.dt_b_c_rms", true)).recurrent.plain_step_norms);
  EXPECT_EQ(read(TestModel::hybrid("lfm2", {0, 1})).recurrent, (RecurrentShape{.conv_kernel = 3, .inner = 16}));
  EXPECT_THAT(refusal(TestModel::hybrid("lfm2", {0, 1}).remove("shortconv.l_cache")),
              HasSubstr("has no metadata 'lfm2.shortconv.l_cache'"));
  EXPECT_THAT(refusal(TestModel::hybrid("qwen35", {1, 1}).set("ssm.group_count", 3U)),
              HasSubstr("4 heads do not divide into 3 groups"));
}

TEST(Hyperparameters, AModelThatAttendsForwardsIsRefused) {
  EXPECT_THAT(refusal(TestModel::hybrid("lfm2", {0, 1}).set("attention.causal", false)),
              HasSubstr("'lfm2.attention.causal': only models that attend backwards are supported"));
  EXPECT_THAT(read(TestModel::hybrid("lfm2", {0, 1}).set("attention.causal", true)).layers, SizeIs(2));
}

TEST(Hyperparameters, LayersThatPredictFurtherTokensAreNotCounted) {
  const Hyperparameters model = read(TestModel::hybrid("qwen35", {1, 1, 1}).set("nextn_predict_layers", 1U));
  EXPECT_THAT(model.layers, SizeIs(2));
  EXPECT_EQ(model.extra_layers, 1u);
  EXPECT_THAT(refusal(TestModel::hybrid("qwen35", {1, 1}).set("nextn_predict_layers", 2U)),
              HasSubstr("'qwen35.nextn_predict_layers': 2 is out of range (0 to 1)"));
}

// Its kind does not follow from the interval, and it is there only if the file has its tensors.
TEST(Hyperparameters, TheFirstOfThemIsTheHeadAndHasAttention) {
  TestModel test = TestModel::hybrid("qwen35", {1, 1, 1}).set("nextn_predict_layers", 1U);
  EXPECT_FALSE(read(test).head.has_value());
  const Hyperparameters model = read(TestModel(test).tensor("blk.2.attn_norm.weight", {16}));
  ASSERT_TRUE(model.head.has_value());
  EXPECT_EQ(*model.head, model.layers[1]);
  EXPECT_TRUE(model.head->has(BlockKind::Attention));
  EXPECT_FALSE(read(TestModel(test).tensor("blk.1.attn_norm.weight", {16})).head.has_value());
  TestModel llama = TestModel::attention("llama", 3).set("nextn_predict_layers", 1U);
  EXPECT_FALSE(read(llama.tensor("blk.2.attn_norm.weight", {16})).head.has_value());
}

TEST(Hyperparameters, WindowsFollowThePatternOfTheArchitecture) {
  EXPECT_THAT(windows(read(TestModel::attention("gemma2", 4).set("attention.sliding_window", 16U))),
              ElementsAre(16, 0, 16, 0));
  EXPECT_THAT(windows(read(TestModel::attention("gemma2", 2))), ElementsAre(4096, 0));
  EXPECT_THAT(windows(read(TestModel::attention("gemma3", 7).set("attention.sliding_window", 16U))),
              ElementsAre(16, 16, 16, 16, 16, 0, 16));
  EXPECT_THAT(windows(read(TestModel::attention("gemma3", 2))), ElementsAre(0, 0));
  EXPECT_THAT(windows(read(TestModel::attention("phi3", 2).set("attention.sliding_window", 16U))), ElementsAre(16, 16));
  EXPECT_THAT(windows(read(TestModel::attention("phi3", 2).set("attention.sliding_window", 0U))), ElementsAre(0, 0));
  EXPECT_THAT(windows(read(TestModel::attention("llama", 2).set("attention.sliding_window", 16U))),
              ElementsAre(16, 16));
  EXPECT_THAT(windows(read(TestModel::attention("qwen2", 2).set("attention.sliding_window", 16U))), ElementsAre(0, 0));
}

TEST(Hyperparameters, AFileMayNameAPatternOfItsOwn) {
  const TestModel model = TestModel::attention("gemma3", 4).set("attention.sliding_window", 16U);
  const auto with = [&model](TestModel::Value pattern) {
    return windows(read(TestModel(model).set("attention.sliding_window_pattern", std::move(pattern))));
  };
  EXPECT_THAT(with(3U), ElementsAre(16, 16, 0, 16));
  EXPECT_THAT(with(1U), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(with(0U), ElementsAre(16, 16, 16, 16));
  EXPECT_THAT(with(std::vector<std::int32_t>{0, 1, 0, 1}), ElementsAre(0, 16, 0, 16));
  EXPECT_THAT(refusal(TestModel(model).set("attention.sliding_window_pattern", std::vector<std::int32_t>{1, 0})),
              HasSubstr("'gemma3.attention.sliding_window_pattern': has 2 elements for 4 layers"));
}

TEST(Hyperparameters, LatentAttentionKeepsOneRowPerTokenForAllHeads) {
  const Hyperparameters model = read(TestModel::attention("deepseek2"));
  EXPECT_EQ(model.latent, (LatentShape{.q_rank = 6, .kv_rank = 8, .plain = 8, .rotated = 4, .value = 5}));
  EXPECT_EQ(model.key_length, 12u);
  EXPECT_EQ(model.value_length, 8u);
  EXPECT_EQ(model.query_length(), 12u);
  EXPECT_EQ(model.count(BlockKind::LatentAttention), 2u);
  EXPECT_EQ(model.count(BlockKind::Attention), 0u);
  const auto layout = state_layout(model);
  ASSERT_TRUE(layout) << layout.error().message;
  ASSERT_EQ(layout->groups.size(), 1u);
  EXPECT_EQ(layout->groups[0].planes, 1u);
  EXPECT_EQ(layout->groups[0].num_kv_heads, 1u);
  EXPECT_EQ(layout->groups[0].bytes_per_token(), 2u * 12 * 2);
}

// Files from before the projections were absorbed have the lengths of heads, and as many KV heads as heads.
TEST(Hyperparameters, OlderFilesHaveTheLengthsOfHeads) {
  const Hyperparameters now = read(TestModel::attention("deepseek2"));
  TestModel older = TestModel::attention("deepseek2");
  older.remove("attention.key_length_mla").remove("attention.value_length_mla");
  older.set("attention.head_count_kv", 2U).set("attention.key_length", 12U).set("attention.value_length", 5U);
  const Hyperparameters then = read(older);
  EXPECT_EQ(then.latent, now.latent);
  EXPECT_EQ(then.layers, now.layers);
  EXPECT_EQ(then.key_length, now.key_length);
}

TEST(Hyperparameters, LatentShapesThatMakeNoSenseAreRefusedByTheirKey) {
  const TestModel model = TestModel::attention("deepseek2");
  EXPECT_THAT(refusal(TestModel(model).set("rope.dimension_count", 12U)),
              HasSubstr("'deepseek2.rope.dimension_count'"));
  EXPECT_THAT(refusal(TestModel(model).remove("rope.dimension_count")), HasSubstr("'deepseek2.rope.dimension_count'"));
  EXPECT_THAT(refusal(TestModel(model).set("attention.kv_lora_rank", 0U)),
              HasSubstr("'deepseek2.attention.kv_lora_rank'"));
  EXPECT_THAT(refusal(TestModel(model).remove("attention.kv_lora_rank")),
              HasSubstr("'deepseek2.attention.kv_lora_rank'"));
  EXPECT_THAT(refusal(TestModel(model).set("attention.temperature_scale", 0.1F)),
              HasSubstr("'deepseek2.attention.temperature_scale': is not supported yet"));
}

TEST(Hyperparameters, SomeLayersHaveNoRotaryEmbeddings) {
  const auto unrotated = [](const TestModel& model) {
    std::vector<bool> layers;
    for (const Layer& layer : read(model).layers) layers.push_back(layer.unrotated);
    return layers;
  };
  EXPECT_THAT(unrotated(TestModel::attention("llama", 4)), Each(false));
  EXPECT_THAT(unrotated(TestModel::attention("smollm3", 5)), ElementsAre(false, false, false, true, false));
  EXPECT_THAT(unrotated(TestModel::attention("gpt2", 2)), Each(true));
  // Layers with a window are rotated, and the others see all positions without it.
  EXPECT_THAT(unrotated(TestModel::attention("cohere2", 5)), ElementsAre(false, false, false, true, false));
  EXPECT_THAT(windows(read(TestModel::attention("cohere2", 5))), ElementsAre(4096, 4096, 4096, 0, 4096));
}

TEST(Hyperparameters, AnUnknownArchitectureIsNamedAndTheKnownOnesListed) {
  const std::string why = refusal(TestModel::attention("bert\x1b[31m"));
  EXPECT_THAT(why, HasSubstr("'bert\\x1b[31m'"));
  EXPECT_THAT(
      why, HasSubstr("cohere2, deepseek2, falcon-h1, gemma2, gemma3, glm4, gpt-oss, gpt2, granite, granitehybrid, "
                     "jamba, lfm2, lfm2moe, llama, mamba, mamba2, olmo2, olmoe, phi3, qwen2, qwen3, qwen35, qwen35moe, "
                     "qwen3moe, qwen3next, smollm3, starcoder2"));
  EXPECT_THAT(refusal(TestModel::attention("llama").remove_key("general.architecture")),
              HasSubstr("has no metadata 'general.architecture'"));
}

TEST(Hyperparameters, AMissingKeyIsNamed) {
  for (const std::string key :
       {"block_count", "context_length", "embedding_length", "attention.head_count", "feed_forward_length"}) {
    EXPECT_THAT(refusal(TestModel::attention("llama").remove(key)), HasSubstr("has no metadata 'llama." + key + "'"));
  }
  for (const std::string key :
       {"ssm.conv_kernel", "ssm.inner_size", "ssm.state_size", "ssm.group_count", "ssm.time_step_rank"}) {
    EXPECT_THAT(refusal(TestModel::recurrent("mamba2").remove(key)), HasSubstr("has no metadata 'mamba2." + key + "'"));
  }
  EXPECT_THAT(refusal(TestModel::hybrid("granitehybrid", {0, 1}).remove("attention.head_count_kv")),
              HasSubstr("has no metadata 'granitehybrid.attention.head_count_kv'"));
  EXPECT_THAT(refusal(TestModel::attention("llama").remove_key("tokenizer.ggml.tokens")),
              HasSubstr("has no metadata 'llama.vocab_size'"));
}

TEST(Hyperparameters, AKeyOfTheWrongTypeIsNamed) {
  EXPECT_THAT(refusal(TestModel::attention("llama").set("block_count", 2.0F)),
              HasSubstr("'llama.block_count' at byte"));
  EXPECT_THAT(refusal(TestModel::attention("llama").set("block_count", -2)), HasSubstr("found i32 -2"));
  EXPECT_THAT(refusal(TestModel::attention("llama").set("attention.head_count", std::string("two"))),
              HasSubstr("found string 'two'"));
  EXPECT_THAT(refusal(TestModel::attention("llama").set("attention.head_count_kv", std::vector<std::int32_t>{1, -1})),
              HasSubstr("'llama.attention.head_count_kv'"));
  EXPECT_THAT(refusal(TestModel::attention("llama").set_key("general.architecture", 7U)),
              HasSubstr("'general.architecture'"));
}

TEST(Hyperparameters, AbsurdNumbersAreRefused) {
  const auto with = [](std::string_view key, TestModel::Value value) {
    return refusal(TestModel::attention("llama").set(key, std::move(value)));
  };
  EXPECT_THAT(with("block_count", 0U), HasSubstr("'llama.block_count': 0 is out of range (1 to 1024)"));
  EXPECT_THAT(with("block_count", 0xFFFFFFFFU), HasSubstr("4294967295 is out of range"));
  EXPECT_THAT(with("context_length", 0U), HasSubstr("out of range"));
  EXPECT_THAT(with("embedding_length", 1U << 30), HasSubstr("out of range"));
  EXPECT_THAT(with("attention.head_count", 0U), HasSubstr("'llama.attention.head_count': 0 is out of range"));
  EXPECT_THAT(with("attention.head_count_kv", 0U), HasSubstr("'llama.attention.head_count_kv': 0 is out of range"));
  EXPECT_THAT(with("attention.head_count_kv", 3U), HasSubstr("2 heads of layer 0 are not a multiple of 3 KV heads"));
  EXPECT_THAT(with("attention.head_count", 3U), HasSubstr("an embedding of 16 does not divide into 3 heads"));
  EXPECT_THAT(with("attention.head_count", std::vector<std::int32_t>{2}), HasSubstr("has 1 elements for 2 layers"));
  EXPECT_THAT(with("attention.key_length", 0U), HasSubstr("out of range"));

  const auto recurrent = [](std::string_view key, std::uint32_t value) {
    return refusal(TestModel::recurrent("mamba2").set(key, value));
  };
  EXPECT_THAT(recurrent("ssm.conv_kernel", 0), HasSubstr("'mamba2.ssm.conv_kernel': 0 is out of range"));
  EXPECT_THAT(recurrent("ssm.state_size", 1U << 31), HasSubstr("out of range"));
  EXPECT_THAT(recurrent("ssm.time_step_rank", 5), HasSubstr("32 does not divide into 5 heads"));
  EXPECT_THAT(recurrent("ssm.group_count", 3), HasSubstr("4 heads do not divide into 3 groups"));
  EXPECT_THAT(refusal(TestModel::hybrid("granitehybrid", {0, 1}).set("attention.head_count", 0U)),
              HasSubstr("layer 1 has KV heads but no heads"));
}

TEST(RealModels, TheDemoModelsHaveTheirHyperparameters) {
  const auto open = [](const std::string& name) {
    auto file = gguf::File::open(QUIRE_SOURCE_DIR "/models/quire-demo-" + name + "-q8_0.gguf");
    EXPECT_TRUE(file) << file.error().message;
    auto hyperparameters = read_hyperparameters(*file);
    EXPECT_TRUE(hyperparameters) << hyperparameters.error().message;
    const auto checked = check_tensors(*file, *hyperparameters);
    EXPECT_TRUE(checked) << checked.error().message;
    return std::move(*hyperparameters);
  };
  const Hyperparameters llama = open("llama");
  EXPECT_THAT(llama.layers, AllOf(SizeIs(8), Each(Layer{.heads = 4, .kv_heads = 2, .feed_forward = 768})));
  EXPECT_EQ(llama.key_length, 64u);
  const Hyperparameters mamba2 = open("mamba2");
  EXPECT_THAT(mamba2.layers, AllOf(SizeIs(16), Each(Layer{.recurrent = true})));
  EXPECT_EQ(mamba2.recurrent, (RecurrentShape{.conv_kernel = 4, .inner = 512, .state = 64, .groups = 1, .heads = 8}));
  const Hyperparameters hybrid = open("hybrid");
  EXPECT_EQ(hybrid.layers.size(), 8u);
  EXPECT_EQ(hybrid.count(BlockKind::Attention), 2u);
  EXPECT_FALSE(hybrid.layers[3].recurrent);
  EXPECT_FALSE(hybrid.layers[7].recurrent);
}

TEST(RealModels, TheGoldenModelsAreReadAndHaveTheirTensors) {
  const std::filesystem::path folder = QUIRE_SOURCE_DIR "/testdata/golden";
  int models = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    SCOPED_TRACE(entry.path().string());
    const auto file = gguf::File::open(entry.path() / "model.gguf");
    ASSERT_TRUE(file) << file.error().message;
    const auto hyperparameters = read_hyperparameters(*file);
    ASSERT_TRUE(hyperparameters) << hyperparameters.error().message;
    const auto checked = check_tensors(*file, *hyperparameters);
    EXPECT_TRUE(checked) << checked.error().message;
    const auto layout = state_layout(*hyperparameters);
    EXPECT_TRUE(layout) << layout.error().message;
    if (entry.path().filename() == "gemma2") {
      EXPECT_THAT(windows(*hyperparameters), ElementsAre(16, 0, 16, 0));
    }
    if (entry.path().filename() == "gemma3") {
      EXPECT_THAT(windows(*hyperparameters), ElementsAre(16, 16, 16, 16, 16, 0, 16));
    }
    if (entry.path().filename() == "mistral") {
      EXPECT_EQ(hyperparameters->key_length, 48u);
    }
    ++models;
  }
  EXPECT_GE(models, 10);
}

// --- experts

TestModel with_experts() {
  return TestModel::attention("llama", 3).set("expert_count", 8U).set("expert_used_count", 2U);
}

TEST(Hyperparameters, ExpertsAreReadWithTheirRouter) {
  const ExpertShape plain = read(with_experts()).experts;
  EXPECT_EQ(plain, (ExpertShape{.count = 8, .used = 2, .normed = true}));
  EXPECT_EQ(read(TestModel::attention("llama")).experts, ExpertShape());
  const ExpertShape all = read(with_experts()
                                   .set("expert_group_count", 4U)
                                   .set("expert_group_used_count", 2U)
                                   .set("expert_gating_func", 2U)
                                   .set("expert_weights_norm", false)
                                   .set("expert_shared_count", 2U))
                              .experts;
  EXPECT_EQ(all, (ExpertShape{.count = 8,
                              .used = 2,
                              .groups = 4,
                              .groups_used = 2,
                              .shared_inner = 64,
                              .scores = Router::Scores::Sigmoid}));
  EXPECT_EQ(read(with_experts().set("expert_shared_feed_forward_length", 24U)).experts.shared_inner, 24u);
  // Zeros as files of models without groups have them.
  EXPECT_EQ(read(with_experts().set("expert_group_count", 0U).set("expert_group_used_count", 0U)).experts, plain);
}

TEST(Hyperparameters, TheFirstLayersMayHaveNoExperts) {
  const Hyperparameters model =
      read(with_experts().set("leading_dense_block_count", 1U).set("expert_feed_forward_length", 12U));
  EXPECT_THAT(model.layers,
              ElementsAre(Field(&Layer::experts, false), Field(&Layer::experts, true), Field(&Layer::experts, true)));
  EXPECT_THAT(model.layers, ElementsAre(Field(&Layer::feed_forward, 32u), Field(&Layer::feed_forward, 12u),
                                        Field(&Layer::feed_forward, 12u)));
  // The width of experts is enough where all layers have them.
  const Hyperparameters experts_only =
      read(with_experts().remove("feed_forward_length").set("expert_feed_forward_length", 12U));
  EXPECT_THAT(experts_only.layers, Each(Field(&Layer::feed_forward, 12u)));
}

TEST(Hyperparameters, ExpertsThatMakeNoSenseAreRefused) {
  const auto with = [](std::string_view key, std::uint32_t value) { return refusal(with_experts().set(key, value)); };
  EXPECT_THAT(refusal(with_experts().remove("expert_used_count")),
              HasSubstr("has no metadata 'llama.expert_used_count'"));
  EXPECT_THAT(with("expert_used_count", 9U), HasSubstr("9 is out of range (1 to 8)"));
  EXPECT_THAT(with("expert_used_count", 0U), HasSubstr("0 is out of range (1 to 8)"));
  EXPECT_THAT(with("expert_group_count", 3U), HasSubstr("8 experts do not divide into 3 groups"));
  EXPECT_THAT(with("expert_group_count", 65U), HasSubstr("65 is out of range"));
  EXPECT_THAT(refusal(with_experts().set("expert_group_count", 8U).set("expert_group_used_count", 1U)),
              HasSubstr("1 of 8 groups have fewer than 2 experts"));
  EXPECT_THAT(with("expert_gating_func", 4U), HasSubstr("'llama.expert_gating_func': 4 is not supported"));
  EXPECT_THAT(with("expert_shared_count", 4097U), HasSubstr("4097 is out of range"));
  EXPECT_THAT(refusal(with_experts().set("expert_feed_forward_length", 1024U).set("expert_shared_count", 2000U)),
              HasSubstr("2000 experts of 1024 are too many"));
}

}  // namespace
}  // namespace quire::model
