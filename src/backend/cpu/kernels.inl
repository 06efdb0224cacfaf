// The loops behind Kernels, written once. Each of kernels_scalar.cpp, kernels_avx2.cpp and kernels_avx512.cpp compiles this
// text with its own flags inside a namespace of its own. Vectors are GCC's, of a fixed number of lanes, so that the order
// of every sum is the same whatever the machine's registers are; only fusing of multiply and add differs between variants.
//
// No template of the standard library may be instantiated here: the linker could pick the copy that was compiled for the
// newest processor for everybody.

typedef float V16 __attribute__((vector_size(64), aligned(4)));
typedef float V8 __attribute__((vector_size(32), aligned(4)));

inline V16 load16(const float* p) { return *reinterpret_cast<const V16*>(p); }
inline V8 load8(const float* p) { return *reinterpret_cast<const V8*>(p); }

inline float sum8(V8 v) { return ((v[0] + v[4]) + (v[1] + v[5])) + ((v[2] + v[6]) + (v[3] + v[7])); }
inline float sum16(V16 v) {
  V8 half;
  for (int i = 0; i < 8; ++i) half[i] = v[i] + v[i + 8];
  return sum8(half);
}

inline std::uint16_t read16(const std::byte* p) {
  std::uint16_t value;
  __builtin_memcpy(&value, p, 2);
  return value;
}
inline float half_at(const std::byte* p) { return gguf::f16_to_f32(read16(p)); }
inline int u8(std::byte b) { return static_cast<int>(b); }

inline void halves_to_floats(const std::byte* from, float* to, std::uint32_t n) {
  std::uint32_t i = 0;
#ifdef __F16C__
  for (; i + 8 <= n; i += 8) {
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 2 * i))));
  }
#endif
  for (; i < n; ++i) to[i] = half_at(from + 2 * i);
}

// Sixteen keys or values as floats.
inline V16 load16(ElementType type, const std::byte* p) {
  float values[16];
  if (type == ElementType::F32) return load16(reinterpret_cast<const float*>(p));
  halves_to_floats(p, values, 16);
  return load16(values);
}
inline float load1(ElementType type, const std::byte* p) {
  if (type == ElementType::F32) {
    float value;
    __builtin_memcpy(&value, p, 4);
    return value;
  }
  return half_at(p);
}
inline std::uint32_t bytes_of(ElementType type) { return type == ElementType::F32 ? 4 : 2; }

// --- weights

// Six-bit scales and offsets of Q4_K and Q5_K: eight of each in twelve bytes.
inline void scale_and_min(int j, const std::byte* p, int* scale, int* minimum) {
  if (j < 4) {
    *scale = u8(p[j]) & 63;
    *minimum = u8(p[j + 4]) & 63;
  } else {
    *scale = (u8(p[j + 4]) & 15) | (u8(p[j - 4]) >> 6) << 4;
    *minimum = (u8(p[j + 4]) >> 4) | (u8(p[j]) >> 6) << 4;
  }
}

constexpr std::int8_t kNonLinear[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

inline void set32(const QuantRow& out, std::uint32_t at, float scale, float offset) {
  out.scales[at / 16] = out.scales[at / 16 + 1] = scale;
  out.offsets[at / 16] = out.offsets[at / 16 + 1] = offset;
}

// Sixteen bytes of two nibbles: the low ones are elements 0 to 15, the high ones 16 to 31.
inline void nibbles(const std::byte* from, std::int8_t* to, int minus) {
  for (int j = 0; j < 16; ++j) {
    to[j] = static_cast<std::int8_t>((u8(from[j]) & 15) - minus);
    to[j + 16] = static_cast<std::int8_t>((u8(from[j]) >> 4) - minus);
  }
}
inline void five_bits(const std::byte* high, const std::byte* from, std::int8_t* to, int minus) {
  std::uint32_t bits;
  __builtin_memcpy(&bits, high, 4);
  for (int j = 0; j < 16; ++j) {
    to[j] = static_cast<std::int8_t>(((u8(from[j]) & 15) | ((bits >> j) & 1) << 4) - static_cast<unsigned>(minus));
    to[j + 16] = static_cast<std::int8_t>(((u8(from[j]) >> 4) | ((bits >> (j + 16)) & 1) << 4) - static_cast<unsigned>(minus));
  }
}

inline void unpack_q2_k(const std::byte* b, const QuantRow& out, std::uint32_t at) {
  const std::byte* quants = b + 16;
  const float d = half_at(b + 80), dmin = half_at(b + 82);
  for (int i = 0; i < 16; ++i) {
    out.scales[at / 16 + i] = d * static_cast<float>(u8(b[i]) & 15);
    out.offsets[at / 16 + i] = -(dmin * static_cast<float>(u8(b[i]) >> 4));
  }
  for (int part = 0; part < 2; ++part) {
    for (int shift = 0; shift < 4; ++shift) {
      for (int l = 0; l < 32; ++l) {
        out.q[at + 128 * part + 32 * shift + l] = static_cast<std::int8_t>((u8(quants[32 * part + l]) >> (2 * shift)) & 3);
      }
    }
  }
}

inline void unpack_q3_k(const std::byte* b, const QuantRow& out, std::uint32_t at) {
  const std::byte* quants = b + 32;
  const std::byte* packed = b + 96;
  const float d = half_at(b + 108);
  for (int i = 0; i < 16; ++i) {
    const int low = i < 8 ? u8(packed[i]) & 15 : u8(packed[i - 8]) >> 4;
    const int high = (u8(packed[8 + i % 4]) >> (2 * (i / 4))) & 3;
    out.scales[at / 16 + i] = d * static_cast<float>((low | high << 4) - 32);
    out.offsets[at / 16 + i] = 0;
  }
  for (int part = 0; part < 2; ++part) {
    for (int shift = 0; shift < 4; ++shift) {
      const int bit = 4 * part + shift;
      for (int l = 0; l < 32; ++l) {
        const int low = (u8(quants[32 * part + l]) >> (2 * shift)) & 3;
        const int missing = (u8(b[l]) >> bit) & 1 ? 0 : 4;
        out.q[at + 128 * part + 32 * shift + l] = static_cast<std::int8_t>(low - missing);
      }
    }
  }
}

inline void unpack_q45_k(const std::byte* b, const QuantRow& out, std::uint32_t at, bool five) {
  const float d = half_at(b), dmin = half_at(b + 2);
  const std::byte* high = b + 16;
  const std::byte* quants = b + (five ? 48 : 16);
  for (int j = 0; j < 8; ++j) {
    int scale, minimum;
    scale_and_min(j, b + 4, &scale, &minimum);
    set32(out, at + 32 * j, d * static_cast<float>(scale), -(dmin * static_cast<float>(minimum)));
    const std::byte* from = quants + 32 * (j / 2);
    for (int l = 0; l < 32; ++l) {
      int q = j % 2 == 0 ? u8(from[l]) & 15 : u8(from[l]) >> 4;
      if (five) q |= ((u8(high[l]) >> j) & 1) << 4;
      out.q[at + 32 * j + l] = static_cast<std::int8_t>(q);
    }
  }
}

inline void unpack_q6_k(const std::byte* b, const QuantRow& out, std::uint32_t at) {
  const float d = half_at(b + 208);
  for (int i = 0; i < 16; ++i) {
    out.scales[at / 16 + i] = d * static_cast<float>(static_cast<std::int8_t>(u8(b[192 + i])));
    out.offsets[at / 16 + i] = 0;
  }
  for (int part = 0; part < 2; ++part) {
    const std::byte* low = b + 64 * part;
    const std::byte* high = b + 128 + 32 * part;
    std::int8_t* to = out.q + at + 128 * part;
    for (int l = 0; l < 32; ++l) {
      const int h = u8(high[l]);
      to[l] = static_cast<std::int8_t>(((u8(low[l]) & 15) | (h & 3) << 4) - 32);
      to[l + 32] = static_cast<std::int8_t>(((u8(low[l + 32]) & 15) | ((h >> 2) & 3) << 4) - 32);
      to[l + 64] = static_cast<std::int8_t>(((u8(low[l]) >> 4) | ((h >> 4) & 3) << 4) - 32);
      to[l + 96] = static_cast<std::int8_t>(((u8(low[l + 32]) >> 4) | ((h >> 6) & 3) << 4) - 32);
    }
  }
}

inline void unpack_iq4_xs(const std::byte* b, const QuantRow& out, std::uint32_t at) {
  const float d = half_at(b);
  const int high = read16(b + 2);
  for (int j = 0; j < 8; ++j) {
    const int low = (u8(b[4 + j / 2]) >> (4 * (j % 2))) & 15;
    set32(out, at + 32 * j, d * static_cast<float>((low | ((high >> (2 * j)) & 3) << 4) - 32), 0);
    std::int8_t* to = out.q + at + 32 * j;
    nibbles(b + 8 + 16 * j, to, 0);
    for (int l = 0; l < 32; ++l) to[l] = kNonLinear[to[l]];
  }
}

bool unpack_quant(gguf::Type type, const std::byte* row, std::uint32_t cols, QuantRow& out) {
  using T = gguf::Type;
  out.has_offsets = type == T::Q4_1 || type == T::Q5_1 || type == T::Q2_K || type == T::Q4_K || type == T::Q5_K;
  switch (type) {
    case T::Q8_0:
      for (std::uint32_t at = 0; at < cols; at += 32, row += 34) {
        set32(out, at, half_at(row), 0);
        __builtin_memcpy(out.q + at, row + 2, 32);
      }
      return true;
    case T::Q4_0:
      for (std::uint32_t at = 0; at < cols; at += 32, row += 18) {
        set32(out, at, half_at(row), 0);
        nibbles(row + 2, out.q + at, 8);
      }
      return true;
    case T::Q4_1:
      for (std::uint32_t at = 0; at < cols; at += 32, row += 20) {
        set32(out, at, half_at(row), half_at(row + 2));
        nibbles(row + 4, out.q + at, 0);
      }
      return true;
    case T::Q5_0:
      for (std::uint32_t at = 0; at < cols; at += 32, row += 22) {
        set32(out, at, half_at(row), 0);
        five_bits(row + 2, row + 6, out.q + at, 16);
      }
      return true;
    case T::Q5_1:
      for (std::uint32_t at = 0; at < cols; at += 32, row += 24) {
        set32(out, at, half_at(row), half_at(row + 2));
        five_bits(row + 4, row + 8, out.q + at, 0);
      }
      return true;
    case T::IQ4_NL:
      for (std::uint32_t at = 0; at < cols; at += 32, row += 18) {
        set32(out, at, half_at(row), 0);
        nibbles(row + 2, out.q + at, 0);
        for (int l = 0; l < 32; ++l) out.q[at + l] = kNonLinear[out.q[at + l]];
      }
      return true;
    case T::Q2_K:
      for (std::uint32_t at = 0; at < cols; at += 256, row += 84) unpack_q2_k(row, out, at);
      return true;
    case T::Q3_K:
      for (std::uint32_t at = 0; at < cols; at += 256, row += 110) unpack_q3_k(row, out, at);
      return true;
    case T::Q4_K:
      for (std::uint32_t at = 0; at < cols; at += 256, row += 144) unpack_q45_k(row, out, at, false);
      return true;
    case T::Q5_K:
      for (std::uint32_t at = 0; at < cols; at += 256, row += 176) unpack_q45_k(row, out, at, true);
      return true;
    case T::Q6_K:
      for (std::uint32_t at = 0; at < cols; at += 256, row += 210) unpack_q6_k(row, out, at);
      return true;
    case T::IQ4_XS:
      for (std::uint32_t at = 0; at < cols; at += 256, row += 136) unpack_iq4_xs(row, out, at);
      return true;
    default: return false;
  }
}

bool unpack_float(gguf::Type type, const std::byte* row, std::uint32_t cols, float* out) {
  switch (type) {
    case gguf::Type::F32: __builtin_memcpy(out, row, std::size_t{cols} * 4); return true;
    case gguf::Type::F16: halves_to_floats(row, out, cols); return true;
    case gguf::Type::BF16:
      for (std::uint32_t i = 0; i < cols; ++i) out[i] = gguf::bf16_to_f32(read16(row + 2 * i));
      return true;
    default: return false;
  }
}

void quantize(const float* x, std::uint32_t cols, const QuantInput& out) {
  for (std::uint32_t at = 0; at < cols; at += 32) {
    float largest = 0;
    for (int i = 0; i < 32; ++i) {
      const float magnitude = __builtin_fabsf(x[at + i]);
      largest = magnitude > largest ? magnitude : largest;
    }
    const float scale = largest / 127.0f;
    const float inverse = scale < 0x1p-126f ? 0 : 1.0f / scale;  // below, it would be infinite
    out.scales[at / 32] = scale;
    for (int half = 0; half < 2; ++half) {
      std::int32_t sum = 0;
      for (int i = 0; i < 16; ++i) {
        const auto q = static_cast<std::int32_t>(__builtin_rintf(x[at + 16 * half + i] * inverse));
        out.q[at + 16 * half + i] = static_cast<std::int8_t>(q);
        sum += q;
      }
      out.sums[at / 16 + half] = sum;
    }
  }
}

// Eight sums of four products each, exact; the first four belong to the first sixteen elements.
inline void products(const std::int8_t* w, const std::int8_t* x, V8* out) {
#if defined(__AVX2__)
  const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w));
  const __m256i b = _mm256_sign_epi8(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(x)), a);
#if defined(__AVX512VNNI__) && defined(__AVX512VL__)
  const __m256i sums = _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_abs_epi8(a), b);
#else
  const __m256i sums = _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_abs_epi8(a), b), _mm256_set1_epi16(1));
#endif
  *out = reinterpret_cast<V8>(_mm256_cvtepi32_ps(sums));
#else
  for (int i = 0; i < 8; ++i) {
    int sum = 0;
    for (int j = 0; j < 4; ++j) sum += w[4 * i + j] * x[4 * i + j];
    (*out)[i] = static_cast<float>(sum);
  }
#endif
}

float dot_quant(const QuantRow& weight, const QuantInput& x, std::uint32_t cols) {
  V8 sum = {};
  float offsets = 0;
  for (std::uint32_t at = 0; at < cols; at += 32) {
    V8 parts;
    products(weight.q + at, x.q + at, &parts);
    const float scale = x.scales[at / 32];
    const float first = weight.scales[at / 16] * scale, second = weight.scales[at / 16 + 1] * scale;
    const V8 scales = {first, first, first, first, second, second, second, second};
    sum += parts * scales;
    if (weight.has_offsets) {
      offsets += scale * (weight.offsets[at / 16] * static_cast<float>(x.sums[at / 16]) +
                          weight.offsets[at / 16 + 1] * static_cast<float>(x.sums[at / 16 + 1]));
    }
  }
  return sum8(sum) + offsets;
}

float dot(const float* a, const float* b, std::uint32_t n) {
  V16 sum = {};
  std::uint32_t i = 0;
  for (; i + 16 <= n; i += 16) sum += load16(a + i) * load16(b + i);
  float tail = 0;
  for (; i < n; ++i) tail += a[i] * b[i];
  return sum16(sum) + tail;
}

// --- keys and values

float dot_kv(ElementType type, const float* q, const std::byte* k, std::uint32_t n) {
  const std::uint32_t bytes = bytes_of(type);
  V16 sum = {};
  std::uint32_t i = 0;
  for (; i + 16 <= n; i += 16) sum += load16(q + i) * load16(type, k + i * bytes);
  float tail = 0;
  for (; i < n; ++i) tail += q[i] * load1(type, k + i * bytes);
  return sum16(sum) + tail;
}

void add_kv(ElementType type, float* sum, float weight, const std::byte* v, std::uint32_t n) {
  const std::uint32_t bytes = bytes_of(type);
  std::uint32_t i = 0;
  for (; i + 16 <= n; i += 16) *reinterpret_cast<V16*>(sum + i) += weight * load16(type, v + i * bytes);
  for (; i < n; ++i) sum[i] += weight * load1(type, v + i * bytes);
}

void store_kv(ElementType type, std::byte* to, const float* from, std::uint32_t n) {
  if (type == ElementType::F32) {
    __builtin_memcpy(to, from, std::size_t{n} * 4);
    return;
  }
  for (std::uint32_t i = 0; i < n; ++i) {
    const std::uint16_t half = gguf::f32_to_f16(from[i]);
    __builtin_memcpy(to + 2 * i, &half, 2);
  }
}

// --- rows

float sum_of_squares(const float* x, std::uint32_t n) { return dot(x, x, n); }

void scale_by(float* x, float factor, std::uint32_t n) {
  for (std::uint32_t i = 0; i < n; ++i) x[i] *= factor;
}

void multiply(float* out, const float* x, const float* weight, float factor, std::uint32_t n) {
  for (std::uint32_t i = 0; i < n; ++i) out[i] = x[i] * factor * weight[i];
}

void add_scaled(float* x, const float* y, float factor, std::uint32_t n) {
  for (std::uint32_t i = 0; i < n; ++i) x[i] += y[i] * factor;
}

float recur(float* state, float decay, float input, const float* b, const float* c, std::uint32_t n) {
  V16 sum = {};
  std::uint32_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const V16 next = load16(state + i) * decay + load16(b + i) * input;
    *reinterpret_cast<V16*>(state + i) = next;
    sum += next * load16(c + i);
  }
  float tail = 0;
  for (; i < n; ++i) {
    state[i] = state[i] * decay + b[i] * input;
    tail += state[i] * c[i];
  }
  return sum16(sum) + tail;
}

constexpr Kernels make_kernels(const char* name) {
  return {name,   unpack_quant, unpack_float, quantize,       dot_quant, dot,      dot_kv,
          add_kv, store_kv,     sum_of_squares, scale_by, multiply,  add_scaled, recur};
}
