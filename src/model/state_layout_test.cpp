#include "quire/model/state_layout.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/model/model_testing.h"

namespace quire::model {
namespace {

using ::testing::HasSubstr;
using testing::OpenedModel;
using testing::TestModel;

Hyperparameters read(const TestModel& model) {
  const OpenedModel opened(model);
  auto read = read_hyperparameters(*opened.file);
  EXPECT_TRUE(read) << read.error().message;
  return read ? std::move(*read) : Hyperparameters();
}

StateLayout layout_of(const TestModel& model, std::uint32_t block_size = 16, ElementType type = ElementType::F16,
                      ElementType state_type = ElementType::F32) {
  auto layout = state_layout(read(model), block_size, type, state_type);
  EXPECT_TRUE(layout) << layout.error().message;
  return layout ? std::move(*layout) : StateLayout();
}

StateCost cost_of(const StateLayout& layout, std::uint32_t length) {
  const auto cost = state_cost(layout, length);
  EXPECT_TRUE(cost) << cost.error().message;
  return cost.value_or(StateCost());
}

TEST(StateLayoutOfModel, AttentionLayersShareOneGroup) {
  const StateLayout layout = layout_of(TestModel::attention("llama", 3));
  ASSERT_EQ(layout.groups.size(), 1u);
  EXPECT_EQ(layout.groups[0], (PageShape{.block_size = 16, .num_layers = 3, .num_kv_heads = 1, .head_dim = 8}));
  EXPECT_FALSE(layout.has_recurrent());
  // K and V, 3 layers, 1 head of 8 elements, 2 bytes each.
  EXPECT_EQ(cost_of(layout, 1).bytes_per_token, 96u);
  EXPECT_EQ(cost_of(layout, 0).total_bytes, 0u);
  EXPECT_EQ(cost_of(layout, 1).total_bytes, 96u * 16);
  EXPECT_EQ(cost_of(layout, 17).total_bytes, 96u * 32);
}

TEST(StateLayoutOfModel, KeysAndValuesMayBeWider) {
  const StateLayout layout = layout_of(TestModel::attention("llama", 3), 8, ElementType::F32);
  EXPECT_EQ(cost_of(layout, 1).bytes_per_token, 192u);
  EXPECT_EQ(cost_of(layout, 1).total_bytes, 192u * 8);
}

TEST(StateLayoutOfModel, RecurrentLayersTakeTheSameWhateverTheLength) {
  const StateLayout layout = layout_of(TestModel::recurrent("mamba2", 2));
  EXPECT_FALSE(layout.has_attention());
  // Three tokens of 32 + 2 x 1 x 4 channels; 32 channels with a state of 4.
  EXPECT_EQ(layout.recurrent.conv_bytes, 3u * 40 * 4);
  EXPECT_EQ(layout.recurrent.ssm_bytes, 32u * 4 * 4);
  EXPECT_EQ(cost_of(layout, 1).bytes_per_token, 0u);
  EXPECT_EQ(cost_of(layout, 1).fixed_bytes, 2u * (512 + 512));  // both padded to 64 bytes
  EXPECT_EQ(cost_of(layout, 1000).total_bytes, cost_of(layout, 1).total_bytes);
}

TEST(StateLayoutOfModel, StatesMayBeNarrowerAndTheConvolutionStaysF32) {
  const StateLayout wide = layout_of(TestModel::recurrent("mamba2", 2));
  for (const ElementType type : {ElementType::F16, ElementType::BF16}) {
    const StateLayout layout = layout_of(TestModel::recurrent("mamba2", 2), 16, ElementType::F16, type);
    EXPECT_EQ(layout.recurrent.type, type);
    EXPECT_EQ(layout.recurrent.conv_bytes, wide.recurrent.conv_bytes);
    EXPECT_EQ(layout.recurrent.ssm_bytes, wide.recurrent.ssm_bytes / 2);
    EXPECT_EQ(cost_of(layout, 1).fixed_bytes, 2u * (512 + 256));
  }
}

TEST(StateLayoutOfModel, AHybridHasBoth) {
  const StateLayout layout = layout_of(TestModel::hybrid("granitehybrid", {0, 1, 0}));
  ASSERT_EQ(layout.groups.size(), 1u);
  EXPECT_EQ(layout.groups[0].num_layers, 1u);
  EXPECT_EQ(layout.recurrent.num_layers, 2u);
  ASSERT_EQ(layout.places.size(), 3u);
  EXPECT_EQ(layout.places[1].kind, LayerDesc::Kind::Attention);
  EXPECT_EQ(layout.places[2].index, 1u);
}

TEST(StateLayoutOfModel, AWindowCostsNoMoreThanItsPages) {
  const StateLayout layout = layout_of(TestModel::attention("gemma2", 2).set("attention.sliding_window", 33U));
  ASSERT_EQ(layout.groups.size(), 2u);
  const StateCost cost = cost_of(layout, 10000);
  EXPECT_EQ(cost.bytes_per_token, 32u);
  EXPECT_EQ(cost.window_bytes_per_token, 32u);
  // 33 positions touch at most three pages of 16.
  EXPECT_EQ(cost.total_bytes, 10000u * 32 + 3 * 16 * 32);
  EXPECT_EQ(cost_of(layout, 20).total_bytes, 2u * 2 * 16 * 32);
}

TEST(StateLayoutOfModel, KeysAndValuesOfDifferentLengthsAreRefused) {
  const auto layout = state_layout(read(TestModel::attention("llama").set("attention.value_length", 4U)));
  ASSERT_FALSE(layout);
  EXPECT_THAT(layout.error().message, HasSubstr("keys of 8 and values of 4 elements"));
}

TEST(StateLayoutOfModel, ABlockSizeOfZeroIsRefused) {
  const auto layout = state_layout(read(TestModel::attention("llama")), 0);
  ASSERT_FALSE(layout);
  EXPECT_THAT(layout.error().message, HasSubstr("block size"));
}

TEST(StateLayoutOfModel, AbsurdPagesAreRefused) {
  const auto layout = state_layout(read(TestModel::attention("llama", 1024)
                                            .set("attention.head_count", 16384U)
                                            .set("attention.head_count_kv", 16384U)
                                            .set("attention.key_length", 65536U)
                                            .set("attention.value_length", 65536U)));
  ASSERT_FALSE(layout);
  EXPECT_THAT(layout.error().message, HasSubstr("terabyte"));
}

}  // namespace
}  // namespace quire::model
