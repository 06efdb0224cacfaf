#include "quire/model/rope_scaling.h"

#include <cmath>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

namespace quire::model {
namespace {

std::vector<float> unscaled(std::uint32_t dims, double base) {
  std::vector<float> frequencies;
  for (std::uint32_t i = 0; i < dims / 2; ++i) {
    frequencies.push_back(static_cast<float>(std::pow(base, -2.0 * i / dims)));
  }
  return frequencies;
}

std::vector<float> scaled(std::uint32_t dims, const Yarn& yarn) {
  std::vector<float> frequencies = unscaled(dims, yarn.base);
  apply_yarn(frequencies, yarn);
  return frequencies;
}

// YaRN as Hugging Face's modeling_rope_utils.py computes it, in double precision.
//   pair(turns) = dims * ln(original / (2 pi turns)) / (2 ln base)
//   low, high   = pair(beta_fast), pair(beta_slow), rounded outwards to whole pairs
//   ramp        = (i - low) / (high - low), within 0 and 1
//   frequency   = base^(-2i/dims) * (ramp / factor + 1 - ramp)
std::vector<double> reference(std::uint32_t dims, const Yarn& yarn) {
  const auto pair = [&](double turns) {
    return dims * std::log(yarn.original_length / (2 * M_PI * turns)) / (2 * std::log(double{yarn.base}));
  };
  double low = pair(yarn.beta_fast), high = pair(yarn.beta_slow);
  if (yarn.whole_pairs) low = std::floor(low), high = std::ceil(high);
  low = std::fmax(low, 0);
  high = std::fmin(high, dims - 1);
  if (low == high) high += 0.001;
  std::vector<double> frequencies;
  for (std::uint32_t i = 0; i < dims / 2; ++i) {
    const double ramp = std::fmin(std::fmax((i - low) / (high - low), 0), 1);
    frequencies.push_back(std::pow(double{yarn.base}, -2.0 * i / dims) * (ramp / yarn.factor + 1 - ramp));
  }
  return frequencies;
}

TEST(RopeScaling, YarnIsTheReferenceInDoublePrecision) {
  struct Case {
    std::uint32_t dims;
    Yarn yarn;
  };
  const Case cases[] = {
      {16, {.base = 10000, .factor = 8, .original_length = 64}},
      {128, {.base = 1000000, .factor = 4, .original_length = 32768}},  // Qwen2.5 with 131,072 tokens
      {64, {.base = 150000, .factor = 32, .original_length = 4096, .whole_pairs = false}},  // gpt-oss
      {64, {.base = 10000, .factor = 40, .original_length = 4096}},                         // DeepSeek-V2
      {128, {.base = 10000, .factor = 2, .original_length = 8192, .beta_fast = 4, .beta_slow = 2}},
      {8, {.base = 10000, .factor = 16, .original_length = 4}},  // shorter than any turn: the ramp has no width
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(each.yarn.factor);
    const std::vector<float> got = scaled(each.dims, each.yarn);
    const std::vector<double> expected = reference(each.dims, each.yarn);
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 2e-7 * expected[i]) << "pair " << i;
  }
}

// What the definition promises, without its formula.
TEST(RopeScaling, YarnKeepsFastPairsAndDividesSlowOnes) {
  const Yarn yarn{.base = 1000000, .factor = 4, .original_length = 32768};
  const std::vector<float> before = unscaled(128, yarn.base), after = scaled(128, yarn);
  std::size_t kept = 0, divided = 0;
  for (std::size_t i = 0; i < before.size(); ++i) {
    const double turns = before[i] * yarn.original_length / (2 * M_PI);
    // The ramp may begin and end up to a pair further out.
    if (turns > 32 * 1.3) {
      EXPECT_EQ(after[i], before[i]) << "pair " << i;
    }
    if (turns < 1 / 1.3) {
      EXPECT_FLOAT_EQ(after[i], before[i] / 4) << "pair " << i;
    }
    kept += after[i] == before[i] ? 1 : 0;
    divided += std::fabs(after[i] * 4 - before[i]) < 1e-6f * before[i] ? 1 : 0;
    if (i > 0) {
      EXPECT_LT(after[i], after[i - 1]);
    }
  }
  EXPECT_GT(kept, 10u);
  EXPECT_GT(divided, 10u);
  EXPECT_LT(kept + divided, before.size()) << "there are pairs on the ramp";
}

TEST(RopeScaling, WithoutExtrapolationYarnDividesAll) {
  const std::vector<float> before = unscaled(16, 10000);
  const std::vector<float> after = scaled(16, {.factor = 8, .original_length = 64, .extrapolation = 0});
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_FLOAT_EQ(after[i], before[i] / 8);
}

TEST(RopeScaling, TheMagnitudeGrowsWithTheLogarithmOfTheFactor) {
  EXPECT_FLOAT_EQ(yarn_magnitude(8), 1.2079441541679836f);  // as OLMo 3 has it in its configuration
  EXPECT_FLOAT_EQ(yarn_magnitude(40, 0.707f), static_cast<float>(1 + 0.0707 * std::log(40.0)));
  EXPECT_EQ(yarn_magnitude(1), 1.0f);
  EXPECT_EQ(yarn_magnitude(0.5f), 1.0f);
}

}  // namespace
}  // namespace quire::model
