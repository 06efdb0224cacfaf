// The tables of the types that store several elements as one index: IQ1, IQ2 and IQ3. An index stands for a point of a
// grid, which is eight (or four) numbers that often occur together. The tables are a part of the file format.
//
// This header includes no template of the standard library, so that the CPU's kernels can include it.
//
// Who may call: anyone, from any thread; the tables are constant.
#pragma once

#include <cstdint>

namespace quire::gguf {

template <typename Number, int kPoints, int kNumbers>
struct Grid {
  Number points[kPoints][kNumbers];
};

// Sizes; their signs are stored beside the index.
extern const Grid<std::uint8_t, 256, 8> kGridIq2Xxs;
extern const Grid<std::uint8_t, 512, 8> kGridIq2Xs;
extern const Grid<std::uint8_t, 1024, 8> kGridIq2S;
extern const Grid<std::uint8_t, 256, 4> kGridIq3Xxs;
extern const Grid<std::uint8_t, 512, 4> kGridIq3S;
// IQ1_S and IQ1_M: -1, 0 and 1.
extern const Grid<std::int8_t, 2048, 8> kGridIq1;

// Eight signs of which seven are stored: bit i is set if element i is negative. The number of negative ones is even.
constexpr unsigned eight_signs(unsigned seven) {
  unsigned odd = seven ^ seven >> 4;
  odd ^= odd >> 2;
  odd ^= odd >> 1;
  return seven | (odd & 1) << 7;
}

}  // namespace quire::gguf
