// The gated delta rule, token by token. A lane is an element of a head's values. Its state is a vector for each element
// of a key, so nothing is added across lanes. Sums over a key have four parts, which are independent of each other.

void normalize(float* x, float scale, float epsilon, std::uint32_t n) {
  scale_by(x, scale / __builtin_sqrtf(sum_of_squares(x, n) + epsilon), n);
}

void delta_gates(float* betas, float* decays, const float* beta, const float* alpha, const float* bias, const float* a,
                 std::uint32_t heads) {
  by_sixteen(heads, [&](std::uint32_t i, std::uint32_t count) QUIRE_LAMBDA {
    store_up_to(betas + i, sigmoid(load_up_to(beta + i, count)), count);
    const V16 step = softplus(load_up_to(alpha + i, count) + load_up_to(bias + i, count));
    store_up_to(decays + i, exponential(step * load_up_to(a + i, count)), count);
  });
}

constexpr std::uint32_t kDeltaKeys = 256;  // elements of a key whose state fits on the stack: 16 KB

// Calls each(n, part) for all elements of a key. kKeys: their number; 0: `keys` of them.
template <std::uint32_t kKeys, typename Each>
QUIRE_INLINE void by_parts(std::uint32_t keys, Each each) {
  const std::uint32_t all = kKeys == 0 ? keys : kKeys;
  std::uint32_t n = 0;
  for (; n + 4 <= all; n += 4) {
#pragma GCC unroll 4
    for (std::uint32_t part = 0; part < 4; ++part) each(n + part, part);
  }
  if constexpr (kKeys == 0) {
#pragma GCC unroll 4
    for (std::uint32_t part = 0; part < 4; ++part) {
      if (n + part < all) each(n + part, part);
    }
  }
}
QUIRE_INLINE V16 sum_of_parts(const V16 (&parts)[4]) { return (parts[0] + parts[1]) + (parts[2] + parts[3]); }

// Advances `count` lanes from `first` on by some tokens. One pass over the state for each token: it makes the token's
// state, reads the output from it, and reads what the next token's key finds in it.
template <ElementType kType, std::uint32_t kKeys>
QUIRE_INLINE void advance_lanes(const DeltaHead& r, std::uint32_t first, std::uint32_t count, V16* s) {
  constexpr std::size_t kBytes = element_bytes(kType);
  const std::size_t row = std::size_t{r.value_dim} * kBytes;
  std::byte* const state = r.state + first * kBytes;
  V16 found[4] = {};
  by_parts<kKeys>(r.key_dim, [&](std::uint32_t n, std::uint32_t part) QUIRE_LAMBDA {
    constexpr std::size_t kRowsAhead = 16;  // rows; they are too far apart for the processor's own prefetching
    __builtin_prefetch(state + (n + kRowsAhead) * row, 1);
    s[n] = load_state_up_to<kType>(state + n * row, count);
    found[part] = fma(s[n], all(r.k[n]), found[part]);
  });
  for (std::uint32_t token = 0; token < r.tokens; ++token) {
    const float *q = r.q + token * r.q_stride, *k = r.k + token * r.k_stride;
    const V16 decay = all(r.decays[token * r.gate_stride]), beta = all(r.betas[token * r.gate_stride]);
    const V16 v = load_up_to(r.v + token * r.v_stride + first, count);
    const V16 delta = (v - decay * sum_of_parts(found)) * beta;
    V16 out[4] = {};
    const auto next_of = [&](std::uint32_t n, std::uint32_t part) QUIRE_LAMBDA {
      const V16 next = fma(s[n], decay, delta * all(k[n]));
      out[part] = fma(next, all(q[n]), out[part]);
      return next;
    };
    if (token + 1 < r.tokens) {
      const float* next_k = k + r.k_stride;
      for (V16& part : found) part = V16{};
      by_parts<kKeys>(r.key_dim, [&](std::uint32_t n, std::uint32_t part) QUIRE_LAMBDA {
        s[n] = rounded<kType>(next_of(n, part));
        found[part] = fma(s[n], all(next_k[n]), found[part]);
      });
    } else {
      by_parts<kKeys>(r.key_dim, [&](std::uint32_t n, std::uint32_t part) QUIRE_LAMBDA {
        store_state_up_to<kType>(state + n * row, next_of(n, part), count);
      });
    }
    store_up_to(r.out + token * r.out_stride + first, sum_of_parts(out), count);
  }
}

// The same operations in the same order for keys of any length, with the state in memory.
template <ElementType kType>
void advance_in_memory(const DeltaHead& r, std::uint32_t first, std::uint32_t count) {
  constexpr std::size_t kBytes = element_bytes(kType);
  const std::size_t row = std::size_t{r.value_dim} * kBytes;
  std::byte* const state = r.state + first * kBytes;
  for (std::uint32_t token = 0; token < r.tokens; ++token) {
    const float *q = r.q + token * r.q_stride, *k = r.k + token * r.k_stride;
    const V16 decay = all(r.decays[token * r.gate_stride]), beta = all(r.betas[token * r.gate_stride]);
    V16 found[4] = {}, out[4] = {};
    by_parts<0>(r.key_dim, [&](std::uint32_t n, std::uint32_t part) QUIRE_LAMBDA {
      found[part] = fma(load_state_up_to<kType>(state + n * row, count), all(k[n]), found[part]);
    });
    const V16 v = load_up_to(r.v + token * r.v_stride + first, count);
    const V16 delta = (v - decay * sum_of_parts(found)) * beta;
    by_parts<0>(r.key_dim, [&](std::uint32_t n, std::uint32_t part) QUIRE_LAMBDA {
      const V16 next = fma(load_state_up_to<kType>(state + n * row, count), decay, delta * all(k[n]));
      out[part] = fma(next, all(q[n]), out[part]);
      store_state_up_to<kType>(state + n * row, next, count);
    });
    store_up_to(r.out + token * r.out_stride + first, sum_of_parts(out), count);
  }
}

template <ElementType kType>
void delta_rule_in(const DeltaHead& r, std::uint32_t first, std::uint32_t count) {
  if (r.key_dim > kDeltaKeys) return advance_in_memory<kType>(r, first, count);
  alignas(64) V16 s[kDeltaKeys];
  if (r.key_dim == 128 && count == 16) {
    advance_lanes<kType, 128>(r, first, 16, s);
  } else {
    advance_lanes<kType, 0>(r, first, count, s);
  }
}

void delta_rule(const DeltaHead& r, std::uint32_t first, std::uint32_t count) {
  switch (r.type) {
    case ElementType::F16: return delta_rule_in<ElementType::F16>(r, first, count);
    case ElementType::BF16: return delta_rule_in<ElementType::BF16>(r, first, count);
    default: return delta_rule_in<ElementType::F32>(r, first, count);
  }
}
