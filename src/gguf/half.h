// The two 16-bit floats of model files, to and from float32, as bits. Portable and exact. Every half becomes the float
// of the same value, including subnormals, infinities and the payload of a NaN. A float becomes the nearest half, ties
// to even.
//
// Who may call: anyone; pure functions, usable at compile time.
// How it fails: not at all. A value that is too large becomes infinity. A NaN stays a (quiet) NaN.
#pragma once

#include <bit>
#include <cstdint>

namespace quire::gguf {

// IEEE binary16: 1 sign, 5 exponent, 10 mantissa bits.
constexpr float f16_to_f32(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
  const std::uint32_t exponent = (half >> 10) & 0x1Fu;
  const std::uint32_t mantissa = half & 0x3FFu;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000u | mantissa << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 127 - 15) << 23 | mantissa << 13);
  // Subnormal: mantissa * 2^-24, which a float holds exactly. The sign is set as a bit, so that -0 stays -0.
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
}

constexpr std::uint16_t f32_to_f16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) {
    // Sets the quiet bit. Without it, a payload whose upper bits are all 0 would become an infinity.
    return static_cast<std::uint16_t>(sign | 0x7E00u | ((magnitude >> 13) & 0x3FFu));
  }
  // From 65520 on everything is infinite: that is half-way between the largest half and the next power of two.
  if (magnitude >= 0x477FF000u) return static_cast<std::uint16_t>(sign | 0x7C00u);
  std::uint32_t kept, dropped, tie;
  if (magnitude >= 0x38800000u) {  // at least 2^-14: a normal half
    const std::uint32_t rebased = magnitude - ((127u - 15u) << 23);
    kept = rebased >> 13;
    dropped = rebased & 0x1FFFu;
    tie = 0x1000u;
  } else {
    // The half is a multiple of 2^-24. A float below 2^-25 rounds to 0, and so does 2^-25 itself, a tie.
    if (magnitude <= 0x33000000u) return static_cast<std::uint16_t>(sign);
    const std::uint32_t shift = 126u - (magnitude >> 23);  // 14 to 24
    const std::uint32_t mantissa = (magnitude & 0x7FFFFFu) | 0x800000u;
    kept = mantissa >> shift;
    dropped = mantissa & ((1u << shift) - 1u);
    tie = 1u << (shift - 1u);
  }
  // A carry out of the mantissa moves into the exponent. That is right: the value rounds up to a power of two.
  if (dropped > tie || (dropped == tie && (kept & 1u) != 0)) ++kept;
  return static_cast<std::uint16_t>(sign | kept);
}

// bfloat16: the upper half of a float32.
constexpr float bf16_to_f32(std::uint16_t half) { return std::bit_cast<float>(static_cast<std::uint32_t>(half) << 16); }

constexpr std::uint16_t f32_to_bf16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<std::uint16_t>(bits >> 16 | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace quire::gguf
