#include "quire/backend/cpu/tiles.h"

#include <cstring>

#include "quire/base/check.h"
#include "quire/gguf/half.h"

namespace quire::cpu {
namespace {

using gguf::Type;

std::uint32_t blocks_in(std::uint32_t at, std::uint32_t cols) { return cols - at < kPieceCols ? (cols - at) / 32 : 8; }

// Sixteen rows of 32 bytes, as eight vectors of four columns each.
void interleave(const std::byte* const (&rows)[kTileRows], std::byte* to) {
  for (std::uint32_t r = 0; r < kTileRows; ++r) {
    for (std::uint32_t k = 0; k < 8; ++k) std::memcpy(to + k * 64 + r * 4, rows[r] + k * 4, 4);
  }
}

// A block of 32 columns for each row, values below 16: two nibbles to a byte.
void put_nibbles(const std::uint8_t (&q)[kTileRows][32], std::byte* to) {
  for (std::uint32_t r = 0; r < kTileRows; ++r) {
    for (std::uint32_t i = 0; i < 16; ++i) {
      to[i / 4 * 64 + r * 4 + i % 4] = static_cast<std::byte>((q[r][i] & 15) | (q[r][i + 16] & 15) << 4);
    }
  }
}

// Where a BF16 element is in its tile.
std::size_t pair_offset(std::uint32_t col, std::uint32_t row) {
  return (std::size_t{col / 2} * kTileRows + row) * 4 + col % 2 * 2;
}

constexpr std::byte kZeros[256] = {};

// The rows of a tile. Missing rows of the last tile are zeros.
struct RowsOf {
  const std::byte* rows;
  std::uint64_t row_bytes;
  std::uint32_t count;

  const std::byte* block(std::uint32_t row, std::uint64_t index, std::uint32_t block_bytes) const {
    return row < count ? rows + row * row_bytes + index * block_bytes : kZeros;
  }
};

void make_q8_0(const RowsOf& from, std::uint32_t cols, bool biased, std::byte* to) {
  for (std::uint32_t at = 0; at < cols; at += kPieceCols) {
    const std::uint32_t blocks = blocks_in(at, cols);
    std::byte* quants = to + scales_bytes(blocks);
    for (std::uint32_t b = 0; b < blocks; ++b) {
      const std::byte* rows[kTileRows];
      for (std::uint32_t r = 0; r < kTileRows; ++r) {
        const std::byte* block = from.block(r, at / 32 + b, 34);
        std::memcpy(to + (b * kTileRows + r) * 2, block, 2);
        rows[r] = block + 2;
      }
      interleave(rows, quants + b * 512);
      if (biased) {
        for (std::uint32_t i = 0; i < 512; ++i) quants[b * 512 + i] ^= std::byte{0x80};
      }
    }
    to += q8_piece(blocks);
  }
}

void make_q4_0(const RowsOf& from, std::uint32_t cols, std::byte* to) {
  for (std::uint32_t at = 0; at < cols; at += kPieceCols) {
    const std::uint32_t blocks = blocks_in(at, cols);
    for (std::uint32_t b = 0; b < blocks; ++b) {
      for (std::uint32_t r = 0; r < kTileRows; ++r) {
        const std::byte* block = from.block(r, at / 32 + b, 18);
        std::memcpy(to + (b * kTileRows + r) * 2, block, 2);
        // In the file, too, the low nibbles are the first sixteen columns.
        std::byte* quants = to + scales_bytes(blocks) + b * 256;
        for (std::uint32_t j = 0; j < 4; ++j) std::memcpy(quants + j * 64 + r * 4, block + 2 + j * 4, 4);
      }
    }
    to += q4_piece(blocks);
  }
}

void make_mxfp4(const RowsOf& from, std::uint32_t cols, std::byte* to) {
  for (std::uint32_t at = 0; at < cols; at += kPieceCols) {
    const std::uint32_t blocks = blocks_in(at, cols);
    for (std::uint32_t b = 0; b < blocks; ++b) {
      for (std::uint32_t r = 0; r < kTileRows; ++r) {
        const std::byte* block = from.block(r, at / 32 + b, 17);
        to[b * kTileRows + r] = block[0];
        std::byte* quants = to + mxfp4_scales_bytes(blocks) + b * 256;
        for (std::uint32_t j = 0; j < 4; ++j) std::memcpy(quants + j * 64 + r * 4, block + 1 + j * 4, 4);
      }
    }
    to += mxfp4_piece(blocks);
  }
}

void make_q45_k(const RowsOf& from, std::uint32_t cols, bool five, std::byte* to) {
  const std::uint32_t block_bytes = five ? 176 : 144;
  for (std::uint32_t at = 0; at < cols; at += kPieceCols) {
    const std::byte* blocks[kTileRows];
    for (std::uint32_t r = 0; r < kTileRows; ++r) {
      const std::byte* block = blocks[r] = from.block(r, at / kPieceCols, block_bytes);
      std::memcpy(to + r * 2, block, 2);
      std::memcpy(to + 32 + r * 2, block + 2, 2);
      for (std::uint32_t i = 0; i < 3; ++i) std::memcpy(to + 64 + i * 64 + r * 4, block + 4 + i * 4, 4);
    }
    std::byte* quants = to + 64 + 192;
    for (std::uint32_t b = 0; b < 8; ++b, quants += five ? kQ5KBlock : 256) {
      std::uint8_t q[kTileRows][32];
      for (std::uint32_t r = 0; r < kTileRows; ++r) {
        const std::byte* nibbles = blocks[r] + (five ? 48 : 16) + 32 * (b / 2);
        for (std::uint32_t i = 0; i < 32; ++i) {
          q[r][i] = static_cast<std::uint8_t>(b % 2 == 0 ? nibbles[i] & std::byte{15} : nibbles[i] >> 4);
        }
        if (!five) continue;
        for (std::uint32_t i = 0; i < 4; ++i) {
          std::byte bits{};
          for (std::uint32_t j = 0; j < 8; ++j) {
            bits |= (blocks[r][16 + 4 * j + i] >> b & std::byte{1}) << j;
          }
          quants[256 + r * 4 + i] = bits;
        }
      }
      put_nibbles(q, quants);
    }
    to += five ? kQ5KPiece : kQ4KPiece;
  }
}

void make_q6_k(const RowsOf& from, std::uint32_t cols, std::byte* to) {
  for (std::uint32_t at = 0; at < cols; at += kPieceCols) {
    const std::byte* blocks[kTileRows];
    for (std::uint32_t r = 0; r < kTileRows; ++r) {
      blocks[r] = from.block(r, at / kPieceCols, 210);
      std::memcpy(to + r * 2, blocks[r] + 208, 2);
      for (std::uint32_t i = 0; i < 4; ++i) std::memcpy(to + 64 + i * 64 + r * 4, blocks[r] + 192 + i * 4, 4);
    }
    std::byte* quants = to + 64 + 256;
    for (std::uint32_t b = 0; b < 8; ++b, quants += kQ6KBlock) {
      std::uint8_t q[kTileRows][32];
      for (std::uint32_t r = 0; r < kTileRows; ++r) {
        // A block of 256 is two parts of 128. Each byte of low bits holds elements of two of the four runs of 32.
        const std::byte* low = blocks[r] + 64 * (b / 4) + 32 * (b % 2);
        const std::byte* two = blocks[r] + 128 + 32 * (b / 4);
        const std::uint32_t part = b % 4;
        std::byte bits[32];
        for (std::uint32_t i = 0; i < 32; ++i) {
          q[r][i] = static_cast<std::uint8_t>(part < 2 ? low[i] & std::byte{15} : low[i] >> 4);
          bits[i] = two[i] >> (2 * part) & std::byte{3};
        }
        for (std::uint32_t half = 0; half < 2; ++half) {
          for (std::uint32_t i = 0; i < 4; ++i) {
            std::byte packed{};
            for (std::uint32_t j = 0; j < 4; ++j) packed |= bits[16 * half + 4 * j + i] << (2 * j);
            quants[256 + half * 64 + r * 4 + i] = packed;
          }
        }
      }
      put_nibbles(q, quants);
    }
    to += kQ6KPiece;
  }
}

template <std::size_t kBytes>
void make_plain(const RowsOf& from, std::uint32_t cols, std::byte* to) {
  for (std::uint32_t r = 0; r < kTileRows; ++r) {
    if (r < from.count) {
      const std::byte* row = from.rows + r * from.row_bytes;
      for (std::uint32_t k = 0; k < cols; ++k) {
        std::memcpy(to + (std::size_t{k} * kTileRows + r) * kBytes, row + k * kBytes, kBytes);
      }
    } else {
      for (std::uint32_t k = 0; k < cols; ++k) std::memset(to + (std::size_t{k} * kTileRows + r) * kBytes, 0, kBytes);
    }
  }
}

// Two columns of a row side by side. A missing last column is zero.
void make_pairs(const RowsOf& from, std::uint32_t cols, std::byte* to) {
  std::memset(to, 0, tile_bytes(Type::BF16, cols));
  for (std::uint32_t r = 0; r < from.count; ++r) {
    const std::byte* row = from.rows + r * from.row_bytes;
    for (std::uint32_t k = 0; k < cols; ++k) std::memcpy(to + pair_offset(k, r), row + std::size_t{k} * 2, 2);
  }
}

float half_at(const std::byte* p) {
  std::uint16_t bits;
  std::memcpy(&bits, p, 2);
  return gguf::f16_to_f32(bits);
}

// Element i (of 32) of a row in a block of nibbles.
int nibble(const std::byte* quants, std::uint32_t row, std::uint32_t i) {
  const std::byte both = quants[i % 16 / 4 * 64 + row * 4 + i % 4];
  return static_cast<int>(i < 16 ? both & std::byte{15} : both >> 4);
}

void read_q8_0(const std::byte* piece, std::uint32_t row, std::uint32_t cols, bool biased, float* to) {
  for (std::uint32_t at = 0; at < cols; at += kPieceCols) {
    const std::uint32_t blocks = blocks_in(at, cols);
    for (std::uint32_t i = 0; i < blocks * 32; ++i) {
      const std::byte q = piece[scales_bytes(blocks) + i / 4 * 64 + row * 4 + i % 4] ^ std::byte(biased ? 0x80 : 0);
      to[at + i] = half_at(piece + (i / 32 * kTileRows + row) * 2) * static_cast<float>(static_cast<std::int8_t>(q));
    }
    piece += q8_piece(blocks);
  }
}

void read_q4_0(const std::byte* piece, std::uint32_t row, std::uint32_t cols, float* to) {
  for (std::uint32_t at = 0; at < cols; at += kPieceCols) {
    const std::uint32_t blocks = blocks_in(at, cols);
    for (std::uint32_t i = 0; i < blocks * 32; ++i) {
      const int q = nibble(piece + scales_bytes(blocks) + i / 32 * 256, row, i % 32) - 8;
      to[at + i] = half_at(piece + (i / 32 * kTileRows + row) * 2) * static_cast<float>(q);
    }
    piece += q4_piece(blocks);
  }
}

void read_mxfp4(const std::byte* piece, std::uint32_t row, std::uint32_t cols, float* to) {
  for (std::uint32_t at = 0; at < cols; at += kPieceCols) {
    const std::uint32_t blocks = blocks_in(at, cols);
    for (std::uint32_t i = 0; i < blocks * 32; ++i) {
      const int q = nibble(piece + mxfp4_scales_bytes(blocks) + i / 32 * 256, row, i % 32);
      const auto e = static_cast<std::uint8_t>(piece[i / 32 * kTileRows + row]);
      to[at + i] = gguf::half_e8m0(e) * static_cast<float>(gguf::kTwiceE2M1[static_cast<std::size_t>(q)]);
    }
    piece += mxfp4_piece(blocks);
  }
}

void read_q45_k(const std::byte* piece, std::uint32_t row, std::uint32_t cols, bool five, float* to) {
  for (std::uint32_t at = 0; at < cols; at += kPieceCols) {
    const float d = half_at(piece + row * 2), dmin = half_at(piece + 32 + row * 2);
    const auto packed = [&](std::uint32_t i) {
      return static_cast<unsigned>(piece[64 + i / 4 * 64 + row * 4 + i % 4]);
    };
    const std::byte* quants = piece + 64 + 192;
    for (std::uint32_t b = 0; b < 8; ++b, quants += five ? kQ5KBlock : 256) {
      const unsigned scale = b < 4 ? packed(b) & 63 : (packed(b + 4) & 15) | packed(b - 4) >> 6 << 4;
      const unsigned least = b < 4 ? packed(b + 4) & 63 : packed(b + 4) >> 4 | packed(b) >> 6 << 4;
      for (std::uint32_t i = 0; i < 32; ++i) {
        int q = nibble(quants, row, i);
        if (five) q |= static_cast<int>(quants[256 + row * 4 + i % 4] >> (i / 4) & std::byte{1}) << 4;
        const float product = d * static_cast<float>(scale) * static_cast<float>(q);
        to[at + b * 32 + i] = product - dmin * static_cast<float>(least);
      }
    }
    piece += five ? kQ5KPiece : kQ4KPiece;
  }
}

void read_q6_k(const std::byte* piece, std::uint32_t row, std::uint32_t cols, float* to) {
  for (std::uint32_t at = 0; at < cols; at += kPieceCols) {
    const float d = half_at(piece + row * 2);
    for (std::uint32_t i = 0; i < kPieceCols; ++i) {
      const std::uint32_t within = i % 32;
      const std::byte* quants = piece + 64 + 256 + i / 32 * kQ6KBlock;
      const auto scale = static_cast<std::int8_t>(piece[64 + i / 64 * 64 + row * 4 + i / 16 % 4]);
      const std::byte bits = quants[256 + within / 16 * 64 + row * 4 + within % 4];
      const int q = nibble(quants, row, within) | static_cast<int>(bits >> (2 * (within % 16 / 4)) & std::byte{3}) << 4;
      to[at + i] = d * static_cast<float>(scale) * static_cast<float>(q - 32);
    }
    piece += kQ6KPiece;
  }
}

}  // namespace

std::uint64_t tile_bytes(Type type, std::uint32_t cols) {
  const std::uint64_t pieces = cols / kPieceCols;
  const std::uint32_t rest = cols % kPieceCols / 32;
  switch (type) {
    case Type::Q8_0: return pieces * q8_piece(8) + (rest == 0 ? 0 : q8_piece(rest));
    case Type::Q4_0: return pieces * q4_piece(8) + (rest == 0 ? 0 : q4_piece(rest));
    case Type::MXFP4: return pieces * mxfp4_piece(8) + (rest == 0 ? 0 : mxfp4_piece(rest));
    case Type::Q4_K: return pieces * kQ4KPiece;
    case Type::Q5_K: return pieces * kQ5KPiece;
    case Type::Q6_K: return pieces * kQ6KPiece;
    case Type::F32: return std::uint64_t{cols} * 64;
    case Type::F16: return (std::uint64_t{cols} * 32 + 63) / 64 * 64;
    case Type::BF16: return (std::uint64_t{cols} + 1) / 2 * 64;
    default: return 0;
  }
}

void make_tile(Type type, const std::byte* rows, std::uint64_t row_bytes, std::uint32_t count, std::uint32_t cols,
               bool biased, std::byte* tile) {
  const RowsOf from{rows, row_bytes, count};
  switch (type) {
    case Type::Q8_0: return make_q8_0(from, cols, biased, tile);
    case Type::Q4_0: return make_q4_0(from, cols, tile);
    case Type::MXFP4: return make_mxfp4(from, cols, tile);
    case Type::Q4_K: return make_q45_k(from, cols, false, tile);
    case Type::Q5_K: return make_q45_k(from, cols, true, tile);
    case Type::Q6_K: return make_q6_k(from, cols, tile);
    case Type::F32: return make_plain<4>(from, cols, tile);
    case Type::F16: return make_plain<2>(from, cols, tile);
    case Type::BF16: return make_pairs(from, cols, tile);
    default: QUIRE_CHECK(false, "only types that have tiles are arranged");
  }
}

void read_tile_row(Type type, const std::byte* tile, std::uint32_t row, std::uint32_t cols, bool biased, float* to) {
  switch (type) {
    case Type::Q8_0: return read_q8_0(tile, row, cols, biased, to);
    case Type::Q4_0: return read_q4_0(tile, row, cols, to);
    case Type::MXFP4: return read_mxfp4(tile, row, cols, to);
    case Type::Q4_K: return read_q45_k(tile, row, cols, false, to);
    case Type::Q5_K: return read_q45_k(tile, row, cols, true, to);
    case Type::Q6_K: return read_q6_k(tile, row, cols, to);
    case Type::F32:
      for (std::uint32_t k = 0; k < cols; ++k) std::memcpy(to + k, tile + (std::size_t{k} * kTileRows + row) * 4, 4);
      return;
    case Type::F16:
      for (std::uint32_t k = 0; k < cols; ++k) to[k] = half_at(tile + (std::size_t{k} * kTileRows + row) * 2);
      return;
    case Type::BF16:
      for (std::uint32_t k = 0; k < cols; ++k) {
        std::uint16_t bits;
        std::memcpy(&bits, tile + pair_offset(k, row), 2);
        to[k] = gguf::bf16_to_f32(bits);
      }
      return;
    default: QUIRE_CHECK(false, "only types that have tiles are read from them");
  }
}

}  // namespace quire::cpu
