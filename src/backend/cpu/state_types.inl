// The SSM state of a recurrent layer in memory: f32, f16 or bf16. Kernels compute with floats. rounded() gives the
// float that a state in memory would have, so that a state can stay in registers for many tokens and still have the
// bits that it would have if each token had stored and loaded it.
//   bf16   to nearest, ties to even. It has the range of an f32: what is larger is infinite.
//   f16    to nearest, ties to even, after clamping to +-65504, the largest f16. (An infinite state would stay infinite
//          for the rest of its sequence, whatever it decays by. A clamped one recovers.)
// A NaN stays a NaN in both.

constexpr float kLargestHalf = 65504.0f;

#if defined(__AVX512F__)
// With its operands in this order, min and max keep a NaN.
QUIRE_INLINE __m256i nearest_halves(V16 v) {
  const __m512 low = _mm512_set1_ps(-kLargestHalf), high = _mm512_set1_ps(kLargestHalf);
  const __m512 clamped = _mm512_max_ps(low, _mm512_min_ps(high, reinterpret_cast<__m512>(v)));
  return _mm512_cvtps_ph(clamped, _MM_FROUND_TO_NEAREST_INT);
}
#elif defined(__F16C__)
QUIRE_INLINE __m128i nearest_halves(__m256 v) {
  const __m256 low = _mm256_set1_ps(-kLargestHalf), high = _mm256_set1_ps(kLargestHalf);
  return _mm256_cvtps_ph(_mm256_max_ps(low, _mm256_min_ps(high, v)), _MM_FROUND_TO_NEAREST_INT);
}
#else
// As floats, without instructions for halves. Values below 2^-14 are rounded to multiples of 2^-24 by adding 0.75,
// whose last bit is 2^-24. Others lose 13 bits of their mantissa.
QUIRE_INLINE V16 nearest_half(V16 v) {
  v = v > kLargestHalf ? all(kLargestHalf) : v;
  v = v < -kLargestHalf ? all(-kLargestHalf) : v;
  const U16 bits = reinterpret_cast<U16>(v), sign = bits & 0x80000000u;
  const V16 size = reinterpret_cast<V16>(bits ^ sign);
  const U16 small = reinterpret_cast<U16>((size + 0.75f) - 0.75f);
  const U16 normal = (reinterpret_cast<U16>(size) + (0xFFFu + ((bits >> 13) & 1u))) & 0xFFFFE000u;
  const U16 nearest = size < 0x1p-14f ? small : normal;
  return v == v ? reinterpret_cast<V16>(nearest | sign) : v;  // NOLINT(misc-redundant-expression): NaN stays
}
#endif

// What load_state() gives after store_state().
template <ElementType kType>
QUIRE_INLINE V16 rounded(V16 v) {
  if constexpr (kType == ElementType::F32) {
    return v;
  } else if constexpr (kType == ElementType::BF16) {
    return reinterpret_cast<V16>(nearest_brain(v) & 0xFFFF0000u);
  } else {
#if defined(__AVX512F__)
    return reinterpret_cast<V16>(_mm512_cvtph_ps(nearest_halves(v)));
#elif defined(__F16C__)
    __m256 parts[2];
    __builtin_memcpy(parts, &v, 64);
    for (int i = 0; i < 2; ++i) parts[i] = _mm256_cvtph_ps(nearest_halves(parts[i]));
    __builtin_memcpy(&v, parts, 64);
    return v;
#else
    return nearest_half(v);
#endif
  }
}

// Loads and stores of sixteen elements, or of the first `count`.
template <ElementType kType>
QUIRE_INLINE V16 load_state(const std::byte* p) {
  if constexpr (kType == ElementType::F32) {
    return load16(reinterpret_cast<const float*>(p));
  } else if constexpr (kType == ElementType::F16) {
    return load_halves(p);
  } else {
#if defined(__AVX2__) && !defined(__AVX512F__)
    V16 v;
    for (int i = 0; i < 2; ++i) {
      const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 16 * i));
      const __m256i wide = _mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16);
      __builtin_memcpy(reinterpret_cast<float*>(&v) + 8 * i, &wide, 32);
    }
    return v;
#else
    return load_brain_halves(p);
#endif
  }
}

template <ElementType kType>
QUIRE_INLINE void store_state(std::byte* p, V16 v) {
  if constexpr (kType == ElementType::F32) {
    store16(reinterpret_cast<float*>(p), v);
  } else if constexpr (kType == ElementType::F16) {
#if defined(__AVX512F__)
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), nearest_halves(v));
#elif defined(__F16C__)
    __m256 parts[2];
    __builtin_memcpy(parts, &v, 64);
    for (int i = 0; i < 2; ++i) _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 16 * i), nearest_halves(parts[i]));
#else
    v = nearest_half(v);
    for (int i = 0; i < 16; ++i) {
      const std::uint16_t half = gguf::f32_to_f16(v[i]);
      __builtin_memcpy(p + 2 * i, &half, 2);
    }
#endif
  } else {
    const U16 nearest = nearest_brain(v);
#if defined(__AVX512F__)
    const __m512i upper = _mm512_set_epi32(0, 0, 0, 0, 0, 0, 0, 0, 0x1F001D, 0x1B0019, 0x170015, 0x130011, 0xF000D,
                                           0xB0009, 0x70005, 0x30001);  // the odd 16-bit elements
    const __m512i halves = _mm512_permutexvar_epi16(upper, reinterpret_cast<__m512i>(nearest));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_castsi512_si256(halves));
#elif defined(__AVX2__)
    // Packing works within 128 bits, so the middle quarters come out swapped.
    __m256i parts[2];
    __builtin_memcpy(parts, &nearest, 64);
    const __m256i packed = _mm256_packus_epi32(_mm256_srli_epi32(parts[0], 16), _mm256_srli_epi32(parts[1], 16));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(packed, 0xD8));
#else
    for (int i = 0; i < 16; ++i) {
      const auto half = static_cast<std::uint16_t>(nearest[i] >> 16);
      __builtin_memcpy(p + 2 * i, &half, 2);
    }
#endif
  }
}

template <ElementType kType>
QUIRE_INLINE V16 load_state_up_to(const std::byte* p, std::uint32_t count) {
  if (count == 16) return load_state<kType>(p);
  constexpr std::size_t kBytes = element_bytes(kType);
  std::byte padded[64] = {};
  __builtin_memcpy(padded, p, count * kBytes);
  return load_state<kType>(padded);
}
template <ElementType kType>
QUIRE_INLINE void store_state_up_to(std::byte* p, V16 v, std::uint32_t count) {
  if (count == 16) return store_state<kType>(p, v);
  constexpr std::size_t kBytes = element_bytes(kType);
  std::byte padded[64];
  store_state<kType>(padded, v);
  __builtin_memcpy(p, padded, count * kBytes);
}
