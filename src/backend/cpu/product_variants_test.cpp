// The products of all variants have the same bits, whatever their instructions.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "quire/backend/cpu/kernels_testing.h"
#include "quire/backend/cpu/tiles.h"
#include "quire/base/large_vector.h"
#include "quire/gguf/half.h"

namespace quire::cpu {
namespace {

struct Scratch {
  LargeVector<std::byte> quants = LargeVector<std::byte>(std::size_t{kMostTiles} * kMostChunkCols * kTileRows);
  LargeVector<float> scales = LargeVector<float>(std::size_t{kMostTiles} * kMostChunkCols), offsets = scales, sums;
  explicit Scratch(std::uint32_t rows) : sums(std::size_t{rows} * kMostTiles * kTileRows) {}
  ProductScratch view() { return {quants.data(), scales.data(), offsets.data(), sums.data()}; }
};

// Random bytes of a quantised matrix. Scales are finite: the two bytes of a half never have all exponent bits.
std::vector<std::byte> random_matrix(gguf::Type type, std::uint32_t rows, std::uint32_t cols) {
  const gguf::TypeInfo& info = gguf::type_info(type);
  std::vector<std::byte> bytes(std::size_t{rows} * cols / info.block_size * info.block_bytes);
  std::mt19937 random(rows * 1000 + cols);
  for (std::byte& one : bytes) one = static_cast<std::byte>(random() & 0xbb);
  return bytes;
}

// Columns beside the input are NaN, so that a kernel that used them would show.
std::vector<float> multiply(const Kernels& kernels, gguf::Type type, const std::vector<std::byte>& bytes,
                            std::uint32_t outputs, std::uint32_t cols, const std::vector<float>& x,
                            std::uint32_t rows) {
  const std::uint32_t stride = (cols + 255) / 256 * 256;
  std::vector<std::int8_t> q(std::size_t{rows} * stride, 77);
  std::vector<float> scales(q.size() / 32, NAN), sums = scales, half_sums(q.size() / 16, NAN);
  std::vector<std::int32_t> starts(q.size() / 32), half_starts(q.size() / 16);
  for (std::size_t i = 0; i < rows; ++i) {
    const std::size_t at = i * stride;
    kernels.quantize(x.data() + i * cols, cols,
                     {q.data() + at, scales.data() + at / 32, starts.data() + at / 32, sums.data() + at / 32,
                      half_starts.data() + at / 16, half_sums.data() + at / 16});
  }
  const gguf::TypeInfo& info = gguf::type_info(type);
  const std::uint64_t row_bytes = std::uint64_t{cols} / info.block_size * info.block_bytes,
                      tile = tile_bytes(type, cols);
  const std::uint32_t tiles = (outputs + kTileRows - 1) / kTileRows;
  LargeVector<std::byte> arranged(tiles * tile);
  for (std::uint32_t t = 0; tile != 0 && t < tiles; ++t) {
    make_tile(type, bytes.data() + t * kTileRows * row_bytes, row_bytes, std::min(kTileRows, outputs - t * kTileRows),
              cols, kernels.biased, arranged.data() + t * tile);
  }
  const WeightTiles weight{type,
                           outputs,
                           cols,
                           tile != 0 ? arranged.data() : bytes.data(),
                           tile,
                           row_bytes,
                           info.block_size,
                           info.block_bytes};
  std::vector<float> out(std::size_t{rows} * outputs);
  Scratch scratch(rows);
  kernels.multiply_quant(weight, 0, tiles,
                         {q.data(), scales.data(), starts.data(), sums.data(), half_starts.data(), half_sums.data()},
                         stride, rows, {out.data(), outputs, nullptr, false, 1}, scratch.view());
  return out;
}

// All kinds of scales and offsets, numbers of rows around sixteen, and rests of tiles, chunks and pieces. The scalar
// variant is left out: it rounds twice where others fuse, which shows in a few sums of short numbers (MXFP4).
TEST(ProductVariants, OfQuantisedWeightsAgreeToTheBit) {
  for (const gguf::Type type :
       {gguf::Type::Q8_0, gguf::Type::Q4_0, gguf::Type::MXFP4, gguf::Type::Q4_K, gguf::Type::Q5_K, gguf::Type::Q6_K,
        gguf::Type::Q4_1, gguf::Type::Q2_K, gguf::Type::Q3_K, gguf::Type::IQ4_NL}) {
    const bool wide = gguf::type_info(type).block_size == 256;
    for (const std::uint32_t cols : {wide ? 256u : 32u, wide ? 768u : 480u}) {
      for (const std::uint32_t outputs : {16u, 77u}) {
        const auto bytes = random_matrix(type, outputs, cols);
        for (const std::uint32_t rows : {1u, 8u, 9u, 15u, 16u, 17u, 32u, 47u}) {
          const auto x = random_floats(std::size_t{rows} * cols, rows);
          std::vector<float> first;
          for (const Kernels* kernels : all_kernels()) {
            if (kernels == &scalar_kernels()) continue;
            const auto got = multiply(*kernels, type, bytes, outputs, cols, x, rows);
            if (first.empty()) first = got;
            ASSERT_EQ(std::memcmp(got.data(), first.data(), got.size() * sizeof(float)), 0)
                << kernels->name << ", " << gguf::type_name(type) << ", " << cols << " columns, " << outputs
                << " outputs, " << rows << " rows";
          }
        }
      }
    }
  }
}

// --- BF16

bool is_small(float x) { return std::fabs(x) < 0x1p-126f; }
float without_small(float x) { return is_small(x) ? std::copysign(0.0f, x) : x; }

// sum + w * x as bf16_products.inl states it.
float add_product(float sum, float w, float x) {
  w = without_small(w), x = without_small(x);
  const float rounded = std::fma(w, x, sum);
  const double size = std::fabs(double{w} * x + sum);
  return size < 0x1p-126 - 0x1p-151 ? std::copysign(0.0f, rounded) : rounded;
}

std::vector<float> multiply_bf16(const Kernels& kernels, const std::vector<std::uint16_t>& w, std::uint32_t outputs,
                                 std::uint32_t cols, const std::vector<std::uint16_t>& x, std::uint32_t rows) {
  const std::uint64_t tile = tile_bytes(gguf::Type::BF16, cols);
  const std::uint32_t tiles = (outputs + kTileRows - 1) / kTileRows, stride = (cols + 1) / 2 * 2;
  LargeVector<std::byte> arranged(tiles * tile);
  for (std::uint32_t t = 0; t < tiles; ++t) {
    make_tile(gguf::Type::BF16, reinterpret_cast<const std::byte*>(w.data()) + std::size_t{t} * kTileRows * cols * 2,
              std::size_t{cols} * 2, std::min(kTileRows, outputs - t * kTileRows), cols, kernels.biased,
              arranged.data() + t * tile);
  }
  std::vector<float> out(std::size_t{rows} * outputs);
  Scratch scratch(rows);
  kernels.multiply_bf16({gguf::Type::BF16, outputs, cols, arranged.data(), tile, 0, 1, 2}, 0, tiles, x.data(), stride,
                        rows, {out.data(), outputs, nullptr, false, 1}, scratch.view());
  return out;
}

bool same(float a, float b) { return (std::isnan(a) && std::isnan(b)) || std::memcmp(&a, &b, 4) == 0; }

// Exponents around one, anywhere, or so small that products and sums are around 2^-126; infinities and NaNs too.
std::uint16_t random_bf16(std::mt19937& random, std::uint32_t kind) {
  const std::uint32_t bits = random(), exponent = bits >> 20;
  switch (kind) {
    case 0: return static_cast<std::uint16_t>((bits & 0x807f) | (120 + exponent % 12) << 7);
    case 1: return static_cast<std::uint16_t>(bits);
    case 2: return static_cast<std::uint16_t>((bits & 0x807f) | (56 + exponent % 16) << 7);
    default: return static_cast<std::uint16_t>((bits & 0x807f) | (exponent % 4 == 0 ? 0 : 126 * (exponent % 2)) << 7);
  }
}

// A million products of each kind: the instruction does what is stated, and so does what takes its place.
TEST(ProductVariants, OfBf16AreWhatIsStatedToTheBit) {
  constexpr std::uint32_t kOutputs = 80, kRows = 13;
  for (std::uint32_t kind = 0; kind < 4; ++kind) {
    for (const std::uint32_t cols : {1u, 6u, 37u, 300u, 620u}) {
      std::mt19937 random(kind * 1000 + cols);
      const std::uint32_t stride = (cols + 1) / 2 * 2;
      std::vector<std::uint16_t> w(std::size_t{kOutputs} * cols), x(std::size_t{kRows} * stride);
      for (std::uint16_t& one : w) one = random_bf16(random, kind);
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = i % stride < cols ? random_bf16(random, kind) : 0;
      std::vector<float> expected(std::size_t{kRows} * kOutputs);
      for (std::uint32_t i = 0; i < kRows; ++i) {
        for (std::uint32_t n = 0; n < kOutputs; ++n) {
          float sum = 0;
          for (std::uint32_t k = 0; k < stride; k += 2) {
            const auto add = [&](std::uint32_t c) {
              const float weight = c < cols ? gguf::bf16_to_f32(w[n * cols + c]) : 0;
              sum = add_product(sum, weight, gguf::bf16_to_f32(x[i * stride + c]));
            };
            add(k + 1);
            add(k);
          }
          expected[i * kOutputs + n] = sum;
        }
      }
      for (const Kernels* kernels : all_kernels()) {
        for (const std::uint32_t rows : {1u, 3u, kRows}) {
          const auto got = multiply_bf16(*kernels, w, kOutputs, cols, x, rows);
          for (std::size_t i = 0; i < got.size(); ++i) {
            ASSERT_TRUE(same(got[i], expected[i])) << kernels->name << ", kind " << kind << ", " << cols << " columns, "
                                                   << rows << " rows: " << got[i] << " instead of " << expected[i];
          }
        }
      }
    }
  }
}

// Sums beside 2^-126, where it matters how a sum is rounded before it counts as small.
TEST(ProductVariants, OfBf16RoundBeforeTheyBecomeZero) {
  for (const float part : {0.25f, 0.5f, 1.0f, 1.25f, 1.5f, 2.0f, 3.0f}) {
    // 2^-126 - part * 2^-151, from two columns: the odd one comes first.
    const std::vector<std::uint16_t> x = {gguf::f32_to_bf16(-part * 0x1p-51f), gguf::f32_to_bf16(0x1p-63f)};
    std::vector<std::uint16_t> w(32);
    for (std::size_t n = 0; n < 16; ++n) {
      w[2 * n] = gguf::f32_to_bf16(0x1p-100f);
      w[2 * n + 1] = gguf::f32_to_bf16(0x1p-63f);
    }
    for (const Kernels* kernels : all_kernels()) {
      const auto got = multiply_bf16(*kernels, w, 16, 2, x, 1);
      for (const float one : got) EXPECT_EQ(one, part <= 1 ? 0x1p-126f : 0.0f) << kernels->name << ", " << part;
    }
  }
}

TEST(ProductVariants, InputsAreRoundedToTheNearestBf16) {
  auto values = random_floats(203, 5);
  values[0] = NAN, values[1] = INFINITY, values[2] = 3.4e38f, values[3] = 1e-40f, values[4] = -0.0f;
  values[5] = 1.00390625f, values[6] = 1.01171875f;  // ties
  for (const Kernels* kernels : all_kernels()) {
    for (const std::uint32_t n : {1u, 2u, 16u, 33u, 203u}) {
      std::vector<std::uint16_t> out(n + 2, 7);
      kernels->round_to_bf16(values.data(), n, out.data());
      for (std::uint32_t i = 0; i < n; ++i) EXPECT_EQ(out[i], gguf::f32_to_bf16(values[i])) << kernels->name << i;
      EXPECT_EQ(out[n], n % 2 == 0 ? 7 : 0);
      EXPECT_EQ(out[n + 1], 7);
    }
  }
}

TEST(ProductVariants, OfThisMachine) {
  for (const char* name : kVariants) {
    if (kernels_by_name(name) == nullptr) std::printf("this machine has no %s: left out\n", name);
  }
  EXPECT_NE(kernels_by_name("scalar"), nullptr);
}

}  // namespace
}  // namespace quire::cpu
