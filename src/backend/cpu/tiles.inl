// Reads pieces of tiles (tiles.h) for the products. A source gives the quants of a block of 32 columns as eight
// vectors, and the scales (and offsets) of a piece as floats. Signed quants come with kAdded added: the value that they
// are stored with where products need them unsigned, so that nothing is left to do.

QUIRE_INLINE void nibbles_of(const std::byte* quants, B64 (&w)[8]) {
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const B64 both = load64(quants + 64 * j);
    w[j] = both & 15;
    w[j + 4] = both >> 4;
  }
}

// w with the bits of `more` that are in `mask`. The shift is on 16-bit words; the mask removes bits of the neighbouring
// byte.
QUIRE_INLINE B64 with_bits(B64 w, B64 more, int left, std::uint8_t mask) {
#if defined(__AVX512F__)
  const __m512i bits = reinterpret_cast<__m512i>(more);
  const __m512i shifted = left >= 0 ? _mm512_slli_epi16(bits, static_cast<unsigned>(left))
                                    : _mm512_srli_epi16(bits, static_cast<unsigned>(-left));
  return reinterpret_cast<B64>(_mm512_ternarylogic_epi32(reinterpret_cast<__m512i>(w), shifted,
                                                         _mm512_set1_epi8(static_cast<char>(mask)), 0xf8));
#else
  return w | ((left >= 0 ? more << left : more >> -left) & mask);
#endif
}

struct Q8Source {
  static constexpr bool kOffsets = false, kHalves = false;
  static constexpr int kAdded = kBias;
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
  static constexpr bool kOffsets = false, kHalves = false;
  static constexpr int kAdded = kBias == 0 ? 0 : 8;
  static constexpr std::uint32_t piece_bytes(std::uint32_t blocks) { return q4_piece(blocks); }
  static void scales(const std::byte* piece, std::uint32_t blocks, V16* to, V16*, std::uint32_t stride) {
    for (std::uint32_t b = 0; b < blocks; ++b) to[b * stride] = load_halves(piece + b * 32);
  }
  static QUIRE_INLINE void block(const std::byte* piece, std::uint32_t blocks, std::uint32_t b, B64 (&w)[8]) {
    nibbles_of(piece + scales_bytes(blocks) + b * 256, w);
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) w[j] += static_cast<std::uint8_t>(kAdded - 8);
  }
};

// Sixteen entries of a table of bytes, by nibbles.
QUIRE_INLINE B64 looked_up(const std::int8_t (&table)[16], B64 nibbles) {
#if defined(__AVX512F__)
  const __m512i all = _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
  return reinterpret_cast<B64>(_mm512_shuffle_epi8(all, reinterpret_cast<__m512i>(nibbles)));
#elif defined(__AVX2__)
  const __m256i all = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
  __m256i parts[2];
  __builtin_memcpy(parts, &nibbles, 64);
  for (int i = 0; i < 2; ++i) parts[i] = _mm256_shuffle_epi8(all, parts[i]);
  __builtin_memcpy(&nibbles, parts, 64);
  return nibbles;
#else
  for (int i = 0; i < 64; ++i) nibbles[i] = static_cast<std::uint8_t>(table[nibbles[i]]);
  return nibbles;
#endif
}

struct MXFP4Source {
  static constexpr bool kOffsets = false, kHalves = false;
  static constexpr int kAdded = kBias == 0 ? 0 : 16;
  static constexpr std::int8_t kNumbers[16] = {kAdded + 0, kAdded + 1,  kAdded + 2, kAdded + 3, kAdded + 4, kAdded + 6,
                                               kAdded + 8, kAdded + 12, kAdded - 0, kAdded - 1, kAdded - 2, kAdded - 3,
                                               kAdded - 4, kAdded - 6,  kAdded - 8, kAdded - 12};
  static constexpr std::uint32_t piece_bytes(std::uint32_t blocks) { return mxfp4_piece(blocks); }
  // Half of the scale, as the numbers are twice as large: 2 to the (e - 128).
  static void scales(const std::byte* piece, std::uint32_t blocks, V16* to, V16*, std::uint32_t stride) {
    for (std::uint32_t b = 0; b < blocks; ++b) {
      I16 e;
      for (int i = 0; i < 16; ++i) e[i] = u8(piece[b * 16 + static_cast<std::uint32_t>(i)]);
      to[b * stride] = reinterpret_cast<V16>(e < 2 ? (e + 1) << 21 : (e - 1) << 23);
    }
  }
  static QUIRE_INLINE void block(const std::byte* piece, std::uint32_t blocks, std::uint32_t b, B64 (&w)[8]) {
    nibbles_of(piece + mxfp4_scales_bytes(blocks) + b * 256, w);
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) w[j] = looked_up(kNumbers, w[j]);
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
  static constexpr bool kOffsets = true, kHalves = false;
  static constexpr int kAdded = 0;
  static constexpr std::uint32_t piece_bytes(std::uint32_t) { return kQ4KPiece; }
  static void scales(const std::byte* piece, std::uint32_t, V16* to, V16* offsets, std::uint32_t stride) {
    six_bit_scales(piece, to, offsets, stride);
  }
  static QUIRE_INLINE void block(const std::byte* piece, std::uint32_t, std::uint32_t b, B64 (&w)[8]) {
    nibbles_of(piece + 64 + 192 + b * 256, w);
  }
};

struct Q5KSource {
  static constexpr bool kOffsets = true, kHalves = false;
  static constexpr int kAdded = 0;
  static constexpr std::uint32_t piece_bytes(std::uint32_t) { return kQ5KPiece; }
  static void scales(const std::byte* piece, std::uint32_t, V16* to, V16* offsets, std::uint32_t stride) {
    six_bit_scales(piece, to, offsets, stride);
  }
  static QUIRE_INLINE void block(const std::byte* piece, std::uint32_t, std::uint32_t b, B64 (&w)[8]) {
    const std::byte* quants = piece + 64 + 192 + b * kQ5KBlock;
    nibbles_of(quants, w);
    const B64 high = load64(quants + 256);
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) w[j] = with_bits(w[j], high, 4 - j, 16);
  }
};

struct Q6KSource {
  static constexpr bool kOffsets = false, kHalves = true;
  static constexpr int kAdded = kBias == 0 ? 0 : 32;
  static constexpr std::uint32_t piece_bytes(std::uint32_t) { return kQ6KPiece; }
  static void scales(const std::byte* piece, std::uint32_t, V16* to, V16*, std::uint32_t stride) {
    const V16 d = load_halves(piece);
    for (std::uint32_t i = 0; i < 16; ++i) to[i * stride] = d * load_signed_bytes(piece + 64 + 16 * i);
  }
  static QUIRE_INLINE void block(const std::byte* piece, std::uint32_t, std::uint32_t b, B64 (&w)[8]) {
    const std::byte* quants = piece + 64 + 256 + b * kQ6KBlock;
    nibbles_of(quants, w);
    const B64 first = load64(quants + 256), second = load64(quants + 320);
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {
      w[j] = with_bits(w[j], j < 4 ? first : second, 4 - 2 * (j % 4), 48);
      w[j] += static_cast<std::uint8_t>(kAdded - 32);
    }
  }
};
