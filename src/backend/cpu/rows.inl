// Operations on single rows of activations. A row may have any length. The last vector of a row may be partial; its
// other lanes are zero.

// Calls piece(i, count) for sixteen elements at a time. The last piece may have fewer.
template <typename Piece>
QUIRE_INLINE void by_sixteen(std::uint32_t n, Piece piece) {
  std::uint32_t i = 0;
  for (; i + 16 <= n; i += 16) piece(i, 16u);
  if (i < n) piece(i, n - i);
}
QUIRE_INLINE V16 load_up_to(const float* p, std::uint32_t count) {
  return count == 16 ? load16(p) : load_some(p, count);
}
QUIRE_INLINE void store_up_to(float* p, V16 v, std::uint32_t count) {
  if (count == 16) {
    store16(p, v);
  } else {
    store_some(p, v, count);
  }
}

float sum_of_squares(const float* x, std::uint32_t n) {
  V16 sums[4] = {};
  std::uint32_t i = 0;
  for (; i + 64 <= n; i += 64) {
    for (int j = 0; j < 4; ++j) sums[j] = fma(load16(x + i + 16 * j), load16(x + i + 16 * j), sums[j]);
  }
  by_sixteen(n - i, [&](std::uint32_t at, std::uint32_t count) QUIRE_LAMBDA {
    const V16 v = load_up_to(x + i + at, count);
    sums[0] = fma(v, v, sums[0]);
  });
  return sum_of((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

void scale_by(float* x, float factor, std::uint32_t n) {
  for (std::uint32_t i = 0; i < n; ++i) x[i] *= factor;
}

void rms_norm(float* out, const float* x, const float* weight, float epsilon, std::uint32_t n) {
  const float mean = sum_of_squares(x, n) / static_cast<float>(n);
  const float factor = 1.0f / __builtin_sqrtf(mean + epsilon);
  for (std::uint32_t i = 0; i < n; ++i) out[i] = x[i] * factor * weight[i];
}

void add_scaled(float* x, const float* y, float factor, std::uint32_t n) {
  by_sixteen(n, [&](std::uint32_t i, std::uint32_t count) QUIRE_LAMBDA {
    store_up_to(x + i, fma(load_up_to(y + i, count), all(factor), load_up_to(x + i, count)), count);
  });
}

void gate_silu(float* out, const float* gate, const float* up, std::uint32_t n) {
  by_sixteen(n, [&](std::uint32_t i, std::uint32_t count) QUIRE_LAMBDA {
    store_up_to(out + i, silu(load_up_to(gate + i, count)) * load_up_to(up + i, count), count);
  });
}
void gate_gelu(float* out, const float* gate, const float* up, std::uint32_t n) {
  by_sixteen(n, [&](std::uint32_t i, std::uint32_t count) QUIRE_LAMBDA {
    store_up_to(out + i, gelu_tanh(load_up_to(gate + i, count)) * load_up_to(up + i, count), count);
  });
}
void gate_sigmoid(float* out, const float* gate, const float* up, std::uint32_t n) {
  by_sixteen(n, [&](std::uint32_t i, std::uint32_t count) QUIRE_LAMBDA {
    store_up_to(out + i, sigmoid(load_up_to(gate + i, count)) * load_up_to(up + i, count), count);
  });
}
void multiply(float* out, const float* a, const float* b, std::uint32_t n) {
  for (std::uint32_t i = 0; i < n; ++i) out[i] = a[i] * b[i];
}
void gate_clamped(float* out, const float* gate, const float* up, std::uint32_t n) {
  const V16 limit = all(7.0f);
  by_sixteen(n, [&](std::uint32_t i, std::uint32_t count) QUIRE_LAMBDA {
    const V16 g = smaller(load_up_to(gate + i, count), limit);
    const V16 u = larger(smaller(load_up_to(up + i, count), limit), -limit);
    store_up_to(out + i, (u + 1.0f) * (g / (1.0f + exponential(-1.702f * g))), count);
  });
}

void activate_silu(float* out, const float* x, std::uint32_t n) {
  by_sixteen(n, [&](std::uint32_t i, std::uint32_t count)
                    QUIRE_LAMBDA { store_up_to(out + i, silu(load_up_to(x + i, count)), count); });
}
void activate_gelu(float* out, const float* x, std::uint32_t n) {
  by_sixteen(n, [&](std::uint32_t i, std::uint32_t count)
                    QUIRE_LAMBDA { store_up_to(out + i, gelu_tanh(load_up_to(x + i, count)), count); });
}

void soft_cap(float* x, float cap, std::uint32_t n) {
  by_sixteen(n, [&](std::uint32_t i, std::uint32_t count) QUIRE_LAMBDA {
    store_up_to(x + i, cap * hyperbolic_tangent(load_up_to(x + i, count) / cap), count);
  });
}

void rotate(float* x, const float* cosines, const float* sines, std::uint32_t pairs, bool neighbours) {
  if (neighbours) {
    for (std::uint32_t k = 0; k < pairs; ++k) {
      const float a = x[2 * k], b = x[2 * k + 1];
      x[2 * k] = a * cosines[k] - b * sines[k];
      x[2 * k + 1] = a * sines[k] + b * cosines[k];
    }
    return;
  }
  for (std::uint32_t k = 0; k < pairs; ++k) {
    const float a = x[k], b = x[k + pairs];
    x[k] = a * cosines[k] - b * sines[k];
    x[k + pairs] = a * sines[k] + b * cosines[k];
  }
}

// Quantises to 8 bits, with a scale per 32 columns.
void quantize(const float* x, std::uint32_t cols, const QuantInput& out) {
  const V16 rounder = all(12582912.0f);
  for (std::uint32_t at = 0; at < cols; at += 32) {
    const V16 first = load16(x + at), second = load16(x + at + 16);
    const float largest = largest_of(larger(larger(first, -first), larger(second, -second)));
    const float scale = largest / 127.0f;
    const float inverse = scale < 0x1p-126f ? 0 : 1.0f / scale;  // the inverse of a smaller scale would be infinite
    std::int32_t sums[2];
    for (int half = 0; half < 2; ++half) {
      // Adding 1.5 * 2^23 rounds to the nearest whole number, which is then in the low bits.
      const V16 rounded = (half == 0 ? first : second) * inverse + rounder;
      // A NaN becomes some byte too. Otherwise integer sums that include it would overflow.
      const I16 q = ((reinterpret_cast<I16>(rounded) - reinterpret_cast<I16>(rounder)) << 24) >> 24;
      store_as_bytes(out.q + at + 16 * half, q);
      sums[half] = sum_of(q);
      out.half_starts[at / 16 + half] = -kBias * sums[half];
      out.half_sums[at / 16 + half] = scale * static_cast<float>(sums[half]);
    }
    out.scales[at / 32] = scale;
    out.starts[at / 32] = -kBias * (sums[0] + sums[1]);
    out.sums[at / 32] = scale * static_cast<float>(sums[0] + sums[1]);
  }
}

// Rounds to BF16: to the nearest, ties to even.
void round_to_bf16(const float* x, std::uint32_t cols, std::uint16_t* out) {
  std::uint32_t i = 0;
#if defined(__AVX512F__)
  for (; i + 16 <= cols; i += 16) {
    const V16 v = load16(x + i);
    const U16 bits = reinterpret_cast<U16>(v);
    const U16 nearest = v == v ? nearest_brain(v) : bits | 0x400000u;  // NOLINT(misc-redundant-expression): NaN stays
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i),
                        _mm512_cvtepi32_epi16(reinterpret_cast<__m512i>(nearest >> 16)));
  }
#endif
  for (; i < cols; ++i) out[i] = gguf::f32_to_bf16(x[i]);
  if (cols % 2 != 0) out[cols] = 0;
}

// A row of Q8_0: each block of 32 under the smallest f16 scale that brings its largest number to at most 127. So no
// number is off by more than half its block's scale. Numbers beyond 127 times the largest f16 become that. A block with
// a number that is not finite becomes NaN.
void store_q8(std::byte* to, const float* from, std::uint32_t n) {
  std::byte* scales = to + scales_offset(n);
  for (std::uint32_t at = 0; at < n; at += kScaledElements, scales += 2) {
    const std::uint32_t count = n - at < kScaledElements ? n - at : kScaledElements;
    const V16 x[2] = {load_some(from + at, count < 16 ? count : 16),
                      count > 16 ? load_some(from + at + 16, count - 16) : V16{}};
    const float largest = largest_of(larger(larger(x[0], -x[0]), larger(x[1], -x[1])));
    const bool finite = sum_of(x[0] * 0.0f) + sum_of(x[1] * 0.0f) == 0;
    constexpr std::uint16_t kMostHalf = 0x7bff, kNan = 0x7e00;
    std::uint16_t half = finite ? gguf::f32_to_f16(largest / 127.0f) : kNan;
    if (finite && gguf::f16_to_f32(half) < largest / 127.0f) ++half;
    if (finite && half > kMostHalf) half = kMostHalf;
    __builtin_memcpy(scales, &half, 2);
    std::int8_t numbers[kScaledElements] = {};
    if (finite && half != 0) {
      const float scale = gguf::f16_to_f32(half);
#pragma GCC unroll 2
      for (int v = 0; v < 2; ++v) {
        // Adding 1.5 * 2^23 rounds to the nearest whole number and leaves it in the low bits.
        const V16 ratio = smaller(larger(x[v] / scale, all(-127.0f)), all(127.0f));
        store_as_bytes(numbers + 16 * v, reinterpret_cast<I16>(ratio + 12582912.0f) - 0x4B400000);
      }
    }
    __builtin_memcpy(to + at, numbers, count);
  }
}

void store_kv(ElementType type, std::byte* to, const float* from, std::uint32_t n) {
  if (type == ElementType::Q8_0) return store_q8(to, from, n);
  if (type == ElementType::F32) {
    __builtin_memcpy(to, from, std::size_t{n} * 4);
    return;
  }
  if (type == ElementType::BF16) {
    for (std::uint32_t i = 0; i < n; ++i) {
      const std::uint16_t half = gguf::f32_to_bf16(from[i]);
      __builtin_memcpy(to + 2 * i, &half, 2);
    }
    return;
  }
  std::uint32_t i = 0;
#if defined(__F16C__)
  for (; i + 8 <= n; i += 8) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 2 * i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
#endif
  for (; i < n; ++i) {
    const std::uint16_t half = gguf::f32_to_f16(from[i]);
    __builtin_memcpy(to + 2 * i, &half, 2);
  }
}
