// Mamba-2, token by token. The state stays in registers and the L1 cache for a whole chunk.

// log(1 + e^x) = larger(x, 0) + log(1 + y), with y = e^-|x|, at most 1. log(1 + y) is twice the inverse hyperbolic
// tangent of y / (2 + y), computed as a series.
QUIRE_INLINE V16 softplus(V16 x) {
  const V16 y = exponential(-larger(x, -x)), z = y / (2.0f + y), square = z * z;
  V16 p = all(1.0f / 15);
  p = fma(p, square, all(1.0f / 13));
  p = fma(p, square, all(1.0f / 11));
  p = fma(p, square, all(1.0f / 9));
  p = fma(p, square, all(1.0f / 7));
  p = fma(p, square, all(1.0f / 5));
  p = fma(p, square, all(1.0f / 3));
  p = fma(p, square, all(1.0f));
  return fma(2.0f * z, p, larger(x, V16{}));
}

void discretize(float* steps, float* decays, const float* dt, const float* bias, const float* a, std::uint32_t heads) {
  by_sixteen(heads, [&](std::uint32_t i, std::uint32_t count) QUIRE_LAMBDA {
    const V16 step = softplus(load_up_to(dt + i, count) + load_up_to(bias + i, count));
    store_up_to(steps + i, step, count);
    store_up_to(decays + i, exponential(step * load_up_to(a + i, count)), count);
  });
}

// Where row `row` of a head's state is.
template <ElementType kType>
QUIRE_INLINE std::byte* state_row(const Recurrence& r, std::uint32_t row) {
  constexpr std::size_t kBytes = element_bytes(kType);
  return r.state + kBytes * row * r.state_dim;
}

// Advances kRows rows of a head's state, [kRows][16 * kVectors], by `tokens` tokens.
//   next = state * decay + input * b;  out = next . c, the lanes added up as in sums_of();  state = next, rounded
template <ElementType kType, int kVectors, int kRows>
void recur_rows(const Recurrence& r, std::uint32_t row) {
  constexpr int kBytes = 16 * static_cast<int>(element_bytes(kType));
  std::byte* const state = state_row<kType>(r, row);
  constexpr int kTokens = 16 / kRows;  // their sums are added up together
  V16 s[kRows][kVectors];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) s[i][v] = load_state<kType>(state + (i * kVectors + v) * kBytes);
  }
  for (std::uint32_t first = 0; first < r.tokens; first += kTokens) {
    const std::uint32_t count = r.tokens - first < kTokens ? r.tokens - first : kTokens;
    V16 sums[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) sums[i] = V16{};
    for (std::uint32_t t = 0; t < count; ++t) {
      const std::uint32_t token = first + t;
      const V16 decay = all(r.decays[token * r.step_stride]);
      const float* b = r.b + token * r.b_stride;
      const float* c = r.c + token * r.c_stride;
      V16 inputs[kRows], outputs[kRows];
#pragma GCC unroll 16
      for (int i = 0; i < kRows; ++i) {
        inputs[i] = all(r.steps[token * r.step_stride] * r.x[token * r.x_stride + row + static_cast<std::uint32_t>(i)]);
        outputs[i] = V16{};
      }
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        const V16 in = load16(b + 16 * v), out = load16(c + 16 * v);
#pragma GCC unroll 16
        for (int i = 0; i < kRows; ++i) {
          const V16 next = fma(s[i][v], decay, inputs[i] * in);
          outputs[i] = fma(next, out, outputs[i]);
          s[i][v] = rounded<kType>(next);
        }
      }
#pragma GCC unroll 16
      for (int i = 0; i < kRows; ++i) sums[t * kRows + static_cast<std::uint32_t>(i)] = outputs[i];
    }
    const V16 totals = sums_of(sums);
    for (std::uint32_t t = 0; t < count; ++t) {
      for (int i = 0; i < kRows; ++i) {
        const std::uint32_t at = row + static_cast<std::uint32_t>(i), token = first + t;
        const float value = r.x[token * r.x_stride + at];
        r.out[token * r.out_stride + at] = totals[t * kRows + static_cast<std::uint32_t>(i)] + r.d * value;
      }
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) store_state<kType>(state + (i * kVectors + v) * kBytes, s[i][v]);
  }
}

// The same operations in the same order for rows of any length, with the state in memory.
template <ElementType kType>
void recur_row(const Recurrence& r, std::uint32_t row) {
  constexpr std::size_t kBytes = element_bytes(kType);
  std::byte* const state = state_row<kType>(r, row);
  for (std::uint32_t token = 0; token < r.tokens; ++token) {
    const float value = r.x[token * r.x_stride + row];
    const V16 decay = all(r.decays[token * r.step_stride]), input = all(r.steps[token * r.step_stride] * value);
    V16 sum = {};
    by_sixteen(r.state_dim, [&](std::uint32_t i, std::uint32_t count) QUIRE_LAMBDA {
      const V16 b = load_up_to(r.b + token * r.b_stride + i, count);
      const V16 next = fma(load_state_up_to<kType>(state + i * kBytes, count), decay, input * b);
      store_state_up_to<kType>(state + i * kBytes, next, count);
      sum = fma(next, load_up_to(r.c + token * r.c_stride + i, count), sum);
    });
    r.out[token * r.out_stride + row] = sum_of(sum) + r.d * value;
  }
}

// One token: the state goes through registers once, and the sums of sixteen rows are added up together.
template <ElementType kType, int kVectors>
void recur_token(const Recurrence& r) {
  constexpr int kBytes = 16 * static_cast<int>(element_bytes(kType));
  const V16 decay = all(*r.decays);
  for (std::uint32_t row = 0; row < r.head_dim; row += 16) {
    const std::uint32_t count = r.head_dim - row < 16 ? r.head_dim - row : 16;
    V16 sums[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) sums[i] = V16{};
    for (std::uint32_t i = 0; i < count; ++i) {
      std::byte* const state = state_row<kType>(r, row + i);
      const V16 input = all(*r.steps * r.x[row + i]);
      V16 sum = {};
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        // With half the bytes to read, the processor's own prefetching is too late. With f32 it makes no difference.
        constexpr int kStateAhead = 2048;
        if (kType != ElementType::F32 && kBytes * v % 64 == 0) __builtin_prefetch(state + kBytes * v + kStateAhead, 1);
        const V16 next = fma(load_state<kType>(state + kBytes * v), decay, input * load16(r.b + 16 * v));
        store_state<kType>(state + kBytes * v, next);
        sum = fma(next, load16(r.c + 16 * v), sum);
      }
      sums[i] = sum;
    }
    store_up_to(r.out + row, sums_of(sums) + r.d * load_up_to(r.x + row, count), count);
  }
}

template <ElementType kType, int kVectors, int kRows>
void recur_head(const Recurrence& r) {
  if (r.tokens == 1) return recur_token<kType, kVectors>(r);
  std::uint32_t row = 0;
  for (; row + kRows <= r.head_dim; row += kRows) recur_rows<kType, kVectors, kRows>(r, row);
  for (; row < r.head_dim; ++row) recur_row<kType>(r, row);
}

template <ElementType kType>
void recur_in(const Recurrence& r) {
  switch (r.state_dim) {
    case 16: return recur_head<kType, 1, 8>(r);
    case 32: return recur_head<kType, 2, 4>(r);
    case 64: return recur_head<kType, 4, 4>(r);
    case 128: return recur_head<kType, 8, 2>(r);
    case 256: return recur_head<kType, 16, 1>(r);
    default: break;
  }
  for (std::uint32_t row = 0; row < r.head_dim; ++row) recur_row<kType>(r, row);
}

void recur(const Recurrence& r) {
  switch (r.type) {
    case ElementType::F16: return recur_in<ElementType::F16>(r);
    case ElementType::BF16: return recur_in<ElementType::BF16>(r);
    default: return recur_in<ElementType::F32>(r);
  }
}

// Depth-wise causal convolution over at most sixteen channels. The last inputs stay in registers. The convolution state
// `window` is [taps - 1][channels], oldest first; weights are [taps][channels]. kTaps: their number, or an upper bound.
template <std::uint32_t kTaps, bool kPlain>
QUIRE_INLINE void convolve_taps(const Convolution& c, std::uint32_t taps, std::uint32_t channel, std::uint32_t count) {
  V16 weights[kTaps], last[kTaps];
  const std::uint32_t keep = taps - 1;
  for (std::uint32_t t = 0; t < taps; ++t) weights[t] = load_up_to(c.weight + t * c.channels + channel, count);
  for (std::uint32_t t = 0; t < keep; ++t) last[t] = load_up_to(c.window + t * c.channels + channel, count);
  const V16 bias = c.bias == nullptr ? V16{} : load_up_to(c.bias + channel, count);
  for (std::uint32_t i = 0; i < c.rows; ++i) {
    float* at = c.x + i * c.stride + channel;
    last[keep] = load_up_to(at, count);
    if (!kPlain && c.factor != nullptr) last[keep] *= load_up_to(c.factor + i * c.factor_stride + channel, count);
    V16 sum = bias;
    for (std::uint32_t t = 0; t < taps; ++t) sum = fma(weights[t], last[t], sum);
    for (std::uint32_t t = 0; t < keep; ++t) last[t] = last[t + 1];
    store_up_to(at, kPlain || c.silu ? silu(sum) : sum, count);
  }
  for (std::uint32_t t = 0; t < keep; ++t) store_up_to(c.window + t * c.channels + channel, last[t], count);
}

// Published models have four taps with SiLU, or three with a factor.
void convolve(const Convolution& c, std::uint32_t channel, std::uint32_t count) {
  const bool plain = c.factor == nullptr && c.silu;
  if (c.taps == 4 && count == 16 && plain) {
    convolve_taps<4, true>(c, 4, channel, 16);
  } else if (c.taps == 3 && count == 16) {
    convolve_taps<3, false>(c, 3, channel, 16);
  } else {
    convolve_taps<kMostTaps, false>(c, c.taps, channel, count);
  }
}
