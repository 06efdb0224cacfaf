// Vectors of sixteen lanes, whatever the size of the machine's registers. The order of every sum is the same in each
// variant, and only fma() below fuses. So the variants agree to the bit, except where a machine cannot fuse.

typedef float V16 __attribute__((vector_size(64), aligned(4), may_alias));
typedef std::int32_t I16 __attribute__((vector_size(64), aligned(4), may_alias));
typedef std::uint32_t U16 __attribute__((vector_size(64), aligned(4), may_alias));
typedef std::uint8_t B64 __attribute__((vector_size(64), aligned(1), may_alias));

#define QUIRE_INLINE inline __attribute__((always_inline))
#define QUIRE_LAMBDA __attribute__((always_inline))

QUIRE_INLINE V16 load16(const float* p) { return *reinterpret_cast<const V16*>(p); }
QUIRE_INLINE void store16(float* p, V16 v) { *reinterpret_cast<V16*>(p) = v; }
QUIRE_INLINE B64 load64(const std::byte* p) { return *reinterpret_cast<const B64*>(p); }
QUIRE_INLINE V16 all(float value) { return value - V16{}; }

// The first `count` of sixteen lanes. The other lanes are zero when loaded, and are not stored.
QUIRE_INLINE V16 load_some(const float* p, std::uint32_t count) {
  V16 v = {};
  __builtin_memcpy(&v, p, std::size_t{count} * 4);
  return v;
}
QUIRE_INLINE void store_some(float* p, V16 v, std::uint32_t count) { __builtin_memcpy(p, &v, std::size_t{count} * 4); }

// a * b + c, rounded once where the machine can. Nothing else is fused: the compiler flags forbid it, because the
// compiler could choose differently from one loop to the next.
QUIRE_INLINE V16 fma(V16 a, V16 b, V16 c) {
#if defined(__AVX512F__)
  return reinterpret_cast<V16>(
      _mm512_fmadd_ps(reinterpret_cast<__m512>(a), reinterpret_cast<__m512>(b), reinterpret_cast<__m512>(c)));
#elif defined(__FMA__)
  __m256 x[2], y[2], z[2];
  __builtin_memcpy(x, &a, 64);
  __builtin_memcpy(y, &b, 64);
  __builtin_memcpy(z, &c, 64);
  for (int i = 0; i < 2; ++i) z[i] = _mm256_fmadd_ps(x[i], y[i], z[i]);
  __builtin_memcpy(&c, z, 64);
  return c;
#elif defined(__FP_FAST_FMAF)
  for (int i = 0; i < 16; ++i) c[i] = __builtin_fmaf(a[i], b[i], c[i]);
  return c;
#else
  // A double holds the product exactly. The sum is rounded twice, which changes about one result in a hundred million.
  // So this variant almost always gives the same results as the others.
  for (int i = 0; i < 16; ++i) c[i] = static_cast<float>(static_cast<double>(a[i]) * b[i] + c[i]);
  return c;
#endif
}

QUIRE_INLINE V16 to_floats(I16 v) { return __builtin_convertvector(v, V16); }

QUIRE_INLINE V16 larger(V16 a, V16 b) {
#if defined(__AVX512F__)
  return reinterpret_cast<V16>(_mm512_max_ps(reinterpret_cast<__m512>(a), reinterpret_cast<__m512>(b)));
#else
  return a > b ? a : b;
#endif
}
QUIRE_INLINE V16 smaller(V16 a, V16 b) {
#if defined(__AVX512F__)
  return reinterpret_cast<V16>(_mm512_min_ps(reinterpret_cast<__m512>(a), reinterpret_cast<__m512>(b)));
#else
  return a < b ? a : b;
#endif
}

// The sums of sixteen vectors. Each vector is added up over lanes 8 apart, then 4, 2 and 1, wherever it is in the
// array.
QUIRE_INLINE V16 sums_of(const V16 (&a)[16]) {
  V16 t[8], u[4], v[2];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    t[i] = __builtin_shufflevector(a[i], a[i + 8], 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
           __builtin_shufflevector(a[i], a[i + 8], 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    u[i] = __builtin_shufflevector(t[i], t[i + 4], 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27) +
           __builtin_shufflevector(t[i], t[i + 4], 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    v[i] = __builtin_shufflevector(u[i], u[i + 2], 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29) +
           __builtin_shufflevector(u[i], u[i + 2], 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
  }
  return __builtin_shufflevector(v[0], v[1], 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30) +
         __builtin_shufflevector(v[0], v[1], 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31);
}

// Lane j of vector i becomes lane i of vector j: blocks of eight lanes are swapped, then of four, two and one.
QUIRE_INLINE void transpose(V16 (&a)[16]) {
  V16 b[16];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    b[i] = __builtin_shufflevector(a[i], a[i + 8], 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
    b[i + 8] = __builtin_shufflevector(a[i], a[i + 8], 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) {
    if ((i & 4) != 0) continue;
    a[i] = __builtin_shufflevector(b[i], b[i + 4], 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27);
    a[i + 4] = __builtin_shufflevector(b[i], b[i + 4], 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) {
    if ((i & 2) != 0) continue;
    b[i] = __builtin_shufflevector(a[i], a[i + 2], 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
    b[i + 2] = __builtin_shufflevector(a[i], a[i + 2], 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; i += 2) {
    a[i] = __builtin_shufflevector(b[i], b[i + 1], 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30);
    a[i + 1] = __builtin_shufflevector(b[i], b[i + 1], 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31);
  }
}

inline float sum_of(V16 v) {  // of one vector, in the same order
  float eight[8], four[4];
  for (int i = 0; i < 8; ++i) eight[i] = v[i] + v[i + 8];
  for (int i = 0; i < 4; ++i) four[i] = eight[i] + eight[i + 4];
  return (four[0] + four[2]) + (four[1] + four[3]);
}
QUIRE_INLINE float largest_of(V16 v) {
  v = larger(v, __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7));
  v = larger(v, __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11));
  v = larger(v, __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13));
  v = larger(v, __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14));
  return v[0];
}
QUIRE_INLINE std::int32_t sum_of(I16 v) {
  v += __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7);
  v += __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11);
  v += __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13);
  v += __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14);
  return v[0];
}

// e to the x, to about two units in the last place. Arguments beyond the range of a float are clamped.
QUIRE_INLINE V16 exponential(V16 x) {
  x = smaller(larger(x, all(-87.3f)), all(88.3f));
  // x = n * ln 2 + r, with n a whole number and r at most half of ln 2. Adding and subtracting 1.5 * 2^23 rounds.
  const V16 rounder = all(12582912.0f);
  const V16 shifted = fma(x, all(1.44269504f), rounder);
  const V16 n = shifted - rounder;
  V16 r = fma(n, all(-0.693359375f), x);
  r = fma(n, all(2.12194440e-4f), r);
  V16 p = all(1.9875691500e-4f);
  p = fma(p, r, all(1.3981999507e-3f));
  p = fma(p, r, all(8.3334519073e-3f));
  p = fma(p, r, all(4.1665795894e-2f));
  p = fma(p, r, all(1.6666665459e-1f));
  p = fma(p, r, all(5.0000001201e-1f));
  p = fma(p * r, r, r) + 1.0f;
  const I16 power = (reinterpret_cast<I16>(shifted) + 127) << 23;  // n is in the low bits of `shifted`
  return p * reinterpret_cast<V16>(power);
}

QUIRE_INLINE V16 sigmoid(V16 x) { return 1.0f / (1.0f + exponential(-x)); }
QUIRE_INLINE V16 silu(V16 x) { return x / (1.0f + exponential(-x)); }
QUIRE_INLINE V16 hyperbolic_tangent(V16 x) { return 1.0f - 2.0f / (1.0f + exponential(2.0f * x)); }
QUIRE_INLINE V16 gelu_tanh(V16 x) {
  const V16 inner = 0.7978845608028654f * fma(0.044715f * x * x, x, x);
  return 0.5f * x * (1.0f + hyperbolic_tangent(inner));
}

inline std::uint16_t read16(const std::byte* p) {
  std::uint16_t value;
  __builtin_memcpy(&value, p, 2);
  return value;
}
inline float half_at(const std::byte* p) { return gguf::f16_to_f32(read16(p)); }
inline int u8(std::byte b) { return static_cast<int>(b); }

// Sixteen f16 values as floats, exactly.
QUIRE_INLINE V16 load_halves(const std::byte* p) {
#if defined(__AVX512F__)
  return reinterpret_cast<V16>(_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))));
#else
  V16 v;
#if defined(__F16C__)
  const __m256 low = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  const __m256 high = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 16)));
  __builtin_memcpy(&v, &low, 32);
  __builtin_memcpy(reinterpret_cast<float*>(&v) + 8, &high, 32);
#else
  for (int i = 0; i < 16; ++i) v[i] = half_at(p + 2 * i);
#endif
  return v;
#endif
}
// Intrinsics, because the compiler converts vectors with lanes of different sizes element by element.
QUIRE_INLINE V16 load_brain_halves(const std::byte* p) {
#if defined(__AVX512F__)
  const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return reinterpret_cast<V16>(_mm512_slli_epi32(wide, 16));
#else
  I16 wide;
  for (int i = 0; i < 16; ++i) wide[i] = static_cast<std::int32_t>(std::uint32_t{read16(p + 2 * i)} << 16);
  return reinterpret_cast<V16>(wide);
#endif
}
// The upper halves are those of the nearest bf16 values; the lower halves are whatever is left.
QUIRE_INLINE U16 nearest_brain(V16 v) {
#if defined(__AVX2__) && !defined(__AVX512F__)
  // The same as below. The compiler would compare element by element.
  U16 nearest;
  __m256i parts[2];
  __builtin_memcpy(parts, &v, 64);
  for (int i = 0; i < 2; ++i) {
    const __m256 part = _mm256_castsi256_ps(parts[i]);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(parts[i], 16), _mm256_set1_epi32(1));
    const __m256i up = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF));
    const __m256i number = _mm256_castps_si256(_mm256_cmp_ps(part, part, _CMP_ORD_Q));
    parts[i] = _mm256_add_epi32(parts[i], _mm256_and_si256(number, up));
  }
  __builtin_memcpy(&nearest, parts, 64);
  return nearest;
#else
  const U16 bits = reinterpret_cast<U16>(v), up = 0x7FFFu + ((bits >> 16) & 1u);
  // The sum could turn a NaN into a number.
  return v == v ? bits + up : bits;  // NOLINT(misc-redundant-expression)
#endif
}

QUIRE_INLINE I16 load_bytes(const std::byte* p) {  // unsigned
#if defined(__AVX512F__)
  return reinterpret_cast<I16>(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
#else
  I16 wide;
  for (int i = 0; i < 16; ++i) wide[i] = u8(p[i]);
  return wide;
#endif
}
QUIRE_INLINE V16 load_signed_bytes(const std::byte* p) {
#if defined(__AVX512F__)
  return to_floats(reinterpret_cast<I16>(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))));
#else
  I16 wide;
  for (int i = 0; i < 16; ++i) wide[i] = (u8(p[i]) ^ 0x80) - 0x80;
  return to_floats(wide);
#endif
}
QUIRE_INLINE void store_as_bytes(std::int8_t* p, I16 v) {
#if defined(__AVX512F__)
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(reinterpret_cast<__m512i>(v)));
#else
  for (int i = 0; i < 16; ++i) p[i] = static_cast<std::int8_t>(v[i]);
#endif
}

// Adds to each lane the products of its four bytes of `w` with the four bytes of `x`, exactly. The AVX-512 instruction
// needs one side unsigned. So in that variant signed weights come with kBias added, and the sums begin at -kBias times
// the sum of x.
#if defined(__AVX512VNNI__)
constexpr int kBias = 128;
QUIRE_INLINE I16 add_products(I16 sum, B64 w, I16 x) {
  return reinterpret_cast<I16>(
      _mm512_dpbusd_epi32(reinterpret_cast<__m512i>(sum), reinterpret_cast<__m512i>(w), reinterpret_cast<__m512i>(x)));
}
#else
constexpr int kBias = 0;
QUIRE_INLINE I16 add_products(I16 sum, B64 w, I16 x) {
#if defined(__AVX2__)
  __m256i parts[2], weights[2], inputs[2];
  __builtin_memcpy(parts, &sum, 64);
  __builtin_memcpy(weights, &w, 64);
  __builtin_memcpy(inputs, &x, 64);
  for (int i = 0; i < 2; ++i) {
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(weights[i]), _mm256_sign_epi8(inputs[i], weights[i]));
    parts[i] = _mm256_add_epi32(parts[i], _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  }
  __builtin_memcpy(&sum, parts, 64);
  return sum;
#else
  std::int8_t weights[64], inputs[64];
  __builtin_memcpy(weights, &w, 64);
  __builtin_memcpy(inputs, &x, 64);
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 4; ++j) sum[i] += weights[4 * i + j] * inputs[4 * i + j];
  }
  return sum;
#endif
}
#endif
QUIRE_INLINE I16 all_of(const std::int8_t* four) {
  std::int32_t value;
  __builtin_memcpy(&value, four, 4);
  return value - I16{};
}
