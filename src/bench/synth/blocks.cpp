#include "quire/bench/synth/blocks.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "quire/base/check.h"
#include "quire/gguf/half.h"

namespace quire::synth {
namespace {

using gguf::Type;

// The statistics of the weights in a random block of a type. gguf/dequantize.cpp describes the fields of a block.
struct Form {
  // The standard deviation of a weight if the scale is 1.
  double unit = 0;
  // The offset of a block that gives mean 0, in units of its scale. 0: the type has no offset.
  double offset = 0;
  // If the mean of the quants is not 0, the scale needs both signs, so that the mean of the weights is 0.
  bool either_sign = false;
};

// Root of the mean square of the whole numbers from `least` to `most`.
double rms(int least, int most) {
  double sum = 0;
  for (int i = least; i <= most; ++i) sum += double{1} * i * i;
  return std::sqrt(sum / (most - least + 1));
}

// The standard deviation of the whole numbers 0 ... most.
double spread(int most) { return std::sqrt((most + 1.0) * (most + 1.0) - 1) / std::sqrt(12.0); }

// The levels of IQ4_NL and IQ4_XS.
double levels_rms() {
  constexpr int kLevels[] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
  double sum = 0;
  for (const int level : kLevels) sum += double{1} * level * level;
  return std::sqrt(sum / 16);
}

// The magnitudes of FP4 (E2M1): half of all values are negative.
double fp4_rms() {
  constexpr double kMagnitudes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  double sum = 0;
  for (const double magnitude : kMagnitudes) sum += magnitude * magnitude;
  return std::sqrt(sum / 8);
}

Form form_of(Type type) {
  switch (type) {
    case Type::Q4_0: return {.unit = rms(-8, 7), .either_sign = true};
    case Type::Q5_0: return {.unit = rms(-16, 15), .either_sign = true};
    case Type::Q8_0: return {.unit = rms(-127, 127)};
    case Type::Q4_1: return {.unit = spread(15), .offset = -7.5};
    case Type::Q5_1: return {.unit = spread(31), .offset = -15.5};
    case Type::IQ4_NL: return {.unit = levels_rms(), .either_sign = true};
    case Type::MXFP4: return {.unit = fp4_rms()};
    // The types below have random small scales in their blocks.
    case Type::Q2_K: return {.unit = spread(3) * rms(0, 15), .offset = 1.5};
    case Type::Q3_K: return {.unit = rms(-4, 3) * rms(-32, 31)};
    case Type::Q4_K: return {.unit = spread(15) * rms(0, 63), .offset = 7.5};
    case Type::Q5_K: return {.unit = spread(31) * rms(0, 63), .offset = 15.5};
    case Type::Q6_K: return {.unit = rms(-32, 31) * rms(-128, 127)};
    case Type::IQ4_XS: return {.unit = levels_rms() * rms(-32, 31)};
    default: return {};
  }
}

bool is_float(Type type) { return type == Type::F32 || type == Type::F16 || type == Type::BF16; }

void put(std::uint8_t* at, std::uint16_t value) { std::memcpy(at, &value, sizeof value); }

// A faster gguf::f32_to_f16(), which mispredicts the branches of its rounding for random numbers.
std::uint16_t half_of(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7FFFFFFF;
  if (magnitude < 0x38800000 || magnitude >= 0x477FF000) return gguf::f32_to_f16(value);  // not a normal half
  const std::uint32_t rebased = magnitude - ((127 - 15) << 23);
  return static_cast<std::uint16_t>((bits >> 16 & 0x8000) | (rebased + 0xFFF + (rebased >> 13 & 1)) >> 13);
}

// The same half-byte twice: the small offset equals the small scale.
std::uint8_t doubled(std::uint8_t byte) { return static_cast<std::uint8_t>((byte & 15) * 0x11); }

}  // namespace

Blocks::Blocks(Type type, float deviation, Stream stream)
    : type_(type), block_bytes_(gguf::type_info(type).block_bytes), deviation_(deviation), stream_(stream) {
  if (is_float(type)) return;
  const Form form = form_of(type);
  QUIRE_CHECK(form.unit > 0, "one of synth's types");
  if (type == Type::MXFP4) {
    choose_exponents(deviation / form.unit);
    return;
  }
  // From 0.75 to 1.25 times the usual scale.
  double squares = 0;
  const auto factor = [](std::size_t i) { return 0.75 + static_cast<double>(i / 2) / 14; };
  for (std::size_t i = 0; i < kChoices; ++i) squares += factor(i) * factor(i);
  const double usual = deviation / form.unit / std::sqrt(squares / kChoices);
  for (std::size_t i = 0; i < kChoices; ++i) {
    const double scale = usual * factor(i) * (form.either_sign && i % 2 != 0 ? -1 : 1);
    choices_[i] = {gguf::f32_to_f16(static_cast<float>(scale)),
                   gguf::f32_to_f16(static_cast<float>(scale * form.offset))};
  }
}

// Two neighbouring powers of two, mixed so that the mean of their squares is that of `scale`.
void Blocks::choose_exponents(double scale) {
  constexpr int kBias = 127;
  int exponent = 0;
  std::frexp(scale, &exponent);
  const double smaller = std::ldexp(0.5, exponent);  // at most `scale`, and more than half of it
  exponent_ = static_cast<std::uint8_t>(exponent - 1 + kBias);
  larger_ = static_cast<std::uint32_t>(65536 * (scale * scale / (smaller * smaller) - 1) / 3);
}

void Blocks::fill(std::uint64_t first, std::span<std::byte> out) const {
  QUIRE_CHECK(out.size() % block_bytes_ == 0, "whole blocks");
  if (is_float(type_)) return fill_floats(first, out);
  const std::size_t words = (block_bytes_ + 7) / 8;
  std::uint8_t block[256] = {};
  for (std::size_t begin = 0; begin < out.size(); begin += block_bytes_, ++first) {
    const std::uint64_t place = first * (words + 1);
    for (std::size_t i = 0; i < words; ++i) {
      const std::uint64_t bits = stream_.at(place + i);
      std::memcpy(block + 8 * i, &bits, sizeof bits);
    }
    finish(block, stream_.at(place + words));
    std::memcpy(out.data() + begin, block, block_bytes_);
  }
}

// Sets the fields of a random block that must not be random.
void Blocks::finish(std::uint8_t* block, std::uint64_t bits) const {
  const Choice choice = choices_[bits >> 60];
  switch (type_) {
    case Type::Q4_1:
    case Type::Q5_1: put(block + 2, choice.offset); [[fallthrough]];
    case Type::Q4_0:
    case Type::Q5_0:
    case Type::IQ4_NL:
    case Type::IQ4_XS: put(block, choice.scale); break;
    case Type::MXFP4: block[0] = static_cast<std::uint8_t>(exponent_ + (bits >> 48 < larger_ ? 1 : 0)); break;
    case Type::Q8_0:
      // Quantising never produces -128, and kernels may rely on that.
      for (int i = 2; i < 34; ++i) block[i] = block[i] == 0x80 ? 0 : block[i];
      put(block, choice.scale);
      break;
    case Type::Q2_K:
      for (int i = 0; i < 16; ++i) block[i] = doubled(block[i]);
      put(block + 80, choice.scale);
      put(block + 82, choice.offset);
      break;
    case Type::Q3_K: put(block + 108, choice.scale); break;
    case Type::Q4_K:
    case Type::Q5_K:
      // The 6-bit offsets equal the 6-bit scales.
      std::memcpy(block + 8, block + 4, 4);
      for (int i = 12; i < 16; ++i) block[i] = doubled(block[i]);
      put(block, choice.scale);
      put(block + 2, choice.offset);
      break;
    case Type::Q6_K: put(block + 208, choice.scale); break;
    default: break;
  }
}

void Blocks::fill_floats(std::uint64_t first, std::span<std::byte> out) const {
  const std::size_t count = out.size() / block_bytes_;
  const auto each = [&](auto&& convert) {
    for (std::size_t i = 0; i < count; ++i) {
      const auto value = convert(stream_.normal(first + i) * deviation_);
      std::memcpy(out.data() + i * sizeof value, &value, sizeof value);
    }
  };
  switch (type_) {
    case Type::F16: return each(half_of);
    case Type::BF16: return each(gguf::f32_to_bf16);
    default: return each([](float value) { return value; });
  }
}

}  // namespace quire::synth
