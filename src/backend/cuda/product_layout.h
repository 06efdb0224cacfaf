// How matrices and inputs of products lie in device memory. Plain arithmetic for host and device: arrange.cpp writes
// these layouts, the kernels read them, and arrange_test.cpp checks them without a GPU. C++20 only.
//
// A product is computed by matrix instructions (mma m16n8k16): 16 rows of the matrix times 8 tokens over 16 columns.
// Weights are stored in fragment order: what a lane of a warp needs for one instruction lies side by side, so a warp
// reads whole pieces of memory in order and nothing is moved afterwards.
//
// - A matrix is cut into row tiles of 16 rows and pieces of 256 columns. Missing rows and columns are zeros.
// - A piece has 16 steps, one per matrix instruction. Lane (g, t) = (lane / 4, lane % 4) multiplies in step j:
//     rows g and g + 8, columns 64 t + 4 j + {0, 1, 2, 3} of the piece
//   So a lane has 64 neighbouring columns of two rows, and needs only the scales of these.
// - The columns of a piece are permuted this way for weights of every type and for inputs, so one input serves all
// types.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define QUIRE_BOTH __host__ __device__
#else
#define QUIRE_BOTH
#endif

namespace quire::cuda {

inline constexpr std::uint32_t kTileRows = 16;
inline constexpr std::uint32_t kPieceCols = 256;
inline constexpr std::uint32_t kSteps = 16;        // of a piece
inline constexpr std::uint32_t kLaneCols = 64;     // of a piece
inline constexpr std::uint32_t kTokenTile = 8;     // tokens of one matrix instruction
inline constexpr std::uint32_t kTokenGroup = 256;  // tokens whose inputs lie together

// What the numbers of a matrix have become.
enum class Packing : std::uint8_t {
  F32,    // as in the file, row by row
  F16,    // the file's halves
  BF16,   // the file's bits
  Q4,     // 4 bits and a scale per 32 columns: scale * (q - 8)
  Q4Min,  // and a minimum: scale * q + min
  Q4x16,  // 4 bits and a scale per 16 columns
  Q4x16Min,
  E2M1,  // 4-bit floats and a scale per 32 columns
  Q5,    // 5 bits: scale * (q - 16)
  Q5Min,
  Q6x16,  // 6 bits and a scale per 16 columns: scale * (q - 32)
  Q8,     // 8 bits and a scale per 32 columns: scale * (q - 128)
  Q8x16,
};

struct PackingInfo {
  std::uint32_t bits = 0;   // of a number
  std::uint32_t group = 0;  // columns with one scale; 0: no scales
  bool min = false;
  bool floats = false;  // numbers are floats, not integers

  QUIRE_BOTH constexpr bool quantised() const { return group != 0; }
  // Halves of a lane and piece: for each of its groups, scales of rows g and g + 8, then minima of both.
  QUIRE_BOTH constexpr std::uint32_t lane_groups() const { return kLaneCols / group; }
  QUIRE_BOTH constexpr std::uint32_t lane_scale_bytes() const { return lane_groups() * (min ? 8 : 4); }
  // q - offset() is multiplied where there is no minimum.
  QUIRE_BOTH constexpr std::uint32_t offset() const { return min || floats ? 0 : 1u << (bits - 1); }

  // A piece is: low bits (4 or 8 or 16 of each number), high bits (1 or 2), scales.
  QUIRE_BOTH constexpr std::uint32_t low_bits() const { return bits == 5 || bits == 6 ? 4 : bits; }
  QUIRE_BOTH constexpr std::uint32_t low_bytes() const { return kTileRows * kPieceCols * low_bits() / 8; }
  QUIRE_BOTH constexpr std::uint32_t high_bytes() const { return kTileRows * kPieceCols * (bits - low_bits()) / 8; }
  QUIRE_BOTH constexpr std::uint32_t scale_bytes() const { return quantised() ? 32 * lane_scale_bytes() : 0; }
  QUIRE_BOTH constexpr std::uint32_t piece_bytes() const { return low_bytes() + high_bytes() + scale_bytes(); }
};

QUIRE_BOTH constexpr PackingInfo packing_info(Packing packing) {
  switch (packing) {
    case Packing::F32: return {32, 0, false};
    case Packing::F16:
    case Packing::BF16: return {16, 0, false};
    case Packing::Q4: return {4, 32, false};
    case Packing::Q4Min: return {4, 32, true};
    case Packing::Q4x16: return {4, 16, false};
    case Packing::Q4x16Min: return {4, 16, true};
    case Packing::E2M1: return {4, 32, false, true};
    case Packing::Q5: return {5, 32, false};
    case Packing::Q5Min: return {5, 32, true};
    case Packing::Q6x16: return {6, 16, false};
    case Packing::Q8: return {8, 32, false};
    case Packing::Q8x16: return {8, 16, false};
  }
  return {};
}

QUIRE_BOTH constexpr std::uint32_t tiles_of(std::uint32_t rows) { return (rows + kTileRows - 1) / kTileRows; }
QUIRE_BOTH constexpr std::uint32_t pieces_of(std::uint32_t cols) { return (cols + kPieceCols - 1) / kPieceCols; }

// Sums over the columns are cut into parts, which are summed by themselves and then added in order, so that several
// warps or blocks can share the columns. Bits depend on it: the columns alone decide. (Each part costs a GEMM of many
// tokens time, and products of few tokens need four to fill the GPU.)
inline constexpr std::uint32_t kMostParts = 4;
QUIRE_BOTH constexpr std::uint32_t parts_of(std::uint32_t cols) {
  std::uint32_t parts = 1;
  while (parts < kMostParts && 2 * parts <= pieces_of(cols)) parts *= 2;
  return parts;
}
// The first piece of a part; that of part `parts` is the end.
QUIRE_BOTH constexpr std::uint32_t part_begin(std::uint32_t part, std::uint32_t parts, std::uint32_t pieces) {
  return part * pieces / parts;
}

// --- the places of numbers in a piece

// Element i (0 to 7) of a lane's step: rows g, g, g + 8, g + 8, g, g, g + 8, g + 8.
struct Place {
  std::uint32_t row = 0, col = 0;  // in the tile, in the piece
};
QUIRE_BOTH constexpr Place place_of(std::uint32_t step, std::uint32_t lane, std::uint32_t i) {
  return {lane / 4 + (i / 2 % 2) * 8, lane % 4 * kLaneCols + 4 * step + i / 4 * 2 + i % 2};
}

// Byte of element i's 16 bits: each lane's 16 bytes of a step lie together.
QUIRE_BOTH constexpr std::uint32_t half_at(std::uint32_t step, std::uint32_t lane, std::uint32_t i) {
  return (step * 32 + lane) * 16 + i * 2;
}
// Byte of element i's 8 bits: 16 bytes of a lane are two steps.
QUIRE_BOTH constexpr std::uint32_t byte_at(std::uint32_t step, std::uint32_t lane, std::uint32_t i) {
  return (step / 2 * 32 + lane) * 16 + step % 2 * 8 + i;
}
// The 32-bit word of 4-bit numbers of a step: 16 bytes of a lane are four steps.
QUIRE_BOTH constexpr std::uint32_t nibble_word_at(std::uint32_t step, std::uint32_t lane) {
  return (step / 4 * 32 + lane) * 16 + step % 4 * 4;
}
// The bit of element i in that word. Pairs (0, 1), (2, 3)... are 16 bits apart, so that one mask takes both.
QUIRE_BOTH constexpr std::uint32_t nibble_bit(std::uint32_t i) { return i / 2 * 4 + i % 2 * 16; }
// Fifth bits: one 16-byte vector per lane, a word for four steps.
QUIRE_BOTH constexpr std::uint32_t fifth_word_at(std::uint32_t step, std::uint32_t lane) {
  return lane * 16 + step / 4 * 4;
}
QUIRE_BOTH constexpr std::uint32_t fifth_bit(std::uint32_t step, std::uint32_t i) {
  return step % 4 * 4 + i / 2 + i % 2 * 16;
}
// Fifth and sixth bits: two vectors per lane, a word for two steps.
QUIRE_BOTH constexpr std::uint32_t sixth_word_at(std::uint32_t step, std::uint32_t lane) {
  return (step / 8 * 32 + lane) * 16 + step % 8 / 2 * 4;
}
QUIRE_BOTH constexpr std::uint32_t sixth_bit(std::uint32_t step, std::uint32_t i) {
  return (step % 2 * 4 + i / 2) * 2 + i % 2 * 16;
}
// Byte of a scale (which 0) or minimum (1) of row g + 8 * second. With 16-column groups and minima a lane has 32 bytes,
// as two vectors with two groups each.
QUIRE_BOTH constexpr std::uint32_t scale_at(PackingInfo info, std::uint32_t lane, std::uint32_t group,
                                            std::uint32_t second, std::uint32_t which) {
  const std::uint32_t each = info.min ? 8 : 4, bytes = info.lane_scale_bytes(), vector = bytes < 16 ? bytes : 16;
  const std::uint32_t at = group * each + which * 4 + second * 2;
  return at / vector * 32 * vector + lane * vector + at % vector;
}

// An arranged matrix: the inverse of each row's power of two as floats, then the tiles [tile][piece].
QUIRE_BOTH constexpr std::uint64_t tiles_at(std::uint32_t rows) {
  return (std::uint64_t{tiles_of(rows)} * kTileRows * 4 + 255) / 256 * 256;
}
QUIRE_BOTH constexpr std::uint64_t tile_bytes(Packing packing, std::uint32_t cols) {
  return std::uint64_t{pieces_of(cols)} * packing_info(packing).piece_bytes();
}

// --- inputs

// Halves of the inputs: [group of 256 tokens][piece][step][tile of 8 tokens][2][8 tokens][8 columns], which is also
// what wgmma reads from shared memory. The index of a half; `col` counts from the beginning of the row.
QUIRE_BOTH constexpr std::uint64_t input_at(std::uint32_t pieces, std::uint32_t token, std::uint32_t col) {
  const std::uint32_t in = col % kPieceCols, t = in / kLaneCols, step = in % kLaneCols / 4, i = in % 4;
  const std::uint64_t steps = (std::uint64_t{token / kTokenGroup} * pieces + col / kPieceCols) * kSteps + step;
  const std::uint32_t tile = token % kTokenGroup / kTokenTile;
  return ((steps * (kTokenGroup / kTokenTile) + tile) * 2 + i / 2) * 64 + token % kTokenTile * 8 + 2 * t + i % 2;
}

}  // namespace quire::cuda
