// Single elements of the block formats of model files, with the bits of gguf::dequantize(). A GPU has a thread per
// element, so each function here computes one element of a block; gguf/dequantize.cpp describes the formats. The same
// code runs on the host, where a test compares it with gguf::dequantize(). C++20, for CUDA code.
//
// What must hold: blocks are aligned to 2 bytes, those of F32 to 4.
#pragma once

#include <cstdint>
#include <cstring>

#include "quire/backend/cuda/file_grids.h"
#include "quire/backend/cuda/file_numbers.h"
#include "quire/gguf/half.h"
#include "quire/gguf/type.h"

namespace quire::cuda {

// gguf::kLevels as two words: device code cannot index an array of the host.
constexpr std::uint64_t eight_levels(int first) {
  std::uint64_t word = 0;
  for (int i = 0; i < 8; ++i) {
    const auto level = static_cast<std::uint8_t>(gguf::kLevels[static_cast<std::size_t>(first + i)]);
    word |= std::uint64_t{level} << (8 * i);
  }
  return word;
}
QUIRE_HOST_DEVICE inline int level(int i) {
  constexpr std::uint64_t kLow = eight_levels(0), kHigh = eight_levels(8);
  return static_cast<std::int8_t>((i < 8 ? kLow : kHigh) >> (i % 8 * 8));
}

// Element i of 32 nibbles: the low ones are elements 0 to 15, the high ones 16 to 31.
QUIRE_HOST_DEVICE inline int nibble(Block nibbles, int i) { return (nibbles[i % 16] >> (i / 16 * 4)) & 15; }
QUIRE_HOST_DEVICE inline int fifth_bit(Block bits, int i) { return ((bits[i / 8] >> (i % 8)) & 1) << 4; }
// Element i of 256 elements of two bits. In each half, bits 0-1 of 32 bytes are the first run of 32, and so on.
QUIRE_HOST_DEVICE inline int two_bits(Block quants, int i) {
  return (quants[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2)) & 3;
}

template <>
struct Elements<gguf::Type::F32> {
  static constexpr int kSize = 1, kBytes = 4;
  QUIRE_HOST_DEVICE static float at(Block block, int) {
    float value;
    std::memcpy(&value, __builtin_assume_aligned(block, 4), sizeof value);
    return value;
  }
};

template <>
struct Elements<gguf::Type::F16> {
  static constexpr int kSize = 1, kBytes = 2;
  QUIRE_HOST_DEVICE static float at(Block block, int) { return f16_at(block); }
};

template <>
struct Elements<gguf::Type::BF16> {
  static constexpr int kSize = 1, kBytes = 2;
  QUIRE_HOST_DEVICE static float at(Block block, int) {
    std::uint16_t bits;
    std::memcpy(&bits, __builtin_assume_aligned(block, 2), sizeof bits);
    return gguf::bf16_to_f32(bits);
  }
};

template <>
struct Elements<gguf::Type::Q4_0> {
  static constexpr int kSize = 32, kBytes = 18;
  QUIRE_HOST_DEVICE static float at(Block block, int i) { return times(f16_at(block), nibble(block + 2, i) - 8); }
};

template <>
struct Elements<gguf::Type::Q4_1> {
  static constexpr int kSize = 32, kBytes = 20;
  QUIRE_HOST_DEVICE static float at(Block block, int i) {
    return plus(times(f16_at(block), nibble(block + 4, i)), f16_at(block + 2));
  }
};

template <>
struct Elements<gguf::Type::Q5_0> {
  static constexpr int kSize = 32, kBytes = 22;
  QUIRE_HOST_DEVICE static float at(Block block, int i) {
    return times(f16_at(block), (nibble(block + 6, i) | fifth_bit(block + 2, i)) - 16);
  }
};

template <>
struct Elements<gguf::Type::Q5_1> {
  static constexpr int kSize = 32, kBytes = 24;
  QUIRE_HOST_DEVICE static float at(Block block, int i) {
    return plus(times(f16_at(block), nibble(block + 8, i) | fifth_bit(block + 4, i)), f16_at(block + 2));
  }
};

template <>
struct Elements<gguf::Type::Q8_0> {
  static constexpr int kSize = 32, kBytes = 34;
  QUIRE_HOST_DEVICE static float at(Block block, int i) {
    return times(f16_at(block), static_cast<std::int8_t>(block[2 + i]));
  }
};

template <>
struct Elements<gguf::Type::IQ4_NL> {
  static constexpr int kSize = 32, kBytes = 18;
  QUIRE_HOST_DEVICE static float at(Block block, int i) { return times(f16_at(block), level(nibble(block + 2, i))); }
};

template <>
struct Elements<gguf::Type::MXFP4> {
  static constexpr int kSize = 32, kBytes = 17;
  QUIRE_HOST_DEVICE static float at(Block block, int i) {
    const int q = nibble(block + 1, i), magnitude = q % 8;
    const int twice = magnitude < 5 ? magnitude : magnitude == 5 ? 6 : magnitude == 6 ? 8 : 12;
    return times(gguf::half_e8m0(block[0]), q < 8 ? twice : -twice);
  }
};

template <>
struct Elements<gguf::Type::Q2_K> {
  static constexpr int kSize = 256, kBytes = 84;
  QUIRE_HOST_DEVICE static float at(Block block, int i) {
    const int scale = block[i / 16];
    const float step = times(f16_at(block + 80), scale & 15), offset = times(f16_at(block + 82), scale >> 4);
    return plus(times(step, two_bits(block + 16, i)), -offset);
  }
};

template <>
struct Elements<gguf::Type::Q3_K> {
  static constexpr int kSize = 256, kBytes = 110;
  QUIRE_HOST_DEVICE static float at(Block block, int i) {
    const Block scales = block + 96;
    const int s = i / 16;
    const int low_bits = (scales[s % 8] >> (s / 8 * 4)) & 15;
    const int high_bits = (scales[8 + s % 4] >> (s / 4 * 2)) & 3;
    const int third = (block[i % 32] >> (i / 32)) & 1;
    const float step = times(f16_at(block + 108), (low_bits | high_bits << 4) - 32);
    return times(step, two_bits(block + 32, i) - (third != 0 ? 0 : 4));
  }
};

// Q4_K and Q5_K: the scale of run s times d, and its offset times dmin.
struct StepAndOffset {
  float step, offset;
};
QUIRE_HOST_DEVICE inline StepAndOffset step_and_offset(Block block, int s) {
  const Block scales = block + 4;
  const int scale = s < 4 ? scales[s] & 63 : (scales[s + 4] & 15) | (scales[s - 4] >> 6) << 4;
  const int offset = s < 4 ? scales[s + 4] & 63 : (scales[s + 4] >> 4) | (scales[s] >> 6) << 4;
  return {times(f16_at(block), scale), times(f16_at(block + 2), offset)};
}

template <>
struct Elements<gguf::Type::Q4_K> {
  static constexpr int kSize = 256, kBytes = 144;
  QUIRE_HOST_DEVICE static float at(Block block, int i) {
    const auto [step, offset] = step_and_offset(block, i / 32);
    const int q = (block[16 + i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4)) & 15;
    return plus(times(step, q), -offset);
  }
};

template <>
struct Elements<gguf::Type::Q5_K> {
  static constexpr int kSize = 256, kBytes = 176;
  QUIRE_HOST_DEVICE static float at(Block block, int i) {
    const auto [step, offset] = step_and_offset(block, i / 32);
    const int low_bits = (block[48 + i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4)) & 15;
    const int fifth = (block[16 + i % 32] >> (i / 32)) & 1;
    return plus(times(step, low_bits | fifth << 4), -offset);
  }
};

template <>
struct Elements<gguf::Type::Q6_K> {
  static constexpr int kSize = 256, kBytes = 210;
  QUIRE_HOST_DEVICE static float at(Block block, int i) {
    const int half = i / 128, run = i % 128 / 32;
    const int low_bits = (block[half * 64 + i % 64] >> (run / 2 * 4)) & 15;
    const int high_bits = (block[128 + half * 32 + i % 32] >> (run * 2)) & 3;
    const float step = times(f16_at(block + 208), static_cast<std::int8_t>(block[192 + i / 16]));
    return times(step, (low_bits | high_bits << 4) - 32);
  }
};

template <>
struct Elements<gguf::Type::IQ4_XS> {
  static constexpr int kSize = 256, kBytes = 136;
  QUIRE_HOST_DEVICE static float at(Block block, int i) {
    const int run = i / 32;
    const int low_bits = (block[4 + run / 2] >> (run % 2 * 4)) & 15;
    const int high_bits = (block[2 + run / 4] >> (run % 4 * 2)) & 3;
    const float step = times(f16_at(block), (low_bits | high_bits << 4) - 32);
    return times(step, level(nibble(block + 8 + run * 16, i % 32)));
  }
};

// Calls visit.template operator()<type>() for a type that has Elements; false for another.
template <typename Visit>
constexpr bool visit_elements(gguf::Type type, Visit visit) {
  using gguf::Type;
  switch (type) {
    case Type::F32: visit.template operator()<Type::F32>(); return true;
    case Type::F16: visit.template operator()<Type::F16>(); return true;
    case Type::BF16: visit.template operator()<Type::BF16>(); return true;
    case Type::Q4_0: visit.template operator()<Type::Q4_0>(); return true;
    case Type::Q4_1: visit.template operator()<Type::Q4_1>(); return true;
    case Type::Q5_0: visit.template operator()<Type::Q5_0>(); return true;
    case Type::Q5_1: visit.template operator()<Type::Q5_1>(); return true;
    case Type::Q8_0: visit.template operator()<Type::Q8_0>(); return true;
    case Type::Q2_K: visit.template operator()<Type::Q2_K>(); return true;
    case Type::Q3_K: visit.template operator()<Type::Q3_K>(); return true;
    case Type::Q4_K: visit.template operator()<Type::Q4_K>(); return true;
    case Type::Q5_K: visit.template operator()<Type::Q5_K>(); return true;
    case Type::Q6_K: visit.template operator()<Type::Q6_K>(); return true;
    case Type::IQ4_NL: visit.template operator()<Type::IQ4_NL>(); return true;
    case Type::MXFP4: visit.template operator()<Type::MXFP4>(); return true;
    case Type::IQ4_XS: visit.template operator()<Type::IQ4_XS>(); return true;
    case Type::IQ1_S: visit.template operator()<Type::IQ1_S>(); return true;
    case Type::IQ1_M: visit.template operator()<Type::IQ1_M>(); return true;
    case Type::IQ2_XXS: visit.template operator()<Type::IQ2_XXS>(); return true;
    case Type::IQ2_XS: visit.template operator()<Type::IQ2_XS>(); return true;
    case Type::IQ2_S: visit.template operator()<Type::IQ2_S>(); return true;
    case Type::IQ3_XXS: visit.template operator()<Type::IQ3_XXS>(); return true;
    case Type::IQ3_S: visit.template operator()<Type::IQ3_S>(); return true;
    case Type::TQ1_0: visit.template operator()<Type::TQ1_0>(); return true;
    case Type::TQ2_0: visit.template operator()<Type::TQ2_0>(); return true;
    default: return false;
  }
}

}  // namespace quire::cuda
