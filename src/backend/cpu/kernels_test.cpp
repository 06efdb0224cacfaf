// The kernels of every instruction set of this machine, against the plain references and against each other.
#include "quire/backend/cpu/kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
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

std::vector<std::byte> read(const std::string& name) {
  std::ifstream in(std::string(QUIRE_SOURCE_DIR) + "/testdata/quant/" + name, std::ios::binary);
  const std::vector<char> chars((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  std::vector<std::byte> bytes(chars.size());
  std::memcpy(bytes.data(), chars.data(), chars.size());
  return bytes;
}

const gguf::Type kQuantTypes[] = {gguf::Type::Q4_0,  gguf::Type::Q4_1,    gguf::Type::Q5_0,    gguf::Type::Q5_1,
                                  gguf::Type::Q8_0,  gguf::Type::Q2_K,    gguf::Type::Q3_K,    gguf::Type::Q4_K,
                                  gguf::Type::Q5_K,  gguf::Type::Q6_K,    gguf::Type::IQ4_NL,  gguf::Type::IQ4_XS,
                                  gguf::Type::IQ1_S, gguf::Type::IQ1_M,   gguf::Type::IQ2_XXS, gguf::Type::IQ2_XS,
                                  gguf::Type::IQ2_S, gguf::Type::IQ3_XXS, gguf::Type::IQ3_S,   gguf::Type::TQ1_0,
                                  gguf::Type::TQ2_0, gguf::Type::MXFP4};

// The rows of a matrix in tiles; empty if the type has none.
std::vector<std::byte> make_tiles(gguf::Type type, const std::byte* data, std::uint64_t row_bytes, std::uint32_t rows,
                                  std::uint32_t cols, bool biased) {
  const std::uint64_t bytes = tile_bytes(type, cols);
  std::vector<std::byte> tiles((rows + kTileRows - 1) / kTileRows * bytes);
  for (std::uint32_t first = 0; first < rows && bytes != 0; first += kTileRows) {
    make_tile(type, data + first * row_bytes, row_bytes, std::min(kTileRows, rows - first), cols, biased,
              tiles.data() + first / kTileRows * bytes);
  }
  return tiles;
}

struct Quantized {
  std::vector<std::int8_t> q;
  std::vector<float> scales, sums, half_sums;
  std::vector<std::int32_t> starts, half_starts;
  QuantInput input;

  Quantized(const Kernels& kernels, const std::vector<float>& x)
      : q(x.size()),
        scales(x.size() / 32),
        sums(x.size() / 32),
        half_sums(x.size() / 16),
        starts(x.size() / 32),
        half_starts(x.size() / 16),
        input{q.data(), scales.data(), starts.data(), sums.data(), half_starts.data(), half_sums.data()} {
    kernels.quantize(x.data(), static_cast<std::uint32_t>(x.size()), input);
  }
};

// The floats of some blocks, in rows of 256 columns. They come from tiles if the type has them, else from integers and
// scales.
std::vector<float> unpacked(const Kernels& kernels, gguf::Type type, const std::vector<std::byte>& bytes) {
  const gguf::TypeInfo& info = gguf::type_info(type);
  const auto count = static_cast<std::uint32_t>(bytes.size() / info.block_bytes * info.block_size);
  std::vector<float> values(count);
  constexpr std::uint32_t kCols = 256;
  if (const std::uint64_t tile = tile_bytes(type, kCols); tile != 0) {
    const std::uint32_t rows = count / kCols;
    const auto tiles = make_tiles(type, bytes.data(), bytes.size() / rows, rows, kCols, kernels.biased);
    for (std::uint32_t n = 0; n < rows; ++n) {
      read_tile_row(type, tiles.data() + n / kTileRows * tile, n % kTileRows, kCols, kernels.biased,
                    values.data() + n * kCols);
    }
    return values;
  }
  std::vector<std::int8_t> q(count);
  std::vector<float> scales(count / 16), offsets(count / 16);
  EXPECT_TRUE(kernels.unpack_quant(type, bytes.data(), count, {q.data(), scales.data(), offsets.data()}));
  for (std::uint32_t i = 0; i < count; ++i) {
    const volatile float product = scales[i / 16] * q[i];  // not fused with the addition
    values[i] = product + offsets[i / 16];
  }
  return values;
}

// The floats are those of the reference, to the bit.
TEST(Kernels, UnpackedBlocksAreTheReferenceToTheBit) {
  for (const gguf::Type type : kQuantTypes) {
    const auto bytes = read(std::string(gguf::type_name(type)) + ".bin");
    ASSERT_FALSE(bytes.empty()) << gguf::type_name(type);
    for (const Kernels* kernels : all_kernels()) {
      const std::vector<float> values = unpacked(*kernels, type, bytes);
      std::vector<float> reference(values.size());
      ASSERT_TRUE(gguf::dequantize(type, bytes, reference).has_value());
      for (std::size_t i = 0; i < values.size(); ++i) {
        ASSERT_EQ(values[i], reference[i]) << kernels->name << " " << gguf::type_name(type) << " element " << i;
      }
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
    const int bias = kernels->biased ? 128 : 0;
    for (std::size_t i = 0; i < x.size() / 16; ++i) {
      int half = 0, whole = 0;
      for (std::size_t j = 0; j < 16; ++j) half += quantized.q[16 * i + j];
      for (std::size_t j = 0; j < 32; ++j) whole += quantized.q[i / 2 * 32 + j];
      ASSERT_EQ(quantized.half_starts[i], -bias * half);
      ASSERT_EQ(quantized.starts[i / 2], -bias * whole);
      ASSERT_EQ(quantized.half_sums[i], quantized.scales[i / 2] * static_cast<float>(half));
      ASSERT_EQ(quantized.sums[i / 2], quantized.scales[i / 2] * static_cast<float>(whole));
    }
    // Zero, and values so small that no scale can be divided by: the activation of a very negative number.
    for (const float tiny : {0.0f, 1e-38f, 1e-45f}) {
      const Quantized nothing(*kernels, std::vector<float>(64, tiny));
      for (const std::int8_t q : nothing.q) ASSERT_EQ(q, 0);
      for (const float sum : nothing.sums) ASSERT_EQ(sum, 0);
    }
  }
}

// Products with blocks of a real quantiser: in tiles if the type has them, else as in the file.
TEST(Kernels, ProductsOfEveryTypeMatchTheReference) {
  for (const gguf::Type type : kQuantTypes) {
    const auto bytes = read(std::string(gguf::type_name(type)) + ".bin");
    const std::uint32_t cols = 256;
    const gguf::TypeInfo& info = gguf::type_info(type);
    const std::size_t row_bytes = std::size_t{cols} / info.block_size * info.block_bytes;
    const auto rows = static_cast<std::uint32_t>(std::min<std::size_t>(21, bytes.size() / row_bytes));
    const auto x = random_floats(cols, 11);
    for (const Kernels* kernels : all_kernels()) {
      const Quantized quantized(*kernels, x);
      const auto tiles = make_tiles(type, bytes.data(), row_bytes, rows, cols, kernels->biased);
      LargeVector<std::byte> quants(kMostTiles * kMostChunkCols * 16);
      LargeVector<float> scales(kMostChunkCols * kMostTiles), offsets(kMostChunkCols * kMostTiles),
          sums(kMostTiles * 16);
      std::vector<float> out(rows);
      const WeightTiles weight{type,
                               rows,
                               cols,
                               tiles.empty() ? bytes.data() : tiles.data(),
                               tile_bytes(type, cols),
                               row_bytes,
                               info.block_size,
                               info.block_bytes};
      kernels->multiply_quant(weight, 0, (rows + 15) / 16, quantized.input, cols, 1,
                              {out.data(), rows, nullptr, false, 1},
                              {quants.data(), scales.data(), offsets.data(), sums.data()});
      std::vector<float> reference(cols);
      for (std::uint32_t n = 0; n < rows; ++n) {
        ASSERT_TRUE(gguf::dequantize(type, std::span(bytes).subspan(n * row_bytes, row_bytes), reference).has_value());
        double expected = 0, size = 0;
        for (std::uint32_t i = 0; i < cols; ++i) {
          const double product = double{reference[i]} * quantized.scales[i / 32] * quantized.q[i];
          expected += product;
          size += std::fabs(product);
        }
        EXPECT_NEAR(out[n], expected, 1e-5 * size + 1e-7)
            << kernels->name << " " << gguf::type_name(type) << " row " << n;
      }
    }
  }
}

TEST(Kernels, KeysAndValuesAreStoredAsTheReferenceRoundsThem) {
  for (const std::uint32_t n : {1u, 8u, 30u, 64u}) {
    auto values = random_floats(n, n);
    values[0] = 70000.0f;  // too large for an f16
    if (n > 2) values[1] = 1e-7f, values[2] = -0.0f;
    for (const Kernels* kernels : all_kernels()) {
      std::vector<std::uint16_t> halves(n);
      kernels->store_kv(ElementType::F16, reinterpret_cast<std::byte*>(halves.data()), values.data(), n);
      for (std::uint32_t i = 0; i < n; ++i)
        ASSERT_EQ(halves[i], gguf::f32_to_f16(values[i])) << kernels->name << " " << i;
    }
  }
}

// A number is off by half its block's scale at most. The variants agree to the bit.
TEST(Kernels, RowsOfQ8AreTheNearestUnderTheirScales) {
  for (const std::uint32_t dim : {1u, 16u, 31u, 32u, 33u, 80u, 128u, 250u}) {
    std::vector<float> row = random_floats(dim, dim);
    for (std::uint32_t i = 0; i < dim; i += 50) row[i] *= 100;
    std::vector<std::byte> first;
    for (const Kernels* kernels : all_kernels()) {
      std::vector<std::byte> stored(row_bytes(ElementType::Q8_0, dim));
      kernels->store_kv(ElementType::Q8_0, stored.data(), row.data(), dim);
      if (first.empty()) first = stored;
      EXPECT_EQ(stored, first) << kernels->name;
      for (std::uint32_t i = 0; i < dim; ++i) {
        std::uint16_t half;
        std::memcpy(&half, stored.data() + scales_offset(dim) + i / 32 * 2, 2);
        const float scale = gguf::f16_to_f32(half);
        EXPECT_LE(std::abs(static_cast<float>(static_cast<std::int8_t>(stored[i])) * scale - row[i]), scale * 0.5001f)
            << kernels->name << ", " << i << " of " << dim;
      }
    }
  }
}

TEST(Kernels, RowsOfQ8WithExtremeNumbers) {
  constexpr std::uint32_t kDim = 96;
  for (const Kernels* kernels : all_kernels()) {
    std::vector<float> row(kDim, 1.0f);
    row[3] = INFINITY;
    row[40] = -3e38f;  // beyond 127 times the largest half
    std::fill(row.begin() + 64, row.end(), 1e-30f);
    std::vector<std::byte> stored(row_bytes(ElementType::Q8_0, kDim));
    kernels->store_kv(ElementType::Q8_0, stored.data(), row.data(), kDim);
    std::uint16_t scales[3];
    std::memcpy(scales, stored.data() + kDim, sizeof scales);
    EXPECT_TRUE(std::isnan(gguf::f16_to_f32(scales[0]))) << kernels->name;
    EXPECT_EQ(scales[1], 0x7bff) << kernels->name;
    EXPECT_EQ(static_cast<std::int8_t>(stored[40]), -127) << kernels->name;
    EXPECT_EQ(scales[2], 1) << kernels->name;
    row[3] = NAN;
    kernels->store_kv(ElementType::Q8_0, stored.data(), row.data(), kDim);
    std::memcpy(scales, stored.data() + kDim, sizeof scales);
    EXPECT_TRUE(std::isnan(gguf::f16_to_f32(scales[0]))) << kernels->name;
  }
}

// A tile of random keys and values, and its memory.
struct RandomTile {
  RandomTile(const Kernels& kernels, ElementType type, std::uint32_t dim, std::uint32_t position, std::uint32_t seed)
      : keys(random_floats(kContextTile * dim, seed)), values(random_floats(kContextTile * dim, seed + 1)) {
    const std::uint64_t bytes = row_bytes(type, dim);
    stored.resize(std::size_t{2} * kContextTile * bytes);
    tile.position = position;
    for (std::uint32_t t = 0; t < kContextTile; ++t) {
      std::byte* const at = stored.data() + std::size_t{2} * t * bytes;
      kernels.store_kv(type, at, &keys[t * dim], dim);
      kernels.store_kv(type, at + bytes, &values[t * dim], dim);
      tile.keys[t] = at;
      tile.values[t] = at + bytes;
    }
  }
  std::vector<float> keys, values;  // before they were stored
  std::vector<std::byte> stored;
  ContextTile tile;
};

// The result of a query is the softmax. It has the same bits whatever other queries are there, in either type.
TEST(Kernels, AQueryGetsTheSameHoweverManyQueriesThereAre) {
  for (const std::uint32_t dim : {16u, 64u, 80u, 100u, 128u}) {
    const auto q = random_floats(7 * dim, dim + 2);
    for (const Kernels* kernels : all_kernels()) {
      for (const ElementType type : {ElementType::F32, ElementType::F16, ElementType::BF16, ElementType::Q8_0}) {
        const RandomTile context(*kernels, type, dim, 128, dim);
        const auto attend = [&](std::uint32_t first, std::uint32_t count) {
          std::vector<float> sums(7 * dim);
          std::vector<Query> queries(count);
          for (std::uint32_t i = 0; i < count; ++i) {
            const std::uint32_t end = 128 + 64 - 3 * (first + i), begin = first + i == 2 ? 140 : 0;
            queries[i] = {&q[(first + i) * dim], &sums[(first + i) * dim], begin, end, -INFINITY, {}};
          }
          kernels->attend(context.tile, nullptr, type, queries.data(), count, {dim, dim, false, 0.2f, 0});
          kernels->end_attention(queries.data(), count, dim, nullptr, 1);
          return sums;
        };
        const std::vector<float> together = attend(0, 7);
        for (std::uint32_t i = 0; i < 7; ++i) {
          const std::vector<float> alone = attend(i, 1);
          ASSERT_EQ(std::memcmp(&together[i * dim], &alone[i * dim], dim * sizeof(float)), 0)
              << kernels->name << " " << dim;
          double total = 0;
          std::vector<double> expected(dim);
          for (std::uint32_t t = i == 2 ? 12 : 0; t < 64 - 3 * i; ++t) {
            double score = 0;
            for (std::uint32_t d = 0; d < dim; ++d) score += double{q[i * dim + d]} * context.keys[t * dim + d];
            const double weight = std::exp(0.2 * score);
            total += weight;
            for (std::uint32_t d = 0; d < dim; ++d) expected[d] += weight * context.values[t * dim + d];
          }
          for (std::uint32_t d = 0; d < dim; ++d) {
            ASSERT_NEAR(alone[i * dim + d], expected[d] / total,
                        type == ElementType::F32   ? 1e-4
                        : type == ElementType::F16 ? 1e-2
                                                   : 4e-2)
                << kernels->name;
          }
        }
      }
    }
  }
}

// Many queries, of which some see whole tiles and some a part, over several tiles. For some the running maximum rises.
TEST(Kernels, ManyQueriesOverSeveralTilesGetWhatEachGetsAlone) {
  constexpr std::uint32_t kTiles = 3, kQueries = 53;
  for (const std::uint32_t dim : {16u, 64u, 128u, 200u, 256u, 272u}) {
    const auto q = random_floats(kQueries * dim, dim + 9);
    for (const Kernels* kernels : all_kernels()) {
      for (const ElementType type : {ElementType::F32, ElementType::F16}) {
        for (const float cap : {0.0f, 2.0f}) {
          std::vector<RandomTile> tiles;
          for (std::uint32_t i = 0; i < kTiles; ++i)
            tiles.emplace_back(*kernels, type, dim, kContextTile * i, dim + 20 * i);
          const auto attend = [&](std::uint32_t first, std::uint32_t count) {
            std::vector<float> sums(kQueries * dim);
            std::vector<Query> queries(count);
            for (std::uint32_t i = 0; i < count; ++i) {
              const std::uint32_t n = first + i, begin = n == 3 || n > 50 ? 70 : 0, end = n % 32 < 16 ? 192 : 120 + n;
              queries[i] = {&q[n * dim], &sums[n * dim], begin, end, -INFINITY, {}};
            }
            for (std::uint32_t i = 0; i < kTiles; ++i) {
              const ContextTile* const next = i + 1 < kTiles ? &tiles[i + 1].tile : nullptr;
              kernels->attend(tiles[i].tile, next, type, queries.data(), count, {dim, dim, false, 0.3f, cap});
            }
            kernels->end_attention(queries.data(), count, dim, nullptr, 1);
            return sums;
          };
          const std::vector<float> together = attend(0, kQueries);
          for (std::uint32_t i = 0; i < kQueries; ++i) {
            const std::vector<float> alone = attend(i, 1);
            ASSERT_EQ(std::memcmp(&together[i * dim], &alone[i * dim], dim * sizeof(float)), 0)
                << kernels->name << ", " << dim << " elements, query " << i << ", cap " << cap;
          }
        }
      }
    }
  }
}

TEST(Kernels, FunctionsOfRowsAreCloseToTheLibrarys) {
  std::vector<float> x;
  for (float v = -100; v < 100; v += 0.37f) x.push_back(v);
  const auto n = static_cast<std::uint32_t>(x.size());
  const std::vector<float> ones(n, 1.0f), zeros(n, 0.0f);
  for (const Kernels* kernels : all_kernels()) {
    std::vector<float> silu(n), gelu(n), steps(n), decays(n), capped = x;
    kernels->gate_silu(silu.data(), x.data(), ones.data(), n);
    kernels->gate_gelu(gelu.data(), x.data(), ones.data(), n);
    kernels->soft_cap(capped.data(), 30.0f, n);
    const std::vector<float> a(n, -0.5f);
    kernels->discretize(steps.data(), decays.data(), x.data(), zeros.data(), a.data(), n);
    for (std::uint32_t i = 0; i < n; ++i) {
      const double v = x[i];
      EXPECT_NEAR(silu[i], v / (1 + std::exp(-v)), 2e-6 * (1 + std::fabs(v))) << v;
      EXPECT_NEAR(gelu[i], 0.5 * v * (1 + std::tanh(0.7978845608028654 * (v + 0.044715 * v * v * v))),
                  2e-6 * (1 + std::fabs(v)));
      EXPECT_NEAR(capped[i], 30 * std::tanh(v / 30), 1e-5) << v;
      const double step = v > 30 ? v : std::log1p(std::exp(v));
      EXPECT_NEAR(steps[i], step, 1e-6 * (1 + step)) << v;
      EXPECT_NEAR(decays[i], std::exp(-0.5 * step), 2e-6) << v;
    }
  }
}

}  // namespace
}  // namespace quire::cpu
