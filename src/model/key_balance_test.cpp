// Factors for keys in 8 bits: they follow the size of the keys' channels, and leave scores as they are.
#include "quire/model/key_balance.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/gguf/half.h"

namespace quire::model {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using Floats = std::vector<float>;

// Keys of heads with 8 channels, from an input of 4 elements. All channels are of size 1, until a test scales some.
struct Keys {
  explicit Keys(std::uint32_t heads = 1) : rows(heads * 8, Floats{0.5f, -0.5f, 0.5f, 0.5f}) {}

  Keys& scale(std::uint32_t channel, float factor) {
    for (float& value : rows[channel]) value *= factor;
    return *this;
  }
  Floats balance(std::uint32_t pairs = 0, RopePairs order = RopePairs::Neighbours) const {
    Floats all;
    for (const Floats& row : rows) all.insert(all.end(), row.begin(), row.end());
    const auto factors = key_balance({.projection = {.rows = static_cast<std::uint32_t>(rows.size()),
                                                     .cols = 4,
                                                     .data = reinterpret_cast<const std::byte*>(all.data()),
                                                     .row_bytes = 4 * sizeof(float)},
                                      .input_norm = input_norm,
                                      .bias = bias,
                                      .head_norm = head_norm},
                                     {.head_dim = 8, .rotary_pairs = pairs, .order = order});
    EXPECT_TRUE(factors) << factors.error().message;
    return factors ? *factors : Floats();
  }

  std::vector<Floats> rows;
  Floats input_norm, bias, head_norm;
};

TEST(KeyBalance, ChannelsOfTheSameSizeStayAsTheyAre) {
  EXPECT_THAT(Keys(2).balance(), Each(1.0f));
  EXPECT_THAT(Keys(2).scale(3, 1.3f).scale(4, 0.8f).balance(), Each(1.0f));  // nearly the same
  Keys large(1);
  for (std::uint32_t d = 0; d < 8; ++d) large.scale(d, 300);
  EXPECT_THAT(large.balance(), Each(1.0f));  // the scale of a block is enough
}

TEST(KeyBalance, FactorsAreTheNearestPowersOfTwoHeadByHead) {
  EXPECT_THAT(Keys(2).scale(1, 100).scale(6, 3).scale(12, 0.01f).scale(13, 0).balance(),
              ElementsAre(1, 128, 1, 1, 1, 1, 4, 1,  //
                          1, 1, 1, 1, 0x1p-7f, 1, 1, 1));
}

TEST(KeyBalance, RotatedChannelsShareAFactorWithTheirPair) {
  // Mean square of 100 and 1: 70.7.
  EXPECT_THAT(Keys().scale(2, 100).balance(4, RopePairs::Neighbours), ElementsAre(1, 1, 64, 64, 1, 1, 1, 1));
  EXPECT_THAT(Keys().scale(2, 100).balance(4, RopePairs::Halves), ElementsAre(1, 1, 64, 1, 1, 1, 64, 1));
  EXPECT_THAT(Keys(2).scale(8, 100).balance(4, RopePairs::Halves),
              ElementsAre(1, 1, 1, 1, 1, 1, 1, 1, 64, 1, 1, 1, 64, 1, 1, 1));
  // Two pairs, and four channels that are not rotated.
  EXPECT_THAT(Keys().scale(3, 100).scale(4, 100).balance(2, RopePairs::Halves),
              ElementsAre(1, 64, 1, 64, 128, 1, 1, 1));
  EXPECT_THAT(Keys().scale(3, 100).scale(4, 100).balance(2, RopePairs::Neighbours),
              ElementsAre(1, 1, 64, 64, 128, 1, 1, 1));
}

TEST(KeyBalance, BiasesCountBesideTheProjection) {
  Keys keys;
  keys.bias = {0, -100, 0.1f, 0, 0, 0, 0, 0};
  EXPECT_THAT(keys.balance(), ElementsAre(1, 128, 1, 1, 1, 1, 1, 1));
}

TEST(KeyBalance, TheNormOfTheInputWeightsTheColumns) {
  Keys keys;
  keys.rows[5] = {0, 0, 0, 1};
  EXPECT_THAT(keys.balance(), Each(1.0f));
  keys.input_norm = {0.01f, 0.01f, 0.01f, 1};
  for (std::uint32_t d = 0; d < 8; ++d) keys.rows[d][3] = d == 5 ? 1 : 0;
  EXPECT_THAT(keys.balance(), ElementsAre(1, 1, 1, 1, 1, 128, 1, 1));
}

TEST(KeyBalance, TheNormOfHeadsScalesChannelsOfEveryHead) {
  Keys keys(2);
  keys.head_norm = {1, 1, 1, -50, 1, 1, 1, 1};
  EXPECT_THAT(keys.balance(), ElementsAre(1, 1, 1, 64, 1, 1, 1, 1, 1, 1, 1, 64, 1, 1, 1, 1));
  // The norm does not make channels equally large: what is in the projection remains.
  EXPECT_THAT(keys.scale(0, 16).balance(), ElementsAre(16, 1, 1, 64, 1, 1, 1, 1, 1, 1, 1, 64, 1, 1, 1, 1));
}

TEST(KeyBalance, WeightsThatAreNoNumbersAndExtremesDoNoHarm) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_THAT(Keys().scale(1, kNan).scale(2, kInfinity).balance(), Each(1.0f));
  EXPECT_THAT(Keys().scale(1, 1e30f).scale(2, 1e-30f).balance(), ElementsAre(1, 0x1p16f, 0x1p-16f, 1, 1, 1, 1, 1));
  Keys zeros;
  for (std::uint32_t d = 0; d < 8; ++d) zeros.scale(d, 0);
  EXPECT_THAT(zeros.balance(), Each(1.0f));
}

TEST(KeyBalance, MatricesOfOtherTypesAreRead) {
  std::vector<std::uint16_t> halves(8 * 4, gguf::f32_to_f16(0.5f));
  halves[9] = gguf::f32_to_f16(64);
  const auto factors = key_balance({.projection = {.type = gguf::Type::F16,
                                                   .rows = 8,
                                                   .cols = 4,
                                                   .data = reinterpret_cast<const std::byte*>(halves.data()),
                                                   .row_bytes = 8},
                                    .input_norm = {},
                                    .bias = {},
                                    .head_norm = {}},
                                   {.head_dim = 8});
  ASSERT_TRUE(factors) << factors.error().message;
  EXPECT_THAT(*factors, ElementsAre(1, 1, 64, 1, 1, 1, 1, 1));
}

}  // namespace
}  // namespace quire::model
