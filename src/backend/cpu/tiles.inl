// Pieces of tiles (tiles.h) as the multipliers take them. A source gives the quants of a block of 32 columns as eight
// vectors, with kBias added where they are signed, and the scales (and offsets) of a piece as floats. kScattered: the
// bits of a block are in several places.

QUIRE_INLINE void nibbles_of(const std::byte* quants, B64 (&w)[8]) {
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const B64 both = load64(quants + 64 * j);
    w[j] = both & 15;
    w[j + 4] = both >> 4;
  }
}

struct Q8Source {
  static constexpr bool kScattered = false, kOffsets = false, kHalves = false;
  static constexpr std::uint32_t piece_bytes(std::uint32_t blocks) { return q8_piece(blocks); }
  static void scales(const std::byte* piece, std::uint32_t blocks, V16* to, V16*, std::uint32_t stride) {
    for (std::uint32_t b = 0; b < blocks; ++b) to[b * stride] = load_halves(piece + b * 32);
  }
  static QUIRE_INLINE void block(const std::byte* piece, std::uint32_t blocks, std::uint32_t b, B64 (&w)[8]) {
    const std::byte* quants = piece + scales_bytes(blocks) + b * 512;
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) w[j] = load64(quants + 64 * j);
  }
};

struct Q4Source {
  static constexpr bool kScattered = false, kOffsets = false, kHalves = false;
  static constexpr std::uint32_t piece_bytes(std::uint32_t blocks) { return q4_piece(blocks); }
  static void scales(const std::byte* piece, std::uint32_t blocks, V16* to, V16*, std::uint32_t stride) {
    for (std::uint32_t b = 0; b < blocks; ++b) to[b * stride] = load_halves(piece + b * 32);
  }
  static QUIRE_INLINE void block(const std::byte* piece, std::uint32_t blocks, std::uint32_t b, B64 (&w)[8]) {
    nibbles_of(piece + scales_bytes(blocks) + b * 256, w);
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) w[j] += static_cast<std::uint8_t>(kBias - 8);
  }
};

// Eight scales and eight offsets of six bits for each of sixteen rows, in twelve bytes each.
inline void six_bit_scales(const std::byte* piece, V16* scales, V16* offsets, std::uint32_t stride) {
  const B64 a = load64(piece + 64), b = load64(piece + 128), c = load64(piece + 192);
  const B64 parts[4] = {a & 63, (c & 15) | ((a >> 2) & 48), b & 63, (c >> 4) | ((b >> 2) & 48)};
  std::byte bytes[256];
  __builtin_memcpy(bytes, parts, 256);
  const V16 d = load_halves(piece), dmin = -load_halves(piece + 32);
#pragma GCC unroll 8
  for (std::uint32_t i = 0; i < 8; ++i) {
    scales[i * stride] = d * load_bytes(bytes + 16 * i);
    offsets[i * stride] = dmin * load_bytes(bytes + 128 + 16 * i);
  }
}

struct Q4KSource {
  static constexpr bool kScattered = false, kOffsets = true, kHalves = false;
  static constexpr std::uint32_t piece_bytes(std::uint32_t) { return kQ4KPiece; }
  static void scales(const std::byte* piece, std::uint32_t, V16* to, V16* offsets, std::uint32_t stride) {
    six_bit_scales(piece, to, offsets, stride);
  }
  static QUIRE_INLINE void block(const std::byte* piece, std::uint32_t, std::uint32_t b, B64 (&w)[8]) {
    nibbles_of(piece + 64 + 192 + b * 256, w);
  }
};

struct Q5KSource {
  static constexpr bool kScattered = true, kOffsets = true, kHalves = false;
  static constexpr std::uint32_t piece_bytes(std::uint32_t) { return kQ5KPiece; }
  static void scales(const std::byte* piece, std::uint32_t, V16* to, V16* offsets, std::uint32_t stride) {
    six_bit_scales(piece, to, offsets, stride);
  }
  static QUIRE_INLINE void block(const std::byte* piece, std::uint32_t, std::uint32_t b, B64 (&w)[8]) {
    nibbles_of(piece + 64 + 192 + 8 * 64 + b * 256, w);
    const B64 high = load64(piece + 64 + 192 + b * 64);
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) w[j] |= (j < 4 ? high << (4 - j) : high >> (j - 4)) & 16;
  }
};

struct Q6KSource {
  static constexpr bool kScattered = true, kOffsets = false, kHalves = true;
  static constexpr std::uint32_t piece_bytes(std::uint32_t) { return kQ6KPiece; }
  static void scales(const std::byte* piece, std::uint32_t, V16* to, V16*, std::uint32_t stride) {
    const V16 d = load_halves(piece);
    for (std::uint32_t i = 0; i < 16; ++i) to[i * stride] = d * load_signed_bytes(piece + 64 + 16 * i);
  }
  static QUIRE_INLINE void block(const std::byte* piece, std::uint32_t, std::uint32_t b, B64 (&w)[8]) {
    nibbles_of(piece + 64 + 256 + 8 * 128 + b * 256, w);
    const B64 first = load64(piece + 64 + 256 + b * 128), second = load64(piece + 64 + 256 + b * 128 + 64);
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {
      const B64 high = j < 4 ? first : second;
      const int shift = 4 - 2 * (j % 4);
      w[j] |= (shift >= 0 ? high << shift : high >> -shift) & 48;
      w[j] += static_cast<std::uint8_t>(kBias - 32);
    }
  }
};
