// Reads pieces of tiles (tiles.h) for the products. A source gives the quants of a block of 32 columns as eight
// vectors, and the scales (and offsets) of a piece as floats. Signed quants come with kAdded added: the value that they
// are stored with where products need them unsigned, so that nothing is left to do.

// kTimes16: the upper nibbles stay where they are, so that they count sixteen times.
template <bool kTimes16 = false>
QUIRE_INLINE void nibbles_of(const std::byte* quants, B64 (&w)[8]) {
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    B64 both = load64(quants + 64 * j);
#if defined(__AVX512F__)
    asm("" : "+v"(both));  // or the compiler would load it twice
#endif
    w[j] = both & 15;
    w[j + 4] = kTimes16 ? both & 240 : both >> 4;
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

// The scales of a piece. scale(i) is that of block i, or of half a block where halves have scales of their own;
// offset(i) likewise.
struct HalfScales {
  const std::byte* piece;
  QUIRE_INLINE V16 scale(std::uint32_t i) const { return load_halves(piece + i * 32); }
};

struct Q8Source {
  static constexpr bool kOffsets = false, kHalves = false, kWhole = false, kNibbles = false;
  static constexpr int kAdded = kBias;
  static constexpr std::uint32_t piece_bytes(std::uint32_t blocks) { return q8_piece(blocks); }
  using Scales = HalfScales;
  template <bool = false>
  static QUIRE_INLINE void block(const std::byte* piece, std::uint32_t blocks, std::uint32_t b, B64 (&w)[8]) {
    const std::byte* quants = piece + scales_bytes(blocks) + b * 512;
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) w[j] = load64(quants + 64 * j);
  }
};

struct Q4Source {
  static constexpr bool kOffsets = false, kHalves = false, kWhole = false, kNibbles = kBias != 0;
  static constexpr int kAdded = kBias == 0 ? 0 : 8;
  static constexpr std::uint32_t piece_bytes(std::uint32_t blocks) { return q4_piece(blocks); }
  using Scales = HalfScales;
  template <bool kTimes16 = false>
  static QUIRE_INLINE void block(const std::byte* piece, std::uint32_t blocks, std::uint32_t b, B64 (&w)[8]) {
    nibbles_of<kTimes16>(piece + scales_bytes(blocks) + b * 256, w);
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
  static constexpr bool kOffsets = false, kHalves = false, kWhole = false, kNibbles = false;
  static constexpr int kAdded = kBias == 0 ? 0 : 16;
  static constexpr std::int8_t kNumbers[16] = {kAdded + 0, kAdded + 1,  kAdded + 2, kAdded + 3, kAdded + 4, kAdded + 6,
                                               kAdded + 8, kAdded + 12, kAdded - 0, kAdded - 1, kAdded - 2, kAdded - 3,
                                               kAdded - 4, kAdded - 6,  kAdded - 8, kAdded - 12};
  static constexpr std::uint32_t piece_bytes(std::uint32_t blocks) { return mxfp4_piece(blocks); }
  // Half of the scale, as the numbers are twice as large: 2 to the (e - 128).
  struct Scales {
    const std::byte* piece;
    QUIRE_INLINE V16 scale(std::uint32_t i) const {
      const I16 e = load_bytes(piece + i * 16);
      const I16 small = (e + 1) << 21, other = (e - 1) << 23;  // small: for 0 and 1, which give denormal numbers
      return reinterpret_cast<V16>(small > other ? small : other);
    }
  };
  template <bool = false>
  static QUIRE_INLINE void block(const std::byte* piece, std::uint32_t blocks, std::uint32_t b, B64 (&w)[8]) {
    nibbles_of(piece + mxfp4_scales_bytes(blocks) + b * 256, w);
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) w[j] = looked_up(kNumbers, w[j]);
  }
};

// Byte i of each lane, unsigned, times 256 to the i, as floats: exact.
QUIRE_INLINE V16 byte_of(U16 bytes, std::uint32_t i) {
  return to_floats(reinterpret_cast<I16>(bytes & (0xffu << (8 * i))));
}
// x, and x divided by 256 once, twice, three times: exact for halves.
struct Divided {
  V16 by[4];
  QUIRE_INLINE explicit Divided(V16 x) : by{x, x * 0x1p-8f, x * 0x1p-16f, x * 0x1p-24f} {}
};

// Eight scales and eight offsets of six bits for each of sixteen rows, in twelve bytes each. All of this is exact: a
// half times six bits fits into a float.
struct SixBitScales {
  U16 bytes[4];  // scales 0 to 3, scales 4 to 7, offsets likewise
  Divided d, dmin;
  QUIRE_INLINE explicit SixBitScales(const std::byte* piece) : d(load_halves(piece)), dmin(-load_halves(piece + 32)) {
    const U16 a = reinterpret_cast<U16>(load64(piece + 64)), b = reinterpret_cast<U16>(load64(piece + 128)),
              c = reinterpret_cast<U16>(load64(piece + 192));
    bytes[0] = a & 0x3f3f3f3fu;
    bytes[1] = (c & 0x0f0f0f0fu) | ((a >> 2) & 0x30303030u);
    bytes[2] = b & 0x3f3f3f3fu;
    bytes[3] = ((c >> 4) & 0x0f0f0f0fu) | ((b >> 2) & 0x30303030u);
  }
  QUIRE_INLINE V16 scale(std::uint32_t i) const { return d.by[i % 4] * byte_of(bytes[i / 4], i % 4); }
  QUIRE_INLINE V16 offset(std::uint32_t i) const { return dmin.by[i % 4] * byte_of(bytes[2 + i / 4], i % 4); }
};

struct Q4KSource {
  static constexpr bool kOffsets = true, kHalves = false, kWhole = true, kNibbles = kBias != 0;
  static constexpr int kAdded = 0;
  static constexpr std::uint32_t piece_bytes(std::uint32_t) { return kQ4KPiece; }
  using Scales = SixBitScales;
  template <bool kTimes16 = false>
  static QUIRE_INLINE void block(const std::byte* piece, std::uint32_t, std::uint32_t b, B64 (&w)[8]) {
    nibbles_of<kTimes16>(piece + 64 + 192 + b * 256, w);
  }
};

struct Q5KSource {
  static constexpr bool kOffsets = true, kHalves = false, kWhole = true, kNibbles = false;
  static constexpr int kAdded = 0;
  static constexpr std::uint32_t piece_bytes(std::uint32_t) { return kQ5KPiece; }
  using Scales = SixBitScales;
  template <bool = false>
  static QUIRE_INLINE void block(const std::byte* piece, std::uint32_t, std::uint32_t b, B64 (&w)[8]) {
    const std::byte* quants = piece + 64 + 192 + b * kQ5KBlock;
    nibbles_of(quants, w);
    const B64 high = load64(quants + 256);
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) w[j] = with_bits(w[j], high, 4 - j, 16);
  }
};

struct Q6KSource {
  static constexpr bool kOffsets = false, kHalves = true, kWhole = true, kNibbles = false;
  static constexpr int kAdded = kBias == 0 ? 0 : 32;
  static constexpr std::uint32_t piece_bytes(std::uint32_t) { return kQ6KPiece; }
  // A scale is brought to the upper byte, so that its sign is the lane's. It counts 2^24 times then.
  struct Scales {
    const std::byte* piece;
    V16 d;
    QUIRE_INLINE explicit Scales(const std::byte* from) : piece(from), d(load_halves(from) * 0x1p-24f) {}
    QUIRE_INLINE V16 scale(std::uint32_t i) const {
      const U16 four = reinterpret_cast<U16>(load64(piece + 64 + i / 4 * 64));
      return d * to_floats(reinterpret_cast<I16>(four << (24 - 8 * (i % 4)) & 0xff000000u));
    }
  };
  template <bool = false>
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
