// Mamba-1, token by token. A lane is a channel: the state of sixteen channels is a vector for each of its elements, and
// nothing is added across lanes.

// Advances at most sixteen channels by all tokens. kState: the number of elements, whose vectors then stay in
// registers; 0: any number, and the state stays in memory, which is the L1 cache.
template <ElementType kType, std::uint32_t kState>
QUIRE_INLINE void scan_lanes(const ChannelScan& r, std::uint32_t channel, std::uint32_t count) {
  constexpr std::size_t kBytes = element_bytes(kType);
  const std::uint32_t elements = kState == 0 ? r.state_dim : kState;
  const std::size_t row = std::size_t{r.channels} * kBytes;
  std::byte* const state = r.state + channel * kBytes;
  const V16 bias = load_up_to(r.dt_bias + channel, count), d = load_up_to(r.d + channel, count);
  V16 s[kState == 0 ? 1 : kState];
#pragma GCC unroll 16
  for (std::uint32_t n = 0; n < kState; ++n) s[n] = load_state_up_to<kType>(state + n * row, count);
  for (std::uint32_t token = 0; token < r.tokens; ++token) {
    const float *b = r.b + token * r.b_stride, *c = r.c + token * r.c_stride, *a = r.a + channel;
    const V16 x = load_up_to(r.x + token * r.x_stride + channel, count);
    const V16 step = softplus(load_up_to(r.dt + token * r.dt_stride + channel, count) + bias), input = step * x;
    V16 sum = {};
    const auto advance = [&](std::uint32_t n, V16 last) QUIRE_LAMBDA {
      const V16 decay = exponential(step * load_up_to(a + std::size_t{n} * r.channels, count));
      const V16 next = fma(last, decay, input * all(b[n]));
      sum = fma(next, all(c[n]), sum);
      return next;
    };
    if constexpr (kState != 0) {
#pragma GCC unroll 16
      for (std::uint32_t n = 0; n < kState; ++n) s[n] = rounded<kType>(advance(n, s[n]));
    } else {
      for (std::uint32_t n = 0; n < elements; ++n) {
        std::byte* const at = state + n * row;
        store_state_up_to<kType>(at, advance(n, load_state_up_to<kType>(at, count)), count);
      }
    }
    store_up_to(r.out + token * r.out_stride + channel, fma(d, x, sum), count);
  }
#pragma GCC unroll 16
  for (std::uint32_t n = 0; n < kState; ++n) store_state_up_to<kType>(state + n * row, s[n], count);
}

template <ElementType kType>
void scan_channels_in(const ChannelScan& r, std::uint32_t channel, std::uint32_t count) {
  if (r.state_dim == 16 && count == 16) {
    scan_lanes<kType, 16>(r, channel, 16);
  } else {
    scan_lanes<kType, 0>(r, channel, count);
  }
}

void scan_channels(const ChannelScan& r, std::uint32_t channel, std::uint32_t count) {
  switch (r.type) {
    case ElementType::F16: return scan_channels_in<ElementType::F16>(r, channel, count);
    case ElementType::BF16: return scan_channels_in<ElementType::BF16>(r, channel, count);
    default: return scan_channels_in<ElementType::F32>(r, channel, count);
  }
}
