// The layout of matrices for products. Sixteen rows side by side are a tile, so that one vector holds the same four
// columns of sixteen rows, and no sum goes across lanes. Matrices are arranged once, when a model is loaded. They are
// as large as in the file, except for the padding of the last tile.
//
//   Q8_0, Q4_0   pieces of up to 8 blocks of 32 columns: [blocks][16] scales (f16), then [blocks] of quants
//   MXFP4        likewise; a scale is one byte
//   Q4_K, Q5_K   pieces of 256 columns: [16] d, [16] dmin (f16), [3][16][4] bytes of six-bit scales, then [8] of quants
//   Q6_K         pieces of 256 columns: [16] d (f16), 32 bytes of padding, [4][16][4] scales (i8), then [8] of quants
//   F16, F32     [columns][16]
//   BF16         [pairs of columns][16][2]; an odd last column has a zero beside it
//
// The quants of a block are vectors of 64 bytes, each with four columns of sixteen rows. With 8 bits there are eight
// vectors. With nibbles there are four: vector j holds the columns from 4j on in the low nibbles, and those from 16 +
// 4j on in the high ones. The high bits come after the nibbles. Q5_K has one vector: bit j is for the columns from 4j
// on. Q6_K has two vectors: bits 2j and 2j + 1 are for the columns from 4j on in the first, and for those from 16 + 4j
// on in the second. A tile is read from start to end, so that the hardware prefetcher can follow.
//
// Other types stay as in the file, and are brought into this form when they are multiplied.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quire/gguf/types.h"

namespace quire::cpu {

inline constexpr std::uint32_t kTileRows = 16;
inline constexpr std::uint32_t kPieceCols = 256;

// Bytes of sixteen rows. 0: a matrix of this type or width is not arranged.
std::uint64_t tile_bytes(gguf::Type type, std::uint32_t cols);

// The offset of the quants in a piece of so many blocks of 32, and the length of the piece.
constexpr std::uint32_t scales_bytes(std::uint32_t blocks) { return (blocks * 32 + 63) / 64 * 64; }
constexpr std::uint32_t q8_piece(std::uint32_t blocks) { return scales_bytes(blocks) + blocks * 512; }
constexpr std::uint32_t q4_piece(std::uint32_t blocks) { return scales_bytes(blocks) + blocks * 256; }
constexpr std::uint32_t mxfp4_scales_bytes(std::uint32_t blocks) { return (blocks * 16 + 63) / 64 * 64; }
constexpr std::uint32_t mxfp4_piece(std::uint32_t blocks) { return mxfp4_scales_bytes(blocks) + blocks * 256; }
inline constexpr std::uint32_t kQ4KPiece = 64 + 192 + 8 * 256;
inline constexpr std::uint32_t kQ5KBlock = 256 + 64, kQ5KPiece = 64 + 192 + 8 * kQ5KBlock;
inline constexpr std::uint32_t kQ6KBlock = 256 + 128, kQ6KPiece = 64 + 256 + 8 * kQ6KBlock;

// Arranges `count` rows of a matrix, at most sixteen, as they are in the file. Rows beyond `count` are zero. `biased`:
// Q8_0 is stored as unsigned bytes, with 128 added.
void make_tile(gguf::Type type, const std::byte* rows, std::uint64_t row_bytes, std::uint32_t count, std::uint32_t cols,
               bool biased, std::byte* tile);

// One row of a tile, dequantised to floats.
void read_tile_row(gguf::Type type, const std::byte* tile, std::uint32_t row, std::uint32_t cols, bool biased,
                   float* to);

}  // namespace quire::cpu
