#include "quire/gguf/half.h"

#include <cmath>
#include <cstdint>
#include <limits>

#include <gtest/gtest.h>

namespace quire::gguf {
namespace {

// The value of a half by definition, in double precision.
double f16_value(std::uint16_t half) {
  const int exponent = (half >> 10) & 31;
  const double mantissa = half & 1023;
  const double magnitude = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return (half & 0x8000) != 0 ? -magnitude : magnitude;
}

TEST(Half, EveryF16BecomesTheFloatOfTheSameValueAndBack) {
  for (std::uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = f16_to_f32(half);
    const bool special = (half & 0x7C00) == 0x7C00;
    if (special && (half & 0x3FF) != 0) {
      EXPECT_TRUE(std::isnan(value)) << bits;
      EXPECT_EQ(std::bit_cast<std::uint32_t>(value) & 0x7FFFFF, (half & 0x3FFu) << 13) << bits;
      EXPECT_EQ(f32_to_f16(value), half | 0x200) << bits;
      continue;
    }
    if (special) {
      EXPECT_TRUE(std::isinf(value)) << bits;
    } else {
      EXPECT_EQ(static_cast<double>(value), f16_value(half)) << bits;
    }
    EXPECT_EQ(std::signbit(value), (half & 0x8000) != 0) << bits;
    EXPECT_EQ(f32_to_f16(value), half) << bits;
  }
}

TEST(Half, AFloatBecomesTheNearestF16AndTiesGoToTheEvenOne) {
  for (std::uint16_t half = 0; half < 0x7BFF; ++half) {
    // All of these are exact in float: the middle between two halves, and the floats next to it.
    const float below = f16_to_f32(half), above = f16_to_f32(half + 1);
    const float middle = (below + above) / 2;
    EXPECT_EQ(f32_to_f16(middle), half % 2 == 0 ? half : half + 1) << half;
    EXPECT_EQ(f32_to_f16(std::nextafter(middle, below)), half) << half;
    EXPECT_EQ(f32_to_f16(std::nextafter(middle, above)), half + 1) << half;
    EXPECT_EQ(f32_to_f16(-middle), 0x8000 | (half % 2 == 0 ? half : half + 1)) << half;
  }
}

TEST(Half, WhatIsTooLargeForF16IsInfiniteAndWhatIsTooSmallIsZero) {
  EXPECT_EQ(f32_to_f16(65519.996f), 0x7BFF);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7C00);
  EXPECT_EQ(f32_to_f16(-1e30f), 0xFC00);
  EXPECT_EQ(f32_to_f16(std::numeric_limits<float>::infinity()), 0x7C00);
  EXPECT_EQ(f32_to_f16(0x1p-25f), 0);
  EXPECT_EQ(f32_to_f16(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(f32_to_f16(-0.0f), 0x8000);
}

TEST(Half, ANanWithOnlyLowBitsStaysANan) {
  const float nan = std::bit_cast<float>(0x7F800001u);
  EXPECT_EQ(f32_to_f16(nan), 0x7E00);
  EXPECT_EQ(f32_to_bf16(nan), 0x7FC0);
}

TEST(Half, EveryBf16GoesToFloatAndBack) {
  for (std::uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = bf16_to_f32(half);
    EXPECT_EQ(std::bit_cast<std::uint32_t>(value), bits << 16);
    EXPECT_EQ(f32_to_bf16(value), std::isnan(value) ? half | 0x40 : half);
  }
}

TEST(Half, AFloatBecomesTheNearestBf16AndTiesGoToTheEvenOne) {
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x3F808000u)), 0x3F80);
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x3F818000u)), 0x3F82);
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x3F808001u)), 0x3F81);
  EXPECT_EQ(f32_to_bf16(std::numeric_limits<float>::max()), 0x7F80);
}

}  // namespace
}  // namespace quire::gguf
