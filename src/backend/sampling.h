// The arithmetic of sampling: the same bits on the host and on a GPU. C++20, so that CUDA code can include it.
//
// A probability is an integer here, a weight: the highest logit of a row has 2^40, and a token that is d below it has
// 2^40 * exp(-d / temperature), rounded down. A sum of integers does not depend on its order, so a thousand threads and
// one loop find the same total. From the logit to the weight there are only single IEEE operations and integers: no
// function of a library, and no product that a compiler could fuse with a sum and so round differently.
//
// How exact this is, for a vocabulary of up to 2^20 tokens (no sum overflows: they stay below 2^61):
//   - A weight is off by less than 1 + 1.5e-7 * 2^40. That is the most of it, where d is about one temperature. Far
//     below, where it is small, its relative error is d / temperature * 1.8e-7.
//   - A token can be drawn if d is below 27.7 temperatures, that is if it is at least 2^-40 as likely as the first. The
//     others have weight 0. All tokens together lose less than 2^-20 of the first one's probability by rounding down.
//   - A draw has the probability that the weights say, to within 2^-64.
// A weight never rises as the logit falls, so what is ordered by logit is ordered by weight.
#pragma once

#include <bit>
#include <cstdint>

#if defined(__CUDACC__)
#define QUIRE_HOST_DEVICE __host__ __device__
#else
#define QUIRE_HOST_DEVICE
#endif

namespace quire::sampling {

// --- order: by falling logit, equal logits by ascending id ---

// Rises with the logit. The two zeros are equal; NaN is 0, below everything.
QUIRE_HOST_DEVICE constexpr std::uint32_t ordered(float logit) {
  constexpr std::uint32_t kSign = 0x80000000, kInfinity = 0x7F800000;
  const auto bits = std::bit_cast<std::uint32_t>(logit);
  if ((bits & ~kSign) > kInfinity) return 0;
  if (bits == kSign) return kSign;
  return (bits & kSign) != 0 ? ~bits : bits | kSign;
}

// The place of a token in that order: a larger number comes first.
QUIRE_HOST_DEVICE constexpr std::uint64_t place(float logit, std::int32_t id) {
  return (std::uint64_t{ordered(logit)} << 32) | ~static_cast<std::uint32_t>(id);
}
QUIRE_HOST_DEVICE constexpr std::int32_t id_at(std::uint64_t place) {
  return static_cast<std::int32_t>(~static_cast<std::uint32_t>(place));
}
QUIRE_HOST_DEVICE constexpr float logit_at(std::uint64_t place) {
  constexpr std::uint32_t kSign = 0x80000000;
  const auto key = static_cast<std::uint32_t>(place >> 32);
  return std::bit_cast<float>((key & kSign) != 0 ? key ^ kSign : ~key);
}

// --- weights ---

// A depth says how far a token is below the highest logit, in units of 2^-25 factors of two. At kDepths and below the
// weight is 0.
inline constexpr std::uint32_t kFractionBits = 25;
inline constexpr std::uint32_t kWeightBits = 40;
inline constexpr std::uint64_t kHighestWeight = std::uint64_t{1} << kWeightBits;
inline constexpr std::uint32_t kDepths = kWeightBits << kFractionBits;

// Depth per unit of logit. A temperature near 0 would make it infinite, and infinity times 0 is no number.
constexpr float rate_of(double temperature) {
  constexpr double kLog2E = 1.4426950408889634, kMost = 1e38;
  const double rate = kLog2E * (1 << kFractionBits) / temperature;
  return static_cast<float>(rate < kMost ? rate : kMost);
}

// `logit` may be NaN (weight 0); `highest` may be infinite (then the logits that are equal to it have all the weight).
QUIRE_HOST_DEVICE constexpr std::uint32_t depth_of(float logit, float highest, float rate) {
  const float depth = logit == highest ? 0.0F : (highest - logit) * rate;
  return depth < static_cast<float>(kDepths) ? static_cast<std::uint32_t>(depth) : kDepths;
}

QUIRE_HOST_DEVICE constexpr std::uint32_t multiply_high(std::uint32_t a, std::uint32_t b) {
  return static_cast<std::uint32_t>((std::uint64_t{a} * b) >> 32);
}

// 2^(40 - depth / 2^25). The fraction's power of two is a polynomial in 32-bit fixed point. It meets 2^-x at x = 0 and
// x = 1, so that there is no step between octaves; between them it is off by 4e-9.
QUIRE_HOST_DEVICE constexpr std::uint64_t weight_at(std::uint32_t depth) {
  if (depth >= kDepths) return 0;
  const std::uint32_t x = depth << (32 - kFractionBits);
  std::uint32_t sum = 469'816;
  sum = 5'482'065 - multiply_high(x, sum);
  sum = 41'153'319 - multiply_high(x, sum);
  sum = 238'338'570 - multiply_high(x, sum);
  sum = 1'031'758'041 - multiply_high(x, sum);
  sum = 2'977'044'187 - multiply_high(x, sum);
  const std::uint64_t power = (std::uint64_t{1} << 32) - multiply_high(x, sum);
  return (power << (kWeightBits - 32)) >> (depth >> kFractionBits);
}

QUIRE_HOST_DEVICE constexpr std::uint64_t weight_of(float logit, float highest, float rate) {
  return weight_at(depth_of(logit, highest, rate));
}

// --- which tokens stay ---

// In this order: the first `top_k` tokens; of them the shortest beginning that has `top_p` of their weight, and at
// least the first; of those the tokens with a weight of at least `min_weight`.
struct Rule {
  float rate = 0;           // 0: greedy
  std::uint32_t top_k = 0;  // 0: all
  std::uint64_t top_p = 0;  // in units of 2^-32; kAllOfIt: no limit
  std::uint64_t min_weight = 0;
};

inline constexpr std::uint64_t kAllOfIt = std::uint64_t{1} << 32;

constexpr Rule rule_of(double temperature, std::uint32_t top_k, double top_p, double min_p) {
  const double least = min_p * static_cast<double>(kHighestWeight);
  const auto down = static_cast<std::uint64_t>(least);
  return {.rate = temperature > 0 ? rate_of(temperature) : 0,
          .top_k = top_k,
          .top_p = static_cast<std::uint64_t>(top_p * static_cast<double>(kAllOfIt) + 0.5),
          .min_weight = down + (static_cast<double>(down) < least ? 1 : 0)};
}

// total * top_p, rounded down.
QUIRE_HOST_DEVICE constexpr std::uint64_t share(std::uint64_t total, std::uint64_t top_p) {
  return (total >> 32) * top_p + (((total & 0xFFFFFFFF) * top_p) >> 32);
}

// --- the draw ---

QUIRE_HOST_DEVICE constexpr std::uint64_t multiply_high(std::uint64_t a, std::uint64_t b) {
  const std::uint64_t a_low = a & 0xFFFFFFFF, a_high = a >> 32, b_low = b & 0xFFFFFFFF, b_high = b >> 32;
  const std::uint64_t middle = a_high * b_low + ((a_low * b_low) >> 32);
  return a_high * b_high + (middle >> 32) + ((a_low * b_high + (middle & 0xFFFFFFFF)) >> 32);
}

// Tokens that stay are put side by side in the order of their ids, each as wide as its weight. The token is drawn that
// stands at this place, a number below `total`.
QUIRE_HOST_DEVICE constexpr std::uint64_t drawn_place(std::uint64_t random, std::uint64_t total) {
  return multiply_high(random, total);
}

// The finalizer of SplitMix64: every bit of the result depends on every bit of x.
QUIRE_HOST_DEVICE constexpr std::uint64_t mix_bits(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

// 64 random bits for the token at `position`.
QUIRE_HOST_DEVICE constexpr std::uint64_t random_bits(std::uint64_t seed, std::uint64_t position) {
  constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15;
  // The seed is mixed first. Otherwise neighbouring seeds would give the same random numbers, shifted by a position.
  return mix_bits(mix_bits(seed + kGolden) + (position + 1) * kGolden);
}

// --- penalties ---

struct Penalties {
  float repetition = 1;  // of tokens in prompt or answer: divides positive logits, multiplies others
  float presence = 0;    // subtracted once from the logits of tokens in the answer
  float frequency = 0;   // subtracted for each occurrence in the answer
};

// A token of prompt or answer.
struct Seen {
  std::int32_t token;
  std::uint32_t times;  // in the answer; 0: only in the prompt
};

// The logit of a token that is in prompt or answer, `times` in the answer (below 2^29). Computed in doubles, where the
// products of two floats are exact: fused or not, the result is the same.
QUIRE_HOST_DEVICE constexpr float penalized(float logit, std::uint32_t times, const Penalties& penalties) {
  double value = logit;
  value = value > 0 ? value / penalties.repetition : value * penalties.repetition;
  if (times > 0) value -= penalties.presence + static_cast<double>(times) * penalties.frequency;
  return static_cast<float>(value);
}

// --- log-probabilities ---

// What a row says about the probability of its tokens at temperature 1, before penalties, bias and mask. The logarithm
// is taken by the host: no two libraries agree on it.
struct RowSum {
  float highest = 0;        // logit
  std::uint64_t total = 0;  // weight
};

}  // namespace quire::sampling
