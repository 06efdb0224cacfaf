// Unpacks rows of the types with grids (gguf/grids.h) and of those with three values. In all of them an element is
// exactly an integer times a scale. IQ1 shifts its elements by an eighth; its integers are eighths.

// Eight elements of a point, with signs.
template <int kNumbers>
QUIRE_INLINE void put_point(const std::uint8_t (&sizes)[kNumbers], unsigned signs, std::int8_t* to) {
#pragma GCC unroll 8
  for (int i = 0; i < kNumbers; ++i) {
    const int negative = -static_cast<int>(signs >> i & 1);  // all bits, or none
    to[i] = static_cast<std::int8_t>((sizes[i] ^ negative) - negative);
  }
}
QUIRE_INLINE void put_point(const std::int8_t (&numbers)[8], bool down, std::int8_t* to) {
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) to[i] = static_cast<std::int8_t>(8 * numbers[i] + (down ? -1 : 1));
}

inline std::uint32_t read32(const std::byte* p) {
  std::uint32_t value;
  __builtin_memcpy(&value, p, 4);
  return value;
}
inline void set32(const QuantRow& out, std::uint32_t at, float scale, float offset) {
  out.scales[at / 16] = out.scales[at / 16 + 1] = scale;
  out.offsets[at / 16] = out.offsets[at / 16 + 1] = offset;
}
inline void set16(const QuantRow& out, std::uint32_t at, float scale) {
  out.scales[at / 16] = scale;
  out.offsets[at / 16] = 0;
}
inline unsigned nibble_at(const std::byte* from, int i) { return u8(from[i / 2]) >> (i % 2 * 4) & 15; }

inline void unpack_iq2_xxs(const std::byte* b, const QuantRow& out, std::uint32_t at) {
  const float d = half_at(b);
  for (int run = 0; run < 8; ++run) {
    const std::byte* indices = b + 2 + 8 * run;
    const std::uint32_t rest = read32(indices + 4);
    set32(out, at + 32 * run, d * (0.5f + static_cast<float>(rest >> 28)) * 0.25f, 0);
    for (int i = 0; i < 4; ++i) {
      put_point(gguf::kGridIq2Xxs.points[u8(indices[i])], gguf::eight_signs(rest >> (7 * i) & 127),
                out.q + at + 32 * run + 8 * i);
    }
  }
}

inline void unpack_iq2_xs(const std::byte* b, const QuantRow& out, std::uint32_t at) {
  const float d = half_at(b);
  for (int i = 0; i < 16; ++i) {
    set16(out, at + 16 * i, d * (0.5f + static_cast<float>(nibble_at(b + 66, i))) * 0.25f);
  }
  for (int i = 0; i < 32; ++i) {
    const unsigned word = read16(b + 2 + 2 * i);
    put_point(gguf::kGridIq2Xs.points[word & 511], gguf::eight_signs(word >> 9), out.q + at + 8 * i);
  }
}

inline void unpack_iq2_s(const std::byte* b, const QuantRow& out, std::uint32_t at) {
  const float d = half_at(b);
  for (int i = 0; i < 16; ++i) {
    set16(out, at + 16 * i, d * (0.5f + static_cast<float>(nibble_at(b + 74, i))) * 0.25f);
  }
  for (int i = 0; i < 32; ++i) {
    const unsigned index = u8(b[2 + i]) | (u8(b[66 + i / 4]) >> (i % 4 * 2) & 3u) << 8;
    put_point(gguf::kGridIq2S.points[index], u8(b[34 + i]), out.q + at + 8 * i);
  }
}

inline void unpack_iq3_xxs(const std::byte* b, const QuantRow& out, std::uint32_t at) {
  const float d = half_at(b);
  for (int run = 0; run < 8; ++run) {
    const std::uint32_t rest = read32(b + 66 + 4 * run);
    set32(out, at + 32 * run, d * (0.5f + static_cast<float>(rest >> 28)) * 0.5f, 0);
    for (int i = 0; i < 8; ++i) {
      const unsigned signs = gguf::eight_signs(rest >> (i / 2 * 7) & 127) >> (i % 2 * 4);
      put_point(gguf::kGridIq3Xxs.points[u8(b[2 + 8 * run + i])], signs, out.q + at + 32 * run + 4 * i);
    }
  }
}

inline void unpack_iq3_s(const std::byte* b, const QuantRow& out, std::uint32_t at) {
  const float d = half_at(b);
  for (int run = 0; run < 8; ++run) {
    set32(out, at + 32 * run, d * static_cast<float>(1 + 2 * nibble_at(b + 106, run)), 0);
  }
  for (int i = 0; i < 64; ++i) {
    const unsigned index = u8(b[2 + i]) | (u8(b[66 + i / 8]) >> (i % 8) & 1u) << 8;
    put_point(gguf::kGridIq3S.points[index], static_cast<unsigned>(u8(b[74 + i / 2])) >> (i % 2 * 4),
              out.q + at + 4 * i);
  }
}

inline void unpack_iq1_s(const std::byte* b, const QuantRow& out, std::uint32_t at) {
  const float d = half_at(b);
  for (int run = 0; run < 8; ++run) {
    const unsigned word = read16(b + 34 + 2 * run);
    set32(out, at + 32 * run, d * static_cast<float>(2 * (word >> 12 & 7) + 1) * 0.125f, 0);
    for (int i = 0; i < 4; ++i) {
      const unsigned index = u8(b[2 + 4 * run + i]) | (word >> (3 * i) & 7) << 8;
      put_point(gguf::kGridIq1.points[index], word >> 15 != 0, out.q + at + 32 * run + 8 * i);
    }
  }
}

inline void unpack_iq1_m(const std::byte* b, const QuantRow& out, std::uint32_t at) {
  const std::byte* scales = b + 48;
  unsigned half = 0;
  for (int i = 0; i < 4; ++i) half |= static_cast<unsigned>(read16(scales + 2 * i) >> 12) << (4 * i);
  const float d = gguf::f16_to_f32(static_cast<std::uint16_t>(half)) * 0.125f;
  for (int i = 0; i < 16; ++i) {
    set16(out, at + 16 * i, d * static_cast<float>(2 * (read16(scales + i / 4 * 2) >> (i % 4 * 3) & 7) + 1));
  }
  for (int i = 0; i < 32; ++i) {
    const unsigned more = nibble_at(b + 32, i);
    put_point(gguf::kGridIq1.points[u8(b[i]) | (more & 7) << 8], more >> 3 != 0, out.q + at + 8 * i);
  }
}

// Five digits of base 3 in a byte, as a fraction of 256.
inline void unpack_tq1_0(const std::byte* b, const QuantRow& out, std::uint32_t at) {
  const auto digits = [&](int from, int apart, int count, std::int8_t* to) {
    std::uint8_t power = 1;
    for (int n = 0; n < count; ++n, power = static_cast<std::uint8_t>(power * 3)) {
      for (int i = 0; i < apart; ++i) {
        const auto fraction = static_cast<std::uint8_t>(u8(b[from + i]) * power);
        to[n * apart + i] = static_cast<std::int8_t>((fraction * 3 >> 8) - 1);
      }
    }
  };
  digits(0, 32, 5, out.q + at);
  digits(32, 16, 5, out.q + at + 160);
  digits(48, 4, 4, out.q + at + 240);
  for (int run = 0; run < 8; ++run) set32(out, at + 32 * run, half_at(b + 52), 0);
}

inline void unpack_tq2_0(const std::byte* b, const QuantRow& out, std::uint32_t at) {
  for (int i = 0; i < 256; ++i) {
    const int two = u8(b[i / 128 * 32 + i % 32]) >> (i % 128 / 32 * 2) & 3;
    out.q[at + i] = static_cast<std::int8_t>(two - 1);
  }
  for (int run = 0; run < 8; ++run) set32(out, at + 32 * run, half_at(b + 64), 0);
}

// False: another type.
inline bool unpack_grids(gguf::Type type, const std::byte* row, std::uint32_t cols, const QuantRow& out) {
  const auto each = [&](std::uint32_t bytes, auto unpack) {
    for (std::uint32_t at = 0; at < cols; at += 256, row += bytes) unpack(row, out, at);
    return true;
  };
  using T = gguf::Type;
  switch (type) {
    case T::IQ2_XXS: return each(66, unpack_iq2_xxs);
    case T::IQ2_XS: return each(74, unpack_iq2_xs);
    case T::IQ2_S: return each(82, unpack_iq2_s);
    case T::IQ3_XXS: return each(98, unpack_iq3_xxs);
    case T::IQ3_S: return each(110, unpack_iq3_s);
    case T::IQ1_S: return each(50, unpack_iq1_s);
    case T::IQ1_M: return each(56, unpack_iq1_m);
    case T::TQ1_0: return each(54, unpack_tq1_0);
    case T::TQ2_0: return each(66, unpack_tq2_0);
    default: return false;
  }
}
