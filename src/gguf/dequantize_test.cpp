// The table of types and the reference dequantizers, against blocks and floats written by other programs.
#include <cmath>
#include <cstring>
#include <ostream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "quire/gguf/gguf_testing.h"
#include "quire/gguf/half.h"
#include "quire/gguf/quantize_testing.h"
#include "quire/gguf/types.h"

namespace quire::gguf {
namespace {

// All files of testdata/quant, with the ids in its index.json.
struct Fixture {
  const char* name;
  std::uint32_t id;
  std::size_t elements;
};

void PrintTo(const Fixture& fixture, std::ostream* out) { *out << fixture.name; }

class Quantized : public ::testing::TestWithParam<Fixture> {};

TEST_P(Quantized, BlocksBecomeTheFloatsOfTheFixtureToTheBit) {
  const std::string base = std::string(QUIRE_SOURCE_DIR) + "/testdata/quant/" + GetParam().name;
  const std::vector<std::byte> blocks = testing::read_whole(base + ".bin");
  const std::vector<std::byte> expected = testing::read_whole(base + ".f32");
  ASSERT_EQ(expected.size(), GetParam().elements * sizeof(float));

  const TypeInfo* info = find_type(GetParam().id);
  ASSERT_NE(info, nullptr);
  EXPECT_EQ(info->name, GetParam().name);
  EXPECT_TRUE(info->dequantizable);
  EXPECT_EQ(byte_size(info->type, GetParam().elements), blocks.size());

  std::vector<float> floats(GetParam().elements);
  const auto done = dequantize(info->type, blocks, floats);
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(std::memcmp(floats.data(), expected.data(), expected.size()), 0);
}

INSTANTIATE_TEST_SUITE_P(
    Fixtures, Quantized,
    ::testing::Values(Fixture{"BF16", 30, 4096}, Fixture{"Q4_0", 2, 4096}, Fixture{"Q4_1", 3, 4096},
                      Fixture{"Q5_0", 6, 4096}, Fixture{"Q5_1", 7, 4096}, Fixture{"Q8_0", 8, 4096},
                      Fixture{"Q2_K", 10, 4096}, Fixture{"Q3_K", 11, 4096}, Fixture{"Q4_K", 12, 4096},
                      Fixture{"Q5_K", 13, 12288}, Fixture{"Q6_K", 14, 4096}, Fixture{"IQ4_NL", 20, 4096},
                      Fixture{"IQ4_XS", 23, 4096}, Fixture{"IQ2_XXS", 16, 2048}, Fixture{"IQ2_XS", 17, 2048},
                      Fixture{"IQ3_XXS", 18, 2048}, Fixture{"IQ1_S", 19, 2048}, Fixture{"IQ3_S", 21, 2048},
                      Fixture{"IQ2_S", 22, 2048}, Fixture{"IQ1_M", 29, 2048}, Fixture{"TQ1_0", 34, 2048},
                      Fixture{"TQ2_0", 35, 2048}, Fixture{"MXFP4", 39, 4096}),
    [](const auto& test) { return test.param.name; });

TEST(Dequantize, EveryFixtureInTheFolderHasATest) {
  EXPECT_EQ(testing::files_with_extension(QUIRE_SOURCE_DIR "/testdata/quant", ".bin").size(), 23u);
}

// Other tests make models with this helper.
TEST(QuantizeForTests, QuantizedValuesAreCloseToTheOriginals) {
  const std::vector<std::byte> bytes = testing::read_whole(QUIRE_SOURCE_DIR "/testdata/quant/BF16.f32");
  std::vector<float> weights(bytes.size() / sizeof(float));
  std::memcpy(weights.data(), bytes.data(), bytes.size());
  const std::pair<Type, double> most[] = {
      {Type::Q4_0, 0.11}, {Type::Q4_K, 0.09}, {Type::Q5_K, 0.05}, {Type::Q6_K, 0.025}, {Type::IQ4_XS, 0.1}};
  for (const auto& [type, limit] : most) {
    std::vector<float> again(weights.size());
    ASSERT_TRUE(dequantize(type, testing::quantize(type, weights), again));
    double error = 0, size = 0;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      error += std::pow(again[i] - weights[i], 2);
      size += std::pow(weights[i], 2);
    }
    EXPECT_LT(std::sqrt(error / size), limit) << type_name(type);
    EXPECT_GT(std::sqrt(error / size), limit / 2) << type_name(type);
  }
}

TEST(Dequantize, FloatsAndHalvesAreThemselves) {
  const std::vector<float> floats = {0.0f, -0.0f, 1.5f, -3e38f};
  std::vector<float> out(4);
  ASSERT_TRUE(dequantize(Type::F32, std::as_bytes(std::span(floats)), out));
  EXPECT_EQ(std::memcmp(floats.data(), out.data(), 16), 0);

  std::vector<std::uint16_t> halves(65536);
  for (std::uint32_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<std::uint16_t>(i);
  out.resize(halves.size());
  ASSERT_TRUE(dequantize(Type::F16, std::as_bytes(std::span(halves)), out));
  for (std::size_t i = 0; i < out.size(); ++i) {
    ASSERT_EQ(std::bit_cast<std::uint32_t>(out[i]), std::bit_cast<std::uint32_t>(f16_to_f32(halves[i])));
  }
}

TEST(Dequantize, ScalesOfMxfp4AreAllPowersOfTwo) {
  for (const int e : {0, 1, 2, 3, 126, 127, 128, 252}) {
    std::vector<std::byte> block(17, std::byte{0xf2});  // 1.0 in the low nibbles, -6.0 in the high ones
    block[0] = static_cast<std::byte>(e);
    std::vector<float> out(32);
    ASSERT_TRUE(dequantize(Type::MXFP4, block, out));
    EXPECT_EQ(out[0], std::ldexp(1.0, e - 127)) << e;
    EXPECT_EQ(out[16], -6 * std::ldexp(1.0, e - 127)) << e;
  }
}

TEST(Dequantize, BlocksNeedNoAlignment) {
  const std::vector<std::byte> blocks = testing::read_whole(QUIRE_SOURCE_DIR "/testdata/quant/Q4_K.bin");
  std::vector<std::byte> shifted(blocks.size() + 1);
  std::ranges::copy(blocks, shifted.begin() + 1);
  std::vector<float> aligned(4096), unaligned(4096);
  ASSERT_TRUE(dequantize(Type::Q4_K, blocks, aligned));
  ASSERT_TRUE(dequantize(Type::Q4_K, std::span(shifted).subspan(1), unaligned));
  EXPECT_EQ(std::memcmp(aligned.data(), unaligned.data(), aligned.size() * 4), 0);
}

TEST(Dequantize, SizesThatDoNotMatchAreRefusedAndNothingIsWritten) {
  std::vector<std::byte> blocks(36);
  std::vector<float> out(64, 7.0f);
  EXPECT_TRUE(dequantize(Type::Q4_0, blocks, out));
  std::ranges::fill(out, 7.0f);
  EXPECT_FALSE(dequantize(Type::Q4_0, std::span(blocks).first(35), out));
  EXPECT_FALSE(dequantize(Type::Q4_0, std::span(blocks).first(18), out));
  EXPECT_FALSE(dequantize(Type::Q4_0, blocks, std::span(out).first(63)));
  EXPECT_FALSE(dequantize(Type::Q4_0, blocks, std::span(out).first(32)));
  EXPECT_EQ(out, std::vector<float>(64, 7.0f));
  EXPECT_EQ(dequantize(Type::Q4_0, std::span(blocks).first(18), out).error().message,
            "18 bytes of Q4_0 are not 64 elements (18 bytes for every 32)");
  EXPECT_TRUE(dequantize(Type::Q4_0, {}, {}));
}

TEST(Dequantize, ATypeWithoutAReferenceIsRefusedByName) {
  std::vector<std::byte> blocks(36);
  std::vector<float> out(32);
  const auto done = dequantize(Type::Q8_1, blocks, out);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().message, "tensors of type Q8_1 cannot be turned into floats");
}

TEST(Dequantize, TheTableSaysWhichTypesCanBeDequantized) {
  std::set<std::string_view> can;
  for (std::uint32_t id = 0; find_type(id) != nullptr; ++id) {
    const TypeInfo& info = *find_type(id);
    if (info.block_size == 0) continue;
    std::vector<std::byte> block(info.block_bytes);
    std::vector<float> out(info.block_size);
    EXPECT_EQ(dequantize(info.type, block, out).has_value(), info.dequantizable) << info.name;
    if (info.dequantizable) can.insert(info.name);
  }
  EXPECT_EQ(can, (std::set<std::string_view>{"F32",    "F16",   "BF16",  "Q4_0",    "Q4_1",   "Q5_0",  "Q5_1",
                                             "Q8_0",   "Q2_K",  "Q3_K",  "Q4_K",    "Q5_K",   "Q6_K",  "IQ4_NL",
                                             "IQ4_XS", "IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS",
                                             "IQ3_S",  "TQ1_0", "TQ2_0", "MXFP4"}));
}

TEST(Types, TypesAreFoundByIdAndByName) {
  EXPECT_EQ(find_type(39)->name, "MXFP4");
  EXPECT_EQ(find_type("IQ4_XS")->type, Type::IQ4_XS);
  EXPECT_EQ(find_type("iq4_xs"), nullptr);
  EXPECT_EQ(find_type(1000), nullptr);
  EXPECT_EQ(type_name(Type::BF16), "BF16");
  EXPECT_EQ(find_type(31)->name, "Q4_0_4_4");
  EXPECT_EQ(find_type(31)->block_size, 0u);
}

TEST(Types, ByteSizesAreOfWholeBlocksAndDoNotOverflow) {
  EXPECT_EQ(byte_size(Type::Q6_K, 512), 420u);
  EXPECT_EQ(byte_size(Type::Q6_K, 0), 0u);
  EXPECT_EQ(byte_size(Type::Q6_K, 255), std::nullopt);
  EXPECT_EQ(byte_size(Type::F64, UINT64_MAX), std::nullopt);
  EXPECT_EQ(byte_size(static_cast<Type>(31), 32), std::nullopt);
}

}  // namespace
}  // namespace quire::gguf
