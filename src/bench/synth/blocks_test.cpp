#include "quire/bench/synth/blocks.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "quire/gguf/half.h"

namespace quire::synth {
namespace {

using gguf::Type;

class BlocksOfType : public ::testing::TestWithParam<Type> {};
INSTANTIATE_TEST_SUITE_P(Types, BlocksOfType,
                         ::testing::Values(Type::F32, Type::F16, Type::BF16, Type::Q8_0, Type::Q4_0, Type::Q4_1,
                                           Type::Q5_0, Type::Q5_1, Type::Q2_K, Type::Q3_K, Type::Q4_K, Type::Q5_K,
                                           Type::Q6_K, Type::IQ4_NL, Type::IQ4_XS),
                         [](const auto& type) { return std::string(gguf::type_name(type.param)); });

std::vector<std::byte> blocks_of(Type type, float deviation, std::uint64_t seed, std::size_t elements) {
  std::vector<std::byte> bytes(*gguf::byte_size(type, elements));
  Blocks(type, deviation, Stream(seed, 7)).fill(0, bytes);
  return bytes;
}

TEST_P(BlocksOfType, WeightsAreSpreadAroundZeroAsAskedFor) {
  constexpr std::size_t kRow = 2048, kRows = 64;
  for (const float deviation : {0.01f, 1 / std::sqrt(2048.0f), 0.1f}) {
    std::vector<float> values(kRow * kRows);
    ASSERT_TRUE(gguf::dequantize(GetParam(), blocks_of(GetParam(), deviation, 1, values.size()), values));
    double sum = 0, squares = 0, largest = 0;
    for (const float value : values) {
      ASSERT_TRUE(std::isfinite(value));
      sum += value;
      squares += double{value} * value;
      largest = std::max(largest, std::abs(double{value}));
    }
    const double count = static_cast<double>(values.size());
    EXPECT_NEAR(std::sqrt(squares / count) / deviation, 1, 0.05) << deviation;
    EXPECT_NEAR(sum / count / deviation, 0, 0.02) << deviation;
    EXPECT_LT(largest / deviation, 6) << deviation;
    // The sum of a row is near 0. If blocks had offsets, it would not be.
    for (std::size_t row = 0; row < kRows; ++row) {
      double mean = 0;
      for (std::size_t i = 0; i < kRow; ++i) mean += values[row * kRow + i] / deviation / kRow;
      EXPECT_NEAR(mean, 0, 0.15) << row;
    }
  }
}

TEST_P(BlocksOfType, ABlockIsTheSameWhereverOneBegins) {
  const std::vector<std::byte> whole = blocks_of(GetParam(), 0.02f, 5, 16 * 256);
  const std::size_t size = gguf::type_info(GetParam()).block_bytes;
  const Blocks blocks(GetParam(), 0.02f, Stream(5, 7));
  for (const std::size_t first : {1, 7, 15}) {
    std::vector<std::byte> part(size);
    blocks.fill(first, part);
    EXPECT_EQ(std::memcmp(part.data(), whole.data() + first * size, size), 0) << first;
  }
  EXPECT_NE(blocks_of(GetParam(), 0.02f, 6, 16 * 256), whole);
}

// MXFP4 has no scale that fits: two neighbouring powers of two are mixed. A block is the exponent and 16 bytes of two
// values each.
TEST(Blocks, OfMxfp4AreSpreadAsAskedForThoughScalesArePowersOfTwo) {
  constexpr double kMagnitudes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  for (const float deviation : {0.009f, 0.012f, 0.0186f, 0.03f, 0.1f, 1.0f}) {
    const std::vector<std::byte> bytes = blocks_of(Type::MXFP4, deviation, 1, 1 << 17);
    double sum = 0, squares = 0, count = 0;
    std::vector<int> exponents;
    for (std::size_t block = 0; block < bytes.size(); block += 17) {
      exponents.push_back(static_cast<int>(bytes[block]));
      for (std::size_t i = 0; i < 32; ++i) {
        const int code = static_cast<int>(bytes[block + 1 + i / 2]) >> 4 * (i % 2) & 15;
        const double value = std::ldexp(kMagnitudes[code & 7] * (code < 8 ? 1 : -1), exponents.back() - 127);
        sum += value;
        squares += value * value;
        ++count;
      }
    }
    EXPECT_NEAR(std::sqrt(squares / count) / deviation, 1, 0.01) << deviation;
    EXPECT_NEAR(sum / count / deviation, 0, 0.02) << deviation;
    const auto [least, most] = std::ranges::minmax(exponents);
    EXPECT_LE(most - least, 1) << deviation;
  }
}

// Kernels keep the sum of two products of bytes in 16 bits, which would overflow with -128.
TEST(Blocks, NoQuantOfQ8IsTheOneThatQuantisingNeverGives) {
  const std::vector<std::byte> bytes = blocks_of(Type::Q8_0, 0.02f, 1, 1 << 16);
  for (std::size_t block = 0; block < bytes.size(); block += 34) {
    for (std::size_t i = 2; i < 34; ++i) ASSERT_NE(bytes[block + i], std::byte{0x80});
  }
}

TEST(Stream, NumbersAreSpreadAsTheySay) {
  const Stream stream(3, 4);
  constexpr int kCount = 100000;
  double sum = 0, squares = 0, even = 0;
  for (int i = 0; i < kCount; ++i) {
    const double x = stream.normal(static_cast<std::uint64_t>(i));
    EXPECT_LT(std::abs(x), 3.5);
    sum += x;
    squares += x * x;
    even += stream.fraction(static_cast<std::uint64_t>(i));
  }
  EXPECT_NEAR(sum / kCount, 0, 0.02);
  EXPECT_NEAR(squares / kCount, 1, 0.02);
  EXPECT_NEAR(even / kCount, 0.5, 0.01);
  EXPECT_NE(stream.at(0), Stream(3, 5).at(0));
  EXPECT_NE(stream.at(0), Stream(4, 4).at(0));
}

}  // namespace
}  // namespace quire::synth
