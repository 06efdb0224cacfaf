// The inner loops of every instruction set that this machine has, against the plain references and against each other.
#include "quire/backend/cpu/kernels.h"

#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "quire/gguf/half.h"

namespace quire::cpu {
namespace {

std::vector<const Kernels*> all_kernels() {
  std::vector<const Kernels*> kernels;
  for (const char* name : {"scalar", "avx2", "avx512"}) {
    if (const Kernels* k = kernels_by_name(name)) kernels.push_back(k);
  }
  return kernels;
}

std::vector<std::byte> read(const std::string& name) {
  std::ifstream in(std::string(QUIRE_SOURCE_DIR) + "/testdata/quant/" + name, std::ios::binary);
  const std::vector<char> chars((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  std::vector<std::byte> bytes(chars.size());
  std::memcpy(bytes.data(), chars.data(), chars.size());
  return bytes;
}

std::vector<float> random_floats(std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

const gguf::Type kQuantTypes[] = {gguf::Type::Q4_0, gguf::Type::Q4_1, gguf::Type::Q5_0,   gguf::Type::Q5_1,
                                  gguf::Type::Q8_0, gguf::Type::Q2_K, gguf::Type::Q3_K,   gguf::Type::Q4_K,
                                  gguf::Type::Q5_K, gguf::Type::Q6_K, gguf::Type::IQ4_NL, gguf::Type::IQ4_XS};

struct Unpacked {
  std::vector<std::int8_t> q;
  std::vector<float> scales, offsets;
  QuantRow row;

  Unpacked(const Kernels& kernels, gguf::Type type, const std::byte* data, std::uint32_t cols)
      : q(cols), scales(cols / 16), offsets(cols / 16), row{q.data(), scales.data(), offsets.data(), false} {
    EXPECT_TRUE(kernels.unpack_quant(type, data, cols, row));
  }
};

struct Quantized {
  std::vector<std::int8_t> q;
  std::vector<float> scales;
  std::vector<std::int32_t> sums;
  QuantInput input;

  Quantized(const Kernels& kernels, const std::vector<float>& x)
      : q(x.size()), scales(x.size() / 32), sums(x.size() / 16), input{q.data(), scales.data(), sums.data()} {
    kernels.quantize(x.data(), static_cast<std::uint32_t>(x.size()), input);
  }
};

// Integers under scales are the very numbers that the reference makes of the blocks, to the bit.
TEST(Kernels, UnpackedIntegersUnderTheirScalesAreTheReferenceToTheBit) {
  for (const gguf::Type type : kQuantTypes) {
    const auto bytes = read(std::string(gguf::type_name(type)) + ".bin");
    ASSERT_FALSE(bytes.empty()) << gguf::type_name(type);
    const gguf::TypeInfo& info = gguf::type_info(type);
    const auto cols = static_cast<std::uint32_t>(bytes.size() / info.block_bytes * info.block_size);
    std::vector<float> reference(cols);
    ASSERT_TRUE(gguf::dequantize(type, bytes, reference).has_value());
    for (const Kernels* kernels : all_kernels()) {
      const Unpacked unpacked(*kernels, type, bytes.data(), cols);
      for (std::uint32_t i = 0; i < cols; ++i) {
        const float product = unpacked.scales[i / 16] * unpacked.q[i];
        const volatile float rounded = product;  // no fusing with the addition below
        const float value = unpacked.row.has_offsets ? rounded + unpacked.offsets[i / 16] : rounded;
        ASSERT_EQ(value, reference[i]) << kernels->name << " " << gguf::type_name(type) << " element " << i;
      }
    }
  }
}

TEST(Kernels, FloatWeightsAreUnpackedExactly) {
  const auto bytes = read("BF16.bin");
  std::vector<float> reference(bytes.size() / 2), got(bytes.size() / 2);
  for (const gguf::Type type : {gguf::Type::BF16, gguf::Type::F16}) {
    ASSERT_TRUE(gguf::dequantize(type, bytes, reference).has_value());
    for (const Kernels* kernels : all_kernels()) {
      ASSERT_TRUE(kernels->unpack_float(type, bytes.data(), static_cast<std::uint32_t>(got.size()), got.data()));
      ASSERT_EQ(std::memcmp(got.data(), reference.data(), got.size() * 4), 0) << kernels->name;
    }
  }
}

TEST(Kernels, QuantizedInputsAreWithinHalfAStepAndTheirSumsAreExact) {
  const auto x = random_floats(512, 3);
  for (const Kernels* kernels : all_kernels()) {
    const Quantized quantized(*kernels, x);
    for (std::size_t i = 0; i < x.size(); ++i) {
      ASSERT_LE(std::fabs(quantized.scales[i / 32] * quantized.q[i] - x[i]), quantized.scales[i / 32] * 0.5001f);
    }
    for (std::size_t i = 0; i < x.size() / 16; ++i) {
      int sum = 0;
      for (std::size_t j = 0; j < 16; ++j) sum += quantized.q[16 * i + j];
      ASSERT_EQ(sum, quantized.sums[i]);
    }
    // Nothing, and what is so small that no scale can be divided by: what an activation leaves of a very negative
    // number.
    for (const float tiny : {0.0f, 1e-38f, 1e-45f}) {
      const Quantized nothing(*kernels, std::vector<float>(64, tiny));
      for (const std::int8_t q : nothing.q) ASSERT_EQ(q, 0);
      for (const std::int32_t sum : nothing.sums) ASSERT_EQ(sum, 0);
    }
  }
}

TEST(Kernels, DotsOfEveryTypeAreTheSumOfTheirProducts) {
  for (const gguf::Type type : kQuantTypes) {
    const auto bytes = read(std::string(gguf::type_name(type)) + ".bin");
    const std::uint32_t cols = 256;
    std::vector<float> weights(cols);
    const gguf::TypeInfo& info = gguf::type_info(type);
    const std::size_t row_bytes = std::size_t{cols} / info.block_size * info.block_bytes;
    ASSERT_TRUE(gguf::dequantize(type, std::span(bytes).first(row_bytes), weights).has_value());
    const auto x = random_floats(cols, 11);
    for (const Kernels* kernels : all_kernels()) {
      const Unpacked unpacked(*kernels, type, bytes.data(), cols);
      const Quantized quantized(*kernels, x);
      double expected = 0, size = 0;
      for (std::uint32_t i = 0; i < cols; ++i) {
        const double product = double{weights[i]} * quantized.scales[i / 32] * quantized.q[i];
        expected += product;
        size += std::fabs(product);
      }
      EXPECT_NEAR(kernels->dot_quant(unpacked.row, quantized.input, cols), expected, 1e-5 * size + 1e-7)
          << kernels->name << " " << gguf::type_name(type);
    }
  }
}

TEST(Kernels, FloatDotsWorkForAnyLength) {
  for (const std::uint32_t n : {1u, 7u, 15u, 16u, 17u, 48u, 80u, 100u, 256u}) {
    const auto a = random_floats(n, n), b = random_floats(n, n + 1);
    double expected = 0;
    for (std::uint32_t i = 0; i < n; ++i) expected += double{a[i]} * b[i];
    for (const Kernels* kernels : all_kernels()) {
      EXPECT_NEAR(kernels->dot(a.data(), b.data(), n), expected, 1e-4) << kernels->name << " " << n;
    }
  }
}

TEST(Kernels, KeysAndValuesInBothTypesWorkForAnyHeadSize) {
  for (const std::uint32_t n : {1u, 8u, 30u, 48u, 64u, 80u}) {
    for (const ElementType type : {ElementType::F32, ElementType::F16}) {
      const auto q = random_floats(n, n), k = random_floats(n, n + 7);
      std::vector<std::byte> stored(n * 4);
      for (const Kernels* kernels : all_kernels()) {
        kernels->store_kv(type, stored.data(), k.data(), n);
        std::vector<float> back(n);
        for (std::uint32_t i = 0; i < n; ++i) {
          back[i] = type == ElementType::F32 ? k[i] : gguf::f16_to_f32(gguf::f32_to_f16(k[i]));
        }
        double expected = 0;
        for (std::uint32_t i = 0; i < n; ++i) expected += double{q[i]} * back[i];
        EXPECT_NEAR(kernels->dot_kv(type, q.data(), stored.data(), n), expected, 1e-4);
        std::vector<float> sum(n, 0.5f);
        kernels->add_kv(type, sum.data(), 2.0f, stored.data(), n);
        for (std::uint32_t i = 0; i < n; ++i) EXPECT_EQ(sum[i], 0.5f + 2.0f * back[i]) << kernels->name;
      }
    }
  }
}

TEST(Kernels, TheRecurrenceDecaysTakesInAndReads) {
  for (const std::uint32_t n : {16u, 32u, 50u}) {
    const auto start = random_floats(n, 1), b = random_floats(n, 2), c = random_floats(n, 3);
    for (const Kernels* kernels : all_kernels()) {
      std::vector<float> state = start;
      const float read = kernels->recur(state.data(), 0.5f, 0.25f, b.data(), c.data(), n);
      double expected = 0;
      for (std::uint32_t i = 0; i < n; ++i) {
        const double next = double{start[i]} * 0.5 + double{b[i]} * 0.25;
        EXPECT_NEAR(state[i], next, 1e-6);
        expected += next * c[i];
      }
      EXPECT_NEAR(read, expected, 1e-4) << kernels->name;
    }
  }
}

}  // namespace
}  // namespace quire::cpu
