// Single elements of the block formats that have grids or three values (gguf/dequantize_grids.cpp describes them), for
// file_elements.h. On a GPU the tables are in device memory, so these functions are for the device only. C++20.
#pragma once

#include <cstdint>
#include <cstring>

#include "quire/backend/cuda/file_numbers.h"
#include "quire/gguf/grid_tables.h"
#include "quire/gguf/type.h"

#if defined(__CUDACC__)
#define QUIRE_GRID_FUNCTION __device__
#else
#define QUIRE_GRID_FUNCTION
#endif

namespace quire::cuda {

QUIRE_GRID_FUNCTION inline std::uint32_t word_at(Block at) {  // blocks are aligned to 2 bytes
  return u16_at(at) | static_cast<std::uint32_t>(u16_at(at + 2)) << 16;
}
QUIRE_GRID_FUNCTION inline int nibble_of(Block scales, int s) { return scales[s / 2] >> (s % 2 * 4) & 15; }

// Sign i of eight, of which seven are stored: the number of negative ones is even.
QUIRE_GRID_FUNCTION inline bool is_negative(unsigned seven, int i) {
  if (i < 7) return (seven >> i & 1) != 0;
  unsigned odd = seven ^ seven >> 4;
  odd ^= odd >> 2;
  return ((odd ^ odd >> 1) & 1) != 0;
}
QUIRE_GRID_FUNCTION inline int with_sign(int size, bool negative) { return negative ? -size : size; }

// Number i of a point. Levels of IQ2 are 8, 25 and 43, those of IQ3_XXS 4 to 62, those of IQ3_S 1 to 15.
QUIRE_GRID_FUNCTION inline int size_of_2(std::uint16_t point, int i) {
  const int level = point >> (2 * i) & 3;
  return level == 0 ? 8 : level == 1 ? 25 : 43;
}
QUIRE_GRID_FUNCTION inline int size_of_3_xxs(std::uint16_t point, int i) {
  const int level = point >> (4 * i) & 7;
  return level == 7 ? 62 : 8 * level + 4;
}
QUIRE_GRID_FUNCTION inline int size_of_3_s(std::uint16_t point, int i) { return 2 * (point >> (4 * i) & 7) + 1; }
// IQ1: -1, 0 or 1, moved by an eighth.
QUIRE_GRID_FUNCTION inline float of_1(std::uint16_t point, int i, bool down) {
  return plus(static_cast<float>((point >> (2 * i) & 3) - 1), down ? -0.125f : 0.125f);
}
QUIRE_GRID_FUNCTION inline float half_step(float d, int scale, float factor) {
  return times(times(d, plus(0.5f, static_cast<float>(scale))), factor);
}

template <>
struct Elements<gguf::Type::IQ2_XXS> {
  static constexpr int kSize = 256, kBytes = 66;
  QUIRE_GRID_FUNCTION static float at(Block block, int i) {
    const Block run = block + 2 + i / 32 * 8;
    const std::uint32_t rest = word_at(run + 4);
    const int point = i / 8 % 4, size = size_of_2(gguf::kPackedIq2Xxs[run[point]], i % 8);
    return times(half_step(f16_at(block), static_cast<int>(rest >> 28), 0.25f),
                 with_sign(size, is_negative(rest >> (7 * point) & 127, i % 8)));
  }
};

template <>
struct Elements<gguf::Type::IQ2_XS> {
  static constexpr int kSize = 256, kBytes = 74;
  QUIRE_GRID_FUNCTION static float at(Block block, int i) {
    const unsigned word = u16_at(block + 2 + i / 8 * 2);
    return times(half_step(f16_at(block), nibble_of(block + 66, i / 16), 0.25f),
                 with_sign(size_of_2(gguf::kPackedIq2Xs[word & 511], i % 8), is_negative(word >> 9, i % 8)));
  }
};

template <>
struct Elements<gguf::Type::IQ2_S> {
  static constexpr int kSize = 256, kBytes = 82;
  QUIRE_GRID_FUNCTION static float at(Block block, int i) {
    const int point = i / 8;
    const int index = block[2 + point] | (block[66 + point / 4] >> (point % 4 * 2) & 3) << 8;
    return times(half_step(f16_at(block), nibble_of(block + 74, i / 16), 0.25f),
                 with_sign(size_of_2(gguf::kPackedIq2S[index], i % 8), (block[34 + point] >> (i % 8) & 1) != 0));
  }
};

template <>
struct Elements<gguf::Type::IQ3_XXS> {
  static constexpr int kSize = 256, kBytes = 98;
  QUIRE_GRID_FUNCTION static float at(Block block, int i) {
    const std::uint32_t rest = word_at(block + 66 + i / 32 * 4);
    const int size = size_of_3_xxs(gguf::kPackedIq3Xxs[block[2 + i / 4]], i % 4);
    return times(half_step(f16_at(block), static_cast<int>(rest >> 28), 0.5f),
                 with_sign(size, is_negative(rest >> (i / 8 % 4 * 7) & 127, i % 8)));
  }
};

template <>
struct Elements<gguf::Type::IQ3_S> {
  static constexpr int kSize = 256, kBytes = 110;
  QUIRE_GRID_FUNCTION static float at(Block block, int i) {
    const int point = i / 4;
    const int index = block[2 + point] | (block[66 + point / 8] >> (point % 8) & 1) << 8;
    return times(times(f16_at(block), 1 + 2 * nibble_of(block + 106, i / 32)),
                 with_sign(size_of_3_s(gguf::kPackedIq3S[index], i % 4), (block[74 + i / 8] >> (i % 8) & 1) != 0));
  }
};

template <>
struct Elements<gguf::Type::IQ1_S> {
  static constexpr int kSize = 256, kBytes = 50;
  QUIRE_GRID_FUNCTION static float at(Block block, int i) {
    const int point = i / 8, word = u16_at(block + 34 + i / 32 * 2);
    const int index = block[2 + point] | (word >> (point % 4 * 3) & 7) << 8;
    return times(times(f16_at(block), 2 * (word >> 12 & 7) + 1), of_1(gguf::kPackedIq1[index], i % 8, word >> 15 != 0));
  }
};

template <>
struct Elements<gguf::Type::IQ1_M> {
  static constexpr int kSize = 256, kBytes = 56;
  QUIRE_GRID_FUNCTION static float at(Block block, int i) {
    const Block scales = block + 48;
    int half = 0;
    for (int k = 0; k < 4; ++k) half |= scales[2 * k + 1] >> 4 << (4 * k);
    const int point = i / 8, more = nibble_of(block + 32, point);
    const int scale = u16_at(scales + i / 64 * 2) >> (i / 16 % 4 * 3) & 7;
    const float step = times(gguf::f16_to_f32(static_cast<std::uint16_t>(half)), 2 * scale + 1);
    return times(step, of_1(gguf::kPackedIq1[block[point] | (more & 7) << 8], i % 8, more >> 3 != 0));
  }
};

template <>
struct Elements<gguf::Type::TQ1_0> {
  static constexpr int kSize = 256, kBytes = 54;
  QUIRE_GRID_FUNCTION static float at(Block block, int i) {
    const int in = i < 160 ? i : i < 240 ? i - 160 : i - 240, apart = i < 160 ? 32 : i < 240 ? 16 : 4;
    int power = 1;
    for (int n = 0; n < in / apart; ++n) power *= 3;
    const auto fraction = static_cast<std::uint8_t>(block[(i < 160 ? 0 : i < 240 ? 32 : 48) + in % apart] * power);
    return times(f16_at(block + 52), (fraction * 3 >> 8) - 1);
  }
};

template <>
struct Elements<gguf::Type::TQ2_0> {
  static constexpr int kSize = 256, kBytes = 66;
  QUIRE_GRID_FUNCTION static float at(Block block, int i) {
    return times(f16_at(block + 64), (block[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3) - 1);
  }
};

}  // namespace quire::cuda
