// For tests that need a model in another type than its file has: quantises floats to blocks in the plainest way. The
// scale is such that the largest value of a run fits, and each value becomes the nearest one. Files made by llama.cpp
// are a little better.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "quire/base/check.h"
#include "quire/gguf/half.h"
#include "quire/gguf/types.h"

namespace quire::gguf::testing {

namespace detail {

// Writes a scale as a 16-bit float, and returns the rounded value.
inline float put_scale(std::uint8_t* at, float value) {
  const std::uint16_t half = f32_to_f16(value);
  std::memcpy(at, &half, sizeof half);
  return f16_to_f32(half);
}

inline int nearest(float value, float step, int low, int high) {
  return step == 0 ? std::clamp(0, low, high) : std::clamp(static_cast<int>(std::lround(value / step)), low, high);
}

// The value with the largest magnitude, with its sign.
inline float extreme(std::span<const float> values) {
  return *std::ranges::max_element(values, {}, [](float value) { return std::abs(value); });
}

inline void q4_0(std::span<const float> x, std::uint8_t* out) {
  const float d = put_scale(out, extreme(x) / -8);
  for (std::size_t i = 0; i < 16; ++i) {
    const int low = nearest(x[i], d, -8, 7) + 8, high = nearest(x[i + 16], d, -8, 7) + 8;
    out[2 + i] = static_cast<std::uint8_t>(low | high << 4);
  }
}

// Q4_K and Q5_K: eight runs with a scale and an offset of 6 bits each.
inline void q45_k(std::span<const float> x, std::uint8_t* out, int most, std::uint8_t* high, std::uint8_t* quants) {
  std::array<float, 8> steps = {}, mins = {};
  for (std::size_t run = 0; run < 8; ++run) {
    const auto [low, top] = std::ranges::minmax(x.subspan(run * 32, 32));
    mins[run] = std::max(0.0f, -low);
    steps[run] = (std::max(top, 0.0f) + mins[run]) / static_cast<float>(most);
  }
  const float d = put_scale(out, std::ranges::max(steps) / 63), dmin = put_scale(out + 2, std::ranges::max(mins) / 63);
  std::uint8_t* const packed = out + 4;
  for (std::size_t run = 0; run < 8; ++run) {
    const int scale = nearest(steps[run], d, 0, 63), offset = nearest(mins[run], dmin, 0, 63);
    if (run < 4) {
      packed[run] = static_cast<std::uint8_t>(packed[run] | scale);
      packed[run + 4] = static_cast<std::uint8_t>(packed[run + 4] | offset);
    } else {
      packed[run + 4] = static_cast<std::uint8_t>((scale & 15) | (offset & 15) << 4);
      packed[run - 4] = static_cast<std::uint8_t>(packed[run - 4] | (scale >> 4) << 6);
      packed[run] = static_cast<std::uint8_t>(packed[run] | (offset >> 4) << 6);
    }
    for (std::size_t i = 0; i < 32; ++i) {
      const float above = x[run * 32 + i] + dmin * static_cast<float>(offset);
      const int q = nearest(above, d * static_cast<float>(scale), 0, most);
      std::uint8_t& byte = quants[run / 2 * 32 + i];
      byte = static_cast<std::uint8_t>(byte | (q & 15) << (run % 2 * 4));
      if (high != nullptr) high[i] = static_cast<std::uint8_t>(high[i] | (q >> 4) << run);
    }
  }
}

inline void q6_k(std::span<const float> x, std::uint8_t* out) {
  std::array<float, 16> steps = {};
  for (std::size_t run = 0; run < 16; ++run) steps[run] = extreme(x.subspan(run * 16, 16)) / -32;
  const float d = put_scale(out + 208, std::abs(extreme(steps)) / 127);
  for (std::size_t run = 0; run < 16; ++run) {
    out[192 + run] = static_cast<std::uint8_t>(static_cast<std::int8_t>(nearest(steps[run], d, -127, 127)));
  }
  for (std::size_t i = 0; i < 256; ++i) {
    const float step = d * static_cast<float>(static_cast<std::int8_t>(out[192 + i / 16]));
    const int q = nearest(x[i], step, -32, 31) + 32;
    const std::size_t half = i / 128, run = i % 128 / 32;
    std::uint8_t& low = out[half * 64 + i % 64];
    std::uint8_t& high = out[128 + half * 32 + i % 32];
    low = static_cast<std::uint8_t>(low | (q & 15) << (run / 2 * 4));
    high = static_cast<std::uint8_t>(high | (q >> 4) << (run * 2));
  }
}

inline void iq4_xs(std::span<const float> x, std::uint8_t* out) {
  constexpr std::array<float, 16> kLevels = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
  std::array<float, 8> steps = {};
  for (std::size_t run = 0; run < 8; ++run) steps[run] = extreme(x.subspan(run * 32, 32)) / kLevels[0];
  const float d = put_scale(out, std::abs(extreme(steps)) / 31);
  for (std::size_t run = 0; run < 8; ++run) {
    const int scale = nearest(steps[run], d, -31, 31);
    const auto bits = static_cast<unsigned>(scale + 32);
    out[2 + run / 4] = static_cast<std::uint8_t>(out[2 + run / 4] | (bits >> 4) << (run % 4 * 2));
    out[4 + run / 2] = static_cast<std::uint8_t>(out[4 + run / 2] | (bits & 15) << (run % 2 * 4));
    for (std::size_t i = 0; i < 32; ++i) {
      const float wanted = scale == 0 ? 0 : x[run * 32 + i] / (d * static_cast<float>(scale));
      const auto level = std::ranges::min_element(kLevels, {}, [&](float one) { return std::abs(one - wanted); });
      std::uint8_t& byte = out[8 + run * 16 + i % 16];
      byte = static_cast<std::uint8_t>(byte | (level - kLevels.begin()) << (i / 16 * 4));
    }
  }
}

}  // namespace detail

// Q4_0, Q4_K, Q5_K, Q6_K or IQ4_XS; whole blocks.
inline std::vector<std::byte> quantize(Type type, std::span<const float> values) {
  const TypeInfo& info = type_info(type);
  QUIRE_CHECK(values.size() % info.block_size == 0, "whole blocks");
  std::vector<std::byte> blocks(values.size() / info.block_size * info.block_bytes);
  auto* out = reinterpret_cast<std::uint8_t*>(blocks.data());
  for (std::size_t at = 0; at < values.size(); at += info.block_size, out += info.block_bytes) {
    const auto x = values.subspan(at, info.block_size);
    switch (type) {
      case Type::Q4_0: detail::q4_0(x, out); break;
      case Type::Q4_K: detail::q45_k(x, out, 15, nullptr, out + 16); break;
      case Type::Q5_K: detail::q45_k(x, out, 31, out + 16, out + 48); break;
      case Type::Q6_K: detail::q6_k(x, out); break;
      case Type::IQ4_XS: detail::iq4_xs(x, out); break;
      default: QUIRE_CHECK(false, "no such type here");
    }
  }
  return blocks;
}

}  // namespace quire::gguf::testing
