// The tensor types of GGUF files by their ids, and the numbers that some of them are made of. types.h has everything
// else about them. This header is C++20 and includes no other header of the project, so that CUDA code can include it.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace quire::gguf {

// The values are those in the files.
enum class Type : std::uint32_t {
  F32 = 0,
  F16 = 1,
  Q4_0 = 2,
  Q4_1 = 3,
  Q5_0 = 6,
  Q5_1 = 7,
  Q8_0 = 8,
  Q8_1 = 9,
  Q2_K = 10,
  Q3_K = 11,
  Q4_K = 12,
  Q5_K = 13,
  Q6_K = 14,
  Q8_K = 15,
  IQ2_XXS = 16,
  IQ2_XS = 17,
  IQ3_XXS = 18,
  IQ1_S = 19,
  IQ4_NL = 20,
  IQ3_S = 21,
  IQ2_S = 22,
  IQ4_XS = 23,
  I8 = 24,
  I16 = 25,
  I32 = 26,
  I64 = 27,
  F64 = 28,
  IQ1_M = 29,
  BF16 = 30,
  TQ1_0 = 34,
  TQ2_0 = 35,
  MXFP4 = 39,
  NVFP4 = 40,
};

// The 16 levels of IQ4_NL and IQ4_XS. They are denser around 0, as weights are.
inline constexpr std::array<std::int8_t, 16> kLevels = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                        1,    13,   25,  38,  53,  69,  89,  113};

// The 16 numbers of MXFP4 (a sign, two bits of exponent, one of mantissa), times two so that they are whole.
inline constexpr std::array<std::int8_t, 16> kTwiceE2M1 = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// Half of an MXFP4 scale: 2 to the (e - 128), for every byte e.
constexpr float half_e8m0(std::uint8_t e) {
  return std::bit_cast<float>(e < 2 ? std::uint32_t{0x00200000} << e : std::uint32_t{e - 1u} << 23);
}

}  // namespace quire::gguf
