// How matrices lie in memory for the multipliers: sixteen rows side by side, a tile, so that one vector holds the same
// four columns of sixteen rows and no sum goes across lanes. Arranged once, when a model is loaded; as large as in the
// file but for the padding of the last tile.
//
//   Q8_0, Q4_0   pieces of up to 8 blocks of 32 columns: [blocks][16] scales (f16), then [blocks] of quants
//   Q4_K, Q5_K   pieces of 256 columns: [16] d, [16] dmin (f16), [12][16] six-bit scales, then [8] of quants
//   Q6_K         pieces of 256 columns: [16] d (f16) and 32 bytes of nothing, [16][16] scales (i8), then [8] of quants
//   F16, BF16    [columns][16], F32 likewise
//
// Quants of a block are vectors of 64 bytes, four columns of sixteen rows each: eight of 8 bits; or four of two
// nibbles, where vector j holds columns 4j.. in the low and 16 + 4j.. in the high nibbles. Behind the nibbles are high
// bits: of Q5_K one vector, bit j of which belongs to columns 4j..; of Q6_K two vectors, of which the first has bits 2j
// of columns 4j.., the second of 16 + 4j.. So a tile is read from its one end to the other, which the processor
// foresees.
//
// Other types stay as the file has them, and are brought into this form when they are multiplied.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quire/gguf/types.h"

namespace quire::cpu {

inline constexpr std::uint32_t kTileRows = 16;
inline constexpr std::uint32_t kPieceCols = 256;

// Bytes of sixteen rows; 0: this type, or this length, stays as it is.
std::uint64_t tile_bytes(gguf::Type type, std::uint32_t cols);

// Where the quants of a piece of so many blocks of 32 begin, and how long the piece is.
constexpr std::uint32_t scales_bytes(std::uint32_t blocks) { return (blocks * 32 + 63) / 64 * 64; }
constexpr std::uint32_t q8_piece(std::uint32_t blocks) { return scales_bytes(blocks) + blocks * 512; }
constexpr std::uint32_t q4_piece(std::uint32_t blocks) { return scales_bytes(blocks) + blocks * 256; }
inline constexpr std::uint32_t kQ4KPiece = 64 + 192 + 8 * 256;
inline constexpr std::uint32_t kQ5KBlock = 256 + 64, kQ5KPiece = 64 + 192 + 8 * kQ5KBlock;
inline constexpr std::uint32_t kQ6KBlock = 256 + 128, kQ6KPiece = 64 + 256 + 8 * kQ6KBlock;

// Arranges rows [first, first + count), at most sixteen, of a matrix as a file has it; what is missing is zero.
// `biased`: Q8_0 is kept with 128 added, as unsigned bytes.
void make_tile(gguf::Type type, const std::byte* rows, std::uint64_t row_bytes, std::uint32_t count, std::uint32_t cols,
               bool biased, std::byte* tile);

// One row of a tile, as the floats that the file means.
void read_tile_row(gguf::Type type, const std::byte* tile, std::uint32_t row, std::uint32_t cols, bool biased,
                   float* to);

}  // namespace quire::cpu
