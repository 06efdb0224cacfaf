// The recurrence of Mamba-2 in the kernels of every instruction set of this machine, with states of every type.
#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "quire/backend/cpu/kernels_testing.h"
#include "quire/backend/reference_testing.h"
#include "quire/gguf/half.h"

namespace quire::cpu {
namespace {

std::vector<float> random_floats(std::size_t count, std::uint32_t seed) {
  return reference::random_matrix(1, static_cast<std::uint32_t>(count), seed).values;
}

constexpr ElementType kStateTypes[] = {ElementType::F32, ElementType::F16, ElementType::BF16};

// A state in memory, and what is in it.
std::vector<std::byte> state_bytes(ElementType type, std::span<const float> values) {
  std::vector<std::byte> bytes(values.size() * element_bytes(type));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint16_t half = type == ElementType::F16 ? gguf::f32_to_f16(values[i]) : gguf::f32_to_bf16(values[i]);
    if (type == ElementType::F32) {
      std::memcpy(&bytes[4 * i], &values[i], 4);
    } else {
      std::memcpy(&bytes[2 * i], &half, 2);
    }
  }
  return bytes;
}
std::vector<float> state_values(ElementType type, std::span<const std::byte> bytes) {
  std::vector<float> values(bytes.size() / element_bytes(type));
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint16_t half = 0;
    if (type == ElementType::F32) {
      std::memcpy(&values[i], &bytes[4 * i], 4);
      continue;
    }
    std::memcpy(&half, &bytes[2 * i], 2);
    values[i] = type == ElementType::F16 ? gguf::f16_to_f32(half) : gguf::bf16_to_f32(half);
  }
  return values;
}

std::vector<float> floats_of_every_kind() {
  std::vector<float> values;
  std::mt19937 random(3);
  for (int i = 0; i < 20000; ++i) values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
  // What halves can hold, and both sides of the ties between them.
  for (std::uint32_t half = 0; half < 0x7BFFu; half += 7) {
    const float value = gguf::f16_to_f32(static_cast<std::uint16_t>(half));
    const float next = gguf::f16_to_f32(static_cast<std::uint16_t>(half + 1)), tie = (value + next) / 2;
    for (const float v : {value, tie, -std::nextafter(tie, next)}) values.push_back(v);
  }
  for (std::uint32_t bits = 0; bits < 0x7F80u; bits += 13) values.push_back(std::bit_cast<float>(bits << 16 | 0x8000u));
  for (const float v : {65504.0f, 65519.0f, 65520.0f, 1e30f, FLT_MAX, INFINITY, 0.0f}) {
    values.push_back(v);
    values.push_back(-v);
  }
  for (const std::uint32_t nan : {0x7FC00000u, 0xFFC00000u, 0x7FFFFFFFu, 0xFFFFFFFFu}) {
    values.push_back(std::bit_cast<float>(nan));
  }
  values.resize((values.size() + 255) / 256 * 256, 1.0f);
  return values;
}

bool same_value(float a, float b) {
  return std::isnan(a) ? std::isnan(b) : std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

// The state begins at 0, and b is added to it. The result has the bits of the portable conversion, whether the state
// stays in registers for two tokens, goes to memory after one, or has rows that are no whole vectors.
TEST(RecurrentKernels, AStateIsRoundedToTheNearestOfItsType) {
  const std::vector<float> values = floats_of_every_kind(), ones(2, 1), x = {1, 0};
  for (const Kernels* kernels : all_kernels()) {
    for (const ElementType type : kStateTypes) {
      for (const std::uint32_t n : {16u, 128u, 256u, 17u}) {
        const std::vector<float> c(std::size_t{2} * n);
        for (std::size_t at = 0; at + n <= values.size(); at += n) {
          std::vector<float> b(std::size_t{2} * n, -0.0f);  // the second token adds nothing
          std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(at), n, b.begin());
          for (const std::uint32_t tokens : {1u, 2u}) {
            float out[2];
            std::vector<std::byte> state(std::size_t{n} * element_bytes(type));
            kernels->recur({state.data(), type, 1, n, tokens, ones.data(), ones.data(), x.data(), b.data(), c.data(),
                            out, 1, 1, n, n, 1, 0});
            const std::vector<float> got = state_values(type, state);
            for (std::uint32_t i = 0; i < n; ++i) {
              const float expected = reference::stored_state(type, 0.0f + b[i]);
              ASSERT_TRUE(same_value(got[i], expected)) << kernels->name << " " << name(type) << ", " << n << ": "
                                                        << b[i] << " became " << got[i] << " and not " << expected;
            }
          }
        }
      }
    }
  }
}

// Tokens one by one or many at once, rows of any length, states of any type: the same bits. The states are those of the
// formula in floats, rounded after every token, and the outputs are close to the formula.
TEST(RecurrentKernels, TheRecurrenceMatchesItsFormula) {
  for (const std::uint32_t n : {16u, 32u, 50u, 64u, 128u, 256u}) {
    constexpr std::uint32_t kDim = 9, kTokens = 21;
    const auto start = random_floats(kDim * n, 1), b = random_floats(kTokens * n, 2), c = random_floats(kTokens * n, 3);
    const auto x = random_floats(kTokens * kDim, 4), steps = random_floats(kTokens, 5);
    const std::vector<float> decays(kTokens, 0.75f);
    for (const ElementType type : kStateTypes) {
      std::vector<float> state = state_values(type, state_bytes(type, start)), expected(kTokens * kDim);
      for (std::uint32_t t = 0; t < kTokens; ++t) {
        for (std::uint32_t k = 0; k < kDim; ++k) {
          double read = 0.5 * x[t * kDim + k];
          for (std::uint32_t i = 0; i < n; ++i) {
            float& s = state[k * n + i];
            const float next = std::fma(s, 0.75f, steps[t] * x[t * kDim + k] * b[t * n + i]);
            read += double{next} * c[t * n + i];
            s = reference::stored_state(type, next);
          }
          expected[t * kDim + k] = static_cast<float>(read);
        }
      }
      for (const Kernels* kernels : all_kernels()) {
        SCOPED_TRACE(std::string(kernels->name) + " " + name(type) + " " + std::to_string(n));
        std::vector<std::byte> whole_state;
        std::vector<float> whole;
        for (const std::uint32_t at_once : {kTokens, 1u, 5u}) {
          std::vector<float> out(kTokens * kDim);
          std::vector<std::byte> bytes = state_bytes(type, start);
          for (std::uint32_t t = 0; t < kTokens; t += at_once) {
            kernels->recur({bytes.data(), type, kDim, n, std::min(at_once, kTokens - t), &steps[t], &decays[t],
                            &x[t * kDim], &b[t * n], &c[t * n], &out[t * kDim], 1, kDim, n, n, kDim, 0.5f});
          }
          if (whole.empty()) whole = out, whole_state = bytes;
          EXPECT_EQ(out, whole) << at_once << " at once";
          EXPECT_EQ(bytes, whole_state) << at_once << " at once";
        }
        EXPECT_EQ(state_values(type, whole_state), state);
        for (std::size_t i = 0; i < whole.size(); ++i) {
          ASSERT_NEAR(whole[i], expected[i], 1e-4 * (1 + std::fabs(expected[i])));
        }
      }
    }
  }
}

}  // namespace
}  // namespace quire::cpu
