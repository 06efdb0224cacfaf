// Unpacks rows of quantised weights from the layout of the file into integers and scales, for the types without tiles.

constexpr std::int8_t kNonLinear[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

// Sixteen bytes of two nibbles: the low ones are elements 0 to 15, the high ones 16 to 31.
inline void nibbles(const std::byte* from, std::int8_t* to) {
  for (int j = 0; j < 16; ++j) {
    to[j] = static_cast<std::int8_t>(u8(from[j]) & 15);
    to[j + 16] = static_cast<std::int8_t>(u8(from[j]) >> 4);
  }
}
inline void five_bits(const std::byte* high, const std::byte* from, std::int8_t* to, int minus) {
  std::uint32_t bits;
  __builtin_memcpy(&bits, high, 4);
  for (int j = 0; j < 16; ++j) {
    to[j] = static_cast<std::int8_t>(((u8(from[j]) & 15) | ((bits >> j) & 1) << 4) - static_cast<unsigned>(minus));
    to[j + 16] =
        static_cast<std::int8_t>(((u8(from[j]) >> 4) | ((bits >> (j + 16)) & 1) << 4) - static_cast<unsigned>(minus));
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
        out.q[at + 128 * part + 32 * shift + l] =
            static_cast<std::int8_t>((u8(quants[32 * part + l]) >> (2 * shift)) & 3);
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

inline void unpack_iq4_xs(const std::byte* b, const QuantRow& out, std::uint32_t at) {
  const float d = half_at(b);
  const int high = read16(b + 2);
  for (int j = 0; j < 8; ++j) {
    const int low = (u8(b[4 + j / 2]) >> (4 * (j % 2))) & 15;
    set32(out, at + 32 * j, d * static_cast<float>((low | ((high >> (2 * j)) & 3) << 4) - 32), 0);
    std::int8_t* to = out.q + at + 32 * j;
    nibbles(b + 8 + 16 * j, to);
    for (int l = 0; l < 32; ++l) to[l] = kNonLinear[to[l]];
  }
}

bool unpack_quant(gguf::Type type, const std::byte* row, std::uint32_t cols, const QuantRow& out) {
  using T = gguf::Type;
  switch (type) {
    case T::Q4_1:
      for (std::uint32_t at = 0; at < cols; at += 32, row += 20) {
        set32(out, at, half_at(row), half_at(row + 2));
        nibbles(row + 4, out.q + at);
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
        nibbles(row + 2, out.q + at);
        for (int l = 0; l < 32; ++l) out.q[at + l] = kNonLinear[out.q[at + l]];
      }
      return true;
    case T::Q2_K:
      for (std::uint32_t at = 0; at < cols; at += 256, row += 84) unpack_q2_k(row, out, at);
      return true;
    case T::Q3_K:
      for (std::uint32_t at = 0; at < cols; at += 256, row += 110) unpack_q3_k(row, out, at);
      return true;
    case T::IQ4_XS:
      for (std::uint32_t at = 0; at < cols; at += 256, row += 136) unpack_iq4_xs(row, out, at);
      return true;
    default: return unpack_grids(type, row, cols, out);
  }
}
