// Tests of the memory layout: shapes of pages and states, and how layers are sorted into groups.
#include "quire/state/layout.h"

#include <vector>

#include <gtest/gtest.h>

#include "quire/state/behaviour_testing.h"
#include "quire/state/saved_sequence.h"

namespace quire {
namespace {

using testing::Code;
using testing::done;
using testing::refused;

TEST(PageShape, APageHoldsKAndVOfAllLayersHeadsAndTokensOfABlock) {
  const PageShape shape{.block_size = 16, .num_layers = 3, .num_kv_heads = 2, .head_dim = 64, .type = ElementType::F16};
  EXPECT_EQ(shape.row_bytes(), 128u);
  EXPECT_EQ(shape.head_bytes(), 16u * 128);
  EXPECT_EQ(shape.plane_bytes(), 2u * 16 * 128);
  EXPECT_EQ(shape.layer_bytes(), 2u * 2 * 16 * 128);
  EXPECT_EQ(shape.page_bytes(), 3u * 2 * 2 * 16 * 128);
  EXPECT_EQ(shape.bytes_per_token(), 3u * 2 * 2 * 128);
}

TEST(PageShape, WithOnePlaneTheValueIsAPartOfTheKeyAndTheLayerHasNoOtherBytes) {
  const PageShape shape{.block_size = 16, .num_layers = 3, .num_kv_heads = 1, .head_dim = 576, .planes = 1};
  EXPECT_EQ(shape.layer_bytes(), shape.plane_bytes());
  EXPECT_EQ(shape.value_offset(), 0u);
  EXPECT_EQ(shape.page_bytes(), 3u * 16 * 576 * 2);
  EXPECT_EQ(shape.bytes_per_token(), 3u * 576 * 2);
  PageShape bad = shape;
  for (const std::uint32_t planes : {0u, 3u}) {
    bad.planes = planes;
    EXPECT_TRUE(refused(bad.check(), Code::InvalidArgument)) << planes;
  }
}

TEST(PageShape, TheElementTypeDecidesTheBytes) {
  PageShape shape{.block_size = 16, .num_layers = 1, .num_kv_heads = 1, .head_dim = 64, .type = ElementType::F32};
  EXPECT_EQ(shape.page_bytes(), 2u * 16 * 64 * 4);
  shape.type = ElementType::F16;
  EXPECT_EQ(shape.page_bytes(), 2u * 16 * 64 * 2);
  shape.type = ElementType::BF16;
  EXPECT_EQ(shape.page_bytes(), 2u * 16 * 64 * 2);
  shape.type = ElementType::I8;
  EXPECT_EQ(shape.page_bytes(), 2u * 16 * 64);
  shape.type = ElementType::Q8_0;  // and a scale of two bytes for every 32
  EXPECT_EQ(shape.page_bytes(), 2u * 16 * (64 + 4));
}

TEST(PageShape, RowsOfQ8HaveAScaleForEveryBlockBegun) {
  EXPECT_EQ(row_bytes(ElementType::Q8_0, 128), 136u);
  EXPECT_EQ(row_bytes(ElementType::Q8_0, 80), 80u + 6);
  EXPECT_EQ(row_bytes(ElementType::Q8_0, 33), 34u + 4);  // scales are at an even place
  EXPECT_EQ(row_bytes(ElementType::Q8_0, 1), 2u + 2);
  PageShape shape{.num_layers = 1, .num_kv_heads = 1, .head_dim = kMostScaledRow, .type = ElementType::Q8_0};
  EXPECT_TRUE(done(shape.check()));
  ++shape.head_dim;
  EXPECT_TRUE(refused(shape.check(), Code::InvalidArgument));
}

TEST(PageShape, PagesStartAtMultiplesOfTheAlignment) {
  const PageShape shape{.block_size = 1, .num_layers = 1, .num_kv_heads = 1, .head_dim = 5, .type = ElementType::I8};
  EXPECT_EQ(shape.layer_bytes(), 10u);
  EXPECT_EQ(shape.page_bytes(), 64u);
}

TEST(PageShape, AZeroDimensionIsRefused) {
  const PageShape good{.block_size = 16, .num_layers = 1, .num_kv_heads = 1, .head_dim = 8};
  EXPECT_TRUE(done(good.check()));
  for (std::uint32_t PageShape::*dimension :
       {&PageShape::block_size, &PageShape::num_layers, &PageShape::num_kv_heads, &PageShape::head_dim}) {
    PageShape bad = good;
    bad.*dimension = 0;
    EXPECT_TRUE(refused(bad.check(), Code::InvalidArgument));
    bad.*dimension = UINT32_MAX;
    EXPECT_TRUE(refused(bad.check(), Code::InvalidArgument));
  }
}

TEST(PageShape, DimensionsWhoseProductIsAbsurdAreRefused) {
  const PageShape shape{.block_size = 1 << 14,
                        .num_layers = 1 << 14,
                        .num_kv_heads = 1 << 14,
                        .head_dim = 1 << 16,
                        .type = ElementType::F32};
  EXPECT_TRUE(refused(shape.check(), Code::InvalidArgument));
}

TEST(StateShape, ConvWindowAndStateOfEveryLayerStandPaddedInOneRun) {
  const StateShape shape{.num_layers = 3, .conv_bytes = 100, .ssm_bytes = 1000};
  EXPECT_EQ(shape.conv_stride(), 128u);
  EXPECT_EQ(shape.layer_stride(), 128u + 1024);
  EXPECT_EQ(shape.bytes(), 3u * (128 + 1024));
}

TEST(StateShape, TheCapacityIsALimitAndNotPartOfTheShape) {
  const StateShape shape{.num_layers = 2, .conv_bytes = 64, .ssm_bytes = 128, .capacity = 10};
  StateShape other = shape;
  other.capacity = 20;
  EXPECT_TRUE(shape.same_bytes(other));
  other.conv_bytes = 32;  // padded to the same size, but another shape
  EXPECT_EQ(shape.bytes(), other.bytes());
  EXPECT_FALSE(shape.same_bytes(other));
  other = shape;
  other.type = ElementType::BF16;  // as many bytes with another meaning
  EXPECT_FALSE(shape.same_bytes(other));
}

TEST(StateShape, AStateOfNoLayersNoBytesOrAbsurdSizeIsRefused) {
  EXPECT_TRUE(refused(StateShape{.num_layers = 0, .conv_bytes = 1, .ssm_bytes = 1}.check(), Code::InvalidArgument));
  EXPECT_TRUE(refused(StateShape{.num_layers = 1}.check(), Code::InvalidArgument));
  EXPECT_TRUE(refused(StateShape{.num_layers = 1, .ssm_bytes = UINT64_MAX}.check(), Code::InvalidArgument));
  EXPECT_TRUE(refused(StateShape{.num_layers = 1, .conv_bytes = UINT64_MAX}.check(), Code::InvalidArgument));
  EXPECT_TRUE(refused(StateShape{.num_layers = UINT32_MAX, .ssm_bytes = 1}.check(), Code::InvalidArgument));
  EXPECT_TRUE(
      refused(StateShape{.num_layers = 1, .ssm_bytes = 8, .type = ElementType::I8}.check(), Code::InvalidArgument));
  EXPECT_TRUE(done(StateShape{.num_layers = 1, .ssm_bytes = 8}.check()));
  EXPECT_TRUE(done(StateShape{.num_layers = 1, .ssm_bytes = 8, .type = ElementType::F16}.check()));
  EXPECT_TRUE(done(StateShape{.num_layers = 1, .conv_bytes = 8}.check()));
}

TEST(StateLayout, AttentionLayersOfTheSameShapeShareAGroup) {
  const std::vector<LayerDesc> layers(4, LayerDesc::attention(2, 64));
  const auto layout = StateLayout::from_layers(layers, 16);
  ASSERT_TRUE(done(layout));
  ASSERT_EQ(layout->groups.size(), 1u);
  EXPECT_EQ(layout->groups[0].num_layers, 4u);
  EXPECT_EQ(layout->groups[0].num_kv_heads, 2u);
  EXPECT_EQ(layout->groups[0].head_dim, 64u);
  EXPECT_EQ(layout->groups[0].block_size, 16u);
  EXPECT_TRUE(layout->has_attention());
  EXPECT_FALSE(layout->has_recurrent());
  for (std::uint32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(layout->places[i].kind, LayerDesc::Kind::Attention);
    EXPECT_EQ(layout->places[i].group, 0u);
    EXPECT_EQ(layout->places[i].index, i);
  }
}

TEST(StateLayout, SlidingWindowLayersAreAGroupOfTheirOwn) {
  const LayerDesc full = LayerDesc::attention(2, 64);
  const LayerDesc sliding = LayerDesc::attention(2, 64, ElementType::F16, 512);
  const std::vector<LayerDesc> layers{sliding, full, sliding, sliding, full};
  const auto layout = StateLayout::from_layers(layers, 16);
  ASSERT_TRUE(done(layout));
  ASSERT_EQ(layout->groups.size(), 2u);
  EXPECT_EQ(layout->groups[0].window, 512u);
  EXPECT_EQ(layout->groups[0].num_layers, 3u);
  EXPECT_EQ(layout->groups[1].window, 0u);
  EXPECT_EQ(layout->groups[1].num_layers, 2u);
  EXPECT_EQ(layout->places[3].group, 0u);
  EXPECT_EQ(layout->places[3].index, 2u);
  EXPECT_EQ(layout->places[4].group, 1u);
  EXPECT_EQ(layout->places[4].index, 1u);
}

TEST(StateLayout, LayersThatDifferInHeadsDimensionOrTypeDoNotShareAGroup) {
  const std::vector<LayerDesc> layers{LayerDesc::attention(2, 64), LayerDesc::attention(4, 64),
                                      LayerDesc::attention(2, 128), LayerDesc::attention(2, 64, ElementType::I8)};
  const auto layout = StateLayout::from_layers(layers, 16);
  ASSERT_TRUE(done(layout));
  EXPECT_EQ(layout->groups.size(), 4u);
}

TEST(StateLayout, LatentLayersAreAGroupOfPagesWithOnePlane) {
  const std::vector<LayerDesc> layers{LayerDesc::latent(48), LayerDesc::attention(1, 48), LayerDesc::latent(48)};
  const auto layout = StateLayout::from_layers(layers, 16);
  ASSERT_TRUE(done(layout));
  ASSERT_EQ(layout->groups.size(), 2u);
  EXPECT_EQ(layout->groups[0].num_layers, 2u);
  EXPECT_EQ(layout->groups[0].planes, 1u);
  EXPECT_EQ(layout->groups[0].layer_bytes() * 2, layout->groups[1].layer_bytes());
  const auto both = StateLayout::from_layers(std::vector<LayerDesc>(1, LayerDesc::latent(48)), 16),
             other = StateLayout::from_layers(std::vector<LayerDesc>(1, LayerDesc::attention(1, 48)), 16);
  EXPECT_NE(fingerprint_of(*both), fingerprint_of(*other));
}

TEST(StateLayout, AllRecurrentLayersShareOneState) {
  const std::vector<LayerDesc> layers{LayerDesc::recurrent(96, 4096), LayerDesc::attention(1, 32), LayerDesc{},
                                      LayerDesc::recurrent(96, 4096)};
  const auto layout = StateLayout::from_layers(layers, 16);
  ASSERT_TRUE(done(layout));
  EXPECT_TRUE(layout->has_attention());
  EXPECT_TRUE(layout->has_recurrent());
  EXPECT_EQ(layout->recurrent.num_layers, 2u);
  EXPECT_EQ(layout->recurrent.conv_bytes, 96u);
  EXPECT_EQ(layout->recurrent.ssm_bytes, 4096u);
  EXPECT_EQ(layout->places[2].kind, LayerDesc::Kind::Stateless);
  EXPECT_EQ(layout->places[3].kind, LayerDesc::Kind::Recurrent);
  EXPECT_EQ(layout->places[3].index, 1u);
}

TEST(StateLayout, RecurrentLayersOfDifferentSizesAreRefused) {
  const std::vector<LayerDesc> layers{LayerDesc::recurrent(96, 4096), LayerDesc::recurrent(96, 2048)};
  EXPECT_TRUE(refused(StateLayout::from_layers(layers, 16), Code::InvalidArgument));
}

TEST(StateLayout, AllRecurrentLayersHaveTheSameType) {
  std::vector<LayerDesc> layers{LayerDesc::recurrent(96, 4096, ElementType::F16),
                                LayerDesc::recurrent(96, 4096, ElementType::BF16)};
  EXPECT_TRUE(refused(StateLayout::from_layers(layers, 16), Code::InvalidArgument));
  layers[0] = layers[1];
  const auto layout = StateLayout::from_layers(layers, 16);
  ASSERT_TRUE(done(layout));
  EXPECT_EQ(layout->recurrent.type, ElementType::BF16);
}

TEST(StateLayout, AModelThatRemembersNothingIsRefused) {
  const std::vector<LayerDesc> layers(2);
  EXPECT_TRUE(refused(StateLayout::from_layers(layers, 16), Code::InvalidArgument));
  EXPECT_TRUE(refused(StateLayout::from_layers({}, 16), Code::InvalidArgument));
}

TEST(StateLayout, ImpossibleShapesAreRefused) {
  const std::vector<LayerDesc> good{LayerDesc::attention(1, 32)};
  EXPECT_TRUE(refused(StateLayout::from_layers(good, 0), Code::InvalidArgument));
  EXPECT_TRUE(refused(StateLayout::from_layers(good, UINT32_MAX), Code::InvalidArgument));
  EXPECT_TRUE(refused(StateLayout::from_layers(std::vector{LayerDesc::attention(0, 32)}, 16), Code::InvalidArgument));
  EXPECT_TRUE(refused(StateLayout::from_layers(std::vector{LayerDesc::attention(1, 0)}, 16), Code::InvalidArgument));
  EXPECT_TRUE(refused(StateLayout::from_layers(std::vector{LayerDesc::recurrent(0, 0)}, 16), Code::InvalidArgument));
}

}  // namespace
}  // namespace quire
