// The layout of weights: what the kernels will make of an arranged matrix is what the file says.
#include "quire/backend/cuda/arrange.h"

#include <bit>
#include <set>

#include "quire/backend/reference_testing.h"
#include "quire/gguf/half.h"

namespace quire::cuda {
namespace {

using reference::FileWeight;
using reference::random_weight;

std::uint16_t u16(const std::byte* at) {
  std::uint16_t value;
  std::memcpy(&value, at, sizeof value);
  return value;
}
std::uint32_t u32(const std::byte* at) {
  std::uint32_t value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// A weight as a kernel computes it, and how far rounding may take it from the file's.
struct Unpacked {
  float value = 0, rounding = 0;
};

Unpacked unpack(Packing packing, const std::byte* piece, std::uint32_t step, std::uint32_t lane, std::uint32_t i) {
  const PackingInfo info = packing_info(packing);
  if (packing == Packing::F16) return {gguf::f16_to_f32(u16(piece + half_at(step, lane, i)))};
  if (packing == Packing::BF16) return {gguf::bf16_to_f32(u16(piece + half_at(step, lane, i)))};
  std::uint32_t q = info.bits == 8 ? std::to_integer<std::uint32_t>(piece[byte_at(step, lane, i)])
                                   : (u32(piece + nibble_word_at(step, lane)) >> nibble_bit(i)) & 15;
  const std::byte* high = piece + info.low_bytes();
  if (info.bits == 5) q |= ((u32(high + fifth_word_at(step, lane)) >> fifth_bit(step, i)) & 1) << 4;
  if (info.bits == 6) q |= ((u32(high + sixth_word_at(step, lane)) >> sixth_bit(step, i)) & 3) << 4;
  const std::byte* scales = high + info.high_bytes();
  const std::uint32_t group = 4 * step / info.group, second = i / 2 % 2;
  const float scale = gguf::f16_to_f32(u16(scales + scale_at(info, lane, group, second, 0)));
  const float min = info.min ? gguf::f16_to_f32(u16(scales + scale_at(info, lane, group, second, 1)))
                             : -scale * static_cast<float>(info.offset());
  if (info.floats) {
    const float number = static_cast<float>(gguf::kTwiceE2M1[q]) / 2;
    return {scale * number, std::fabs(scale * number) * 0x1p-10f + 0x1p-20f};
  }
  const float exact = std::fma(scale, static_cast<float>(q), min);
  const float terms = info.min ? std::fabs(scale * static_cast<float>(q)) + std::fabs(min) : std::fabs(exact);
  return {gguf::f16_to_f32(gguf::f32_to_f16(exact)), terms * 0x1p-10f + 0x1p-20f};
}

std::vector<std::byte> arranged(const FileWeight& weight, std::uint32_t threads) {
  ThreadTeam team(threads);
  std::vector<std::byte> out(arranged_bytes(weight.type, weight.rows, weight.cols), std::byte{0xee});
  arrange(weight.file(), team, out.data());
  return out;
}

void expect_same_numbers(const FileWeight& weight) {
  const std::vector<std::byte> out = arranged(weight, 2);
  const reference::Matrix values = weight.values();
  const Packing packing = packing_of(weight.type);
  if (packing == Packing::F32) {
    ASSERT_EQ(std::memcmp(out.data(), values.values.data(), values.values.size() * 4), 0);
    return;
  }
  const PackingInfo info = packing_info(packing);
  for (std::uint32_t tile = 0; tile < tiles_of(weight.rows); ++tile) {
    for (std::uint32_t piece = 0; piece < pieces_of(weight.cols); ++piece) {
      const std::byte* at = out.data() + tiles_at(weight.rows) + tile * tile_bytes(packing, weight.cols) +
                            std::uint64_t{piece} * info.piece_bytes();
      for (std::uint32_t k = 0; k < kTileRows * kPieceCols; ++k) {
        const std::uint32_t step = k / 256, lane = k / 8 % 32, i = k % 8;
        const Place place = place_of(step, lane, i);
        const std::uint32_t row = tile * kTileRows + place.row, col = piece * kPieceCols + place.col;
        const Unpacked got = unpack(packing, at, step, lane, i);
        const auto inverse = std::bit_cast<float>(u32(out.data() + row * 4));
        const float expected = row < weight.rows && col < weight.cols ? values.at(row, col) : 0;
        ASSERT_LE(std::fabs(got.value * inverse - expected), got.rounding * inverse)
            << "row " << row << ", column " << col << ": " << got.value * inverse << ", expected " << expected;
        ASSERT_TRUE(got.value == 0.0f || (row < weight.rows && col < weight.cols)) << "padding";
      }
    }
  }
}

TEST(Arrange, EveryTypeKeepsItsNumbers) {
  for (const gguf::Type type : reference::weight_types()) {
    const std::uint32_t block = gguf::type_info(type).block_size;
    std::vector<std::uint32_t> columns = {256, 1024};
    if (block <= 32) columns.insert(columns.end(), {32, 96, 1056});
    if (block == 1) columns.insert(columns.end(), {1, 20, 33, 100, 300});
    for (const std::uint32_t cols : columns) {
      for (const std::uint32_t rows : {1u, 16u, 37u}) {
        SCOPED_TRACE(std::string(gguf::type_name(type)) + ", " + std::to_string(rows) + " x " + std::to_string(cols));
        expect_same_numbers(random_weight(type, rows, cols, rows + cols));
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Scales that are no normal halves in the file, or that are near the largest half.
TEST(Arrange, RowsOfAnyMagnitudeKeepTheirPrecision) {
  for (const gguf::Type type : {gguf::Type::Q8_0, gguf::Type::Q4_K, gguf::Type::Q6_K, gguf::Type::Q5_1}) {
    const std::uint32_t bytes = gguf::type_info(type).block_bytes, size = gguf::type_info(type).block_size;
    FileWeight weight = random_weight(type, 18, 512, 3);
    for (std::size_t block = 0; block < weight.bytes.size() / bytes; ++block) {
      const std::size_t row = block / (512 / size);
      for (const std::uint32_t at : reference::scales_of_block(type)) {
        const std::uint16_t half = row % 3 == 0 ? 0x0123 : row % 3 == 1 ? 0x7a00 : 0;
        std::memcpy(weight.bytes.data() + block * bytes + at, &half, sizeof half);
      }
    }
    SCOPED_TRACE(gguf::type_name(type));
    expect_same_numbers(weight);
  }
}

TEST(Arrange, ThreadsChangeNothing) {
  for (const gguf::Type type : {gguf::Type::F16, gguf::Type::Q5_K}) {
    const FileWeight weight = random_weight(type, 70, 512, 4);
    EXPECT_EQ(arranged(weight, 1), arranged(weight, 3));
  }
}

TEST(Arrange, EveryByteOfAPieceIsUsedOnce) {
  for (const Packing packing : {Packing::Q4, Packing::E2M1, Packing::Q4Min, Packing::Q4x16, Packing::Q4x16Min,
                                Packing::Q6x16, Packing::Q8x16}) {
    const PackingInfo info = packing_info(packing);
    std::set<std::uint32_t> seen;
    for (std::uint32_t lane = 0; lane < 32; ++lane) {
      for (std::uint32_t k = 0; k < info.lane_groups() * 4; ++k) {
        if (k % 2 == 0 || info.min) seen.insert(scale_at(info, lane, k / 4, k / 2 % 2, k % 2));
      }
    }
    EXPECT_EQ(seen.size(), info.scale_bytes() / 2);
    EXPECT_LT(*seen.rbegin(), info.scale_bytes());
  }
}

// A step of an input has the columns that the same step of a weight has.
TEST(Arrange, InputsHaveTheOrderOfWeights) {
  std::set<std::uint64_t> seen;
  for (std::uint32_t token = 0; token < 300; ++token) {
    for (std::uint32_t col = 0; col < 512; ++col) {
      const std::uint64_t at = input_at(2, token, col);
      EXPECT_TRUE(seen.insert(at).second);
      // [group][piece][step][tile of tokens][half][token][8]
      const std::uint64_t k = at % 8, in = at / 8 % 8, half = at / 64 % 2, tile = at / 128 % 32, step = at / 4096 % 16;
      EXPECT_EQ(at / 65536, token / 256 * 2 + col / 256);
      EXPECT_EQ(tile * 8 + in, token % 256);
      const auto lane = static_cast<std::uint32_t>(k / 2);  // of row 0
      const auto i = static_cast<std::uint32_t>(half * 4 + k % 2);
      EXPECT_EQ(place_of(static_cast<std::uint32_t>(step), lane, i).col, col % 256);
    }
  }
}

TEST(Arrange, PartsCoverAllPieces) {
  for (const std::uint32_t cols : {32u, 256u, 512u, 768u, 1024u, 2816u, 4096u, 14336u}) {
    const std::uint32_t parts = parts_of(cols), pieces = pieces_of(cols);
    EXPECT_EQ(part_begin(0, parts, pieces), 0u);
    EXPECT_EQ(part_begin(parts, parts, pieces), pieces);
    for (std::uint32_t part = 0; part < parts; ++part) {
      EXPECT_LT(part_begin(part, parts, pieces), part_begin(part + 1, parts, pieces));
    }
  }
}

}  // namespace
}  // namespace quire::cuda
