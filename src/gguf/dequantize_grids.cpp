// The block formats that have fewer than four bits for an element: points of grids (grids.h), and elements that are -1,
// 0 or 1. All have 256 elements and a 16-bit scale `d`. As in dequantize.cpp, every product is exact in float32.
#include "quire/gguf/blocks.h"
#include "quire/gguf/grids.h"

namespace quire::gguf {
namespace {

// Elements of one point: its sizes times `step`, with these signs.
template <int kNumbers>
void put_point(const std::uint8_t (&sizes)[kNumbers], unsigned signs, float step, float* out) {
  for (int i = 0; i < kNumbers; ++i) {
    const int size = sizes[i];
    out[i] = step * static_cast<float>((signs >> i & 1) != 0 ? -size : size);
  }
}

// d; for each run of 32: four bytes of indices, then 4 x 7 bits of signs and 4 bits of scale.
void block_iq2_xxs(Bytes in, float* out) {
  const float d = f16_at(in);
  for (int run = 0; run < 8; ++run) {
    const Bytes indices = in + 2 + 8 * run;
    const std::uint32_t rest = u32_at(indices + 4);
    const float step = d * (0.5f + static_cast<float>(rest >> 28)) * 0.25f;
    for (int i = 0; i < 4; ++i) {
      put_point(kGridIq2Xxs.points[indices[i]], eight_signs(rest >> (7 * i) & 127), step, out + 32 * run + 8 * i);
    }
  }
}

// The scale of the s-th 16 elements: nibbles, the low ones first.
int nibble_at(Bytes scales, int s) { return scales[s / 2] >> (s % 2 * 4) & 15; }

// d; 32 words of 9 bits of index and 7 of signs; 8 bytes of scales, a nibble for each 16 elements.
void block_iq2_xs(Bytes in, float* out) {
  const float d = f16_at(in);
  for (int i = 0; i < 32; ++i) {
    const unsigned word = u16_at(in + 2 + 2 * i);
    const float step = d * (0.5f + static_cast<float>(nibble_at(in + 66, i / 2))) * 0.25f;
    put_point(kGridIq2Xs.points[word & 511], eight_signs(word >> 9), step, out + 8 * i);
  }
}

// d; 32 bytes of indices; 32 bytes of signs; 8 bytes with two more bits of four indices each; 8 bytes of scales.
void block_iq2_s(Bytes in, float* out) {
  const float d = f16_at(in);
  for (int i = 0; i < 32; ++i) {
    const unsigned index = in[2 + i] | (in[66 + i / 4] >> (i % 4 * 2) & 3u) << 8;
    const float step = d * (0.5f + static_cast<float>(nibble_at(in + 74, i / 2))) * 0.25f;
    put_point(kGridIq2S.points[index], in[34 + i], step, out + 8 * i);
  }
}

// d; 64 bytes of indices of four elements; for each run of 32, 4 x 7 bits of signs and 4 bits of scale.
void block_iq3_xxs(Bytes in, float* out) {
  const float d = f16_at(in);
  for (int run = 0; run < 8; ++run) {
    const std::uint32_t rest = u32_at(in + 66 + 4 * run);
    const float step = d * (0.5f + static_cast<float>(rest >> 28)) * 0.5f;
    for (int i = 0; i < 8; ++i) {
      const unsigned signs = eight_signs(rest >> (i / 2 * 7) & 127) >> (i % 2 * 4);
      put_point(kGridIq3Xxs.points[in[2 + 8 * run + i]], signs, step, out + 32 * run + 4 * i);
    }
  }
}

// d; 64 bytes of indices of four elements; 8 bytes with a ninth bit of eight indices each; 32 bytes of signs; 4 bytes
// of scales, a nibble for each 32 elements.
void block_iq3_s(Bytes in, float* out) {
  const float d = f16_at(in);
  for (int i = 0; i < 64; ++i) {
    const unsigned index = in[2 + i] | (in[66 + i / 8] >> (i % 8) & 1u) << 8;
    const float step = d * static_cast<float>(1 + 2 * nibble_at(in + 106, i / 8));
    put_point(kGridIq3S.points[index], static_cast<unsigned>(in[74 + i / 2]) >> (i % 2 * 4), step, out + 4 * i);
  }
}

// All elements of a point of IQ1 are moved by an eighth.
void put_point(const std::int8_t (&numbers)[8], bool down, float step, float* out) {
  for (int i = 0; i < 8; ++i) out[i] = step * (static_cast<float>(numbers[i]) + (down ? -0.125f : 0.125f));
}

// d; 32 bytes of indices; for each run of 32, a word with 4 x 3 more bits of indices, 3 bits of scale and the
// direction.
void block_iq1_s(Bytes in, float* out) {
  const float d = f16_at(in);
  for (int i = 0; i < 32; ++i) {
    const unsigned word = u16_at(in + 34 + i / 4 * 2);
    const float step = d * static_cast<float>(2 * (word >> 12 & 7) + 1);
    put_point(kGridIq1.points[in[2 + i] | (word >> (i % 4 * 3) & 7) << 8], word >> 15 != 0, step, out + 8 * i);
  }
}

// 32 bytes of indices; 16 bytes with, for each two points, two nibbles of 3 more bits of index and the direction; four
// words with 4 x 3 bits of scales, one for each 16 elements. The upper four bits of the words are d.
void block_iq1_m(Bytes in, float* out) {
  const Bytes scales = in + 48;
  unsigned half = 0;
  for (int i = 0; i < 4; ++i) half |= static_cast<unsigned>(u16_at(scales + 2 * i) >> 12) << (4 * i);
  const float d = f16_to_f32(static_cast<std::uint16_t>(half));
  for (int i = 0; i < 32; ++i) {
    const unsigned more = in[32 + i / 2] >> (i % 2 * 4) & 15u;
    const float step = d * static_cast<float>(2 * (u16_at(scales + i / 8 * 2) >> (i / 2 % 4 * 3) & 7) + 1);
    put_point(kGridIq1.points[in[i] | (more & 7) << 8], more >> 3 != 0, step, out + 8 * i);
  }
}

// A byte holds five digits of base 3, as a fraction of 256: the n-th digit is the whole part of 3 times the fraction
// that is left after n.
int digit_of(std::uint8_t byte, int n) {
  constexpr std::uint8_t kPowers[] = {1, 3, 9, 27, 81};
  return static_cast<std::uint8_t>(byte * kPowers[n]) * 3 >> 8;
}

// 32 bytes of five elements each, 32 apart; 16 bytes of five, 16 apart; 4 bytes of four, 4 apart; d.
void block_tq1_0(Bytes in, float* out) {
  const float d = f16_at(in + 52);
  for (int i = 0; i < 160; ++i) out[i] = d * static_cast<float>(digit_of(in[i % 32], i / 32) - 1);
  for (int i = 0; i < 80; ++i) out[160 + i] = d * static_cast<float>(digit_of(in[32 + i % 16], i / 16) - 1);
  for (int i = 0; i < 16; ++i) out[240 + i] = d * static_cast<float>(digit_of(in[48 + i % 4], i / 4) - 1);
}

// 64 bytes of four elements in two bits each, 32 apart, as in Q2_K; d.
void block_tq2_0(Bytes in, float* out) {
  const float d = f16_at(in + 64);
  for (int i = 0; i < 256; ++i) {
    out[i] = d * static_cast<float>((in[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3) - 1);
  }
}

}  // namespace

BlockFunction grid_block_function(Type type) {
  switch (type) {
    case Type::IQ2_XXS: return block_iq2_xxs;
    case Type::IQ2_XS: return block_iq2_xs;
    case Type::IQ2_S: return block_iq2_s;
    case Type::IQ3_XXS: return block_iq3_xxs;
    case Type::IQ3_S: return block_iq3_s;
    case Type::IQ1_S: return block_iq1_s;
    case Type::IQ1_M: return block_iq1_m;
    case Type::TQ1_0: return block_tq1_0;
    case Type::TQ2_0: return block_tq2_0;
    default: return nullptr;
  }
}

}  // namespace quire::gguf
