// Counter-based random numbers: a number depends only on the stream and on its place, so that threads can fill parts of
// a file in any order. The function is the finalizer of SplitMix64: two multiplications for eight bytes. Not for
// secrets.
#pragma once

#include <cstdint>

namespace quire::synth {

class Stream {
 public:
  // Streams of the same seed are independent.
  constexpr Stream(std::uint64_t seed, std::uint64_t number) : key_(mixed(mixed(seed) + number * kStep)) {}

  constexpr std::uint64_t at(std::uint64_t place) const { return mixed(key_ + place * kStep); }

  // In [0, 1).
  constexpr float fraction(std::uint64_t place) const { return static_cast<float>(at(place) >> 40) * 0x1p-24f; }

  // Approximately normal, with mean 0 and standard deviation 1, at most 3.5: the sum of four uniform numbers.
  constexpr float normal(std::uint64_t place) const {
    constexpr float kDeviation = 37837.23f;  // of the sum: 65536 / sqrt(3)
    const std::uint64_t bits = at(place);
    const auto sum =
        static_cast<std::int32_t>((bits & 0xFFFF) + (bits >> 16 & 0xFFFF) + (bits >> 32 & 0xFFFF) + (bits >> 48));
    return static_cast<float>(sum - 2 * 0xFFFF) * (1 / kDeviation);
  }

 private:
  static constexpr std::uint64_t kStep = 0x9E3779B97F4A7C15;

  static constexpr std::uint64_t mixed(std::uint64_t x) {
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9;
    x = (x ^ x >> 27) * 0x94D049BB133111EB;
    return x ^ x >> 31;
  }

  std::uint64_t key_;
};

}  // namespace quire::synth
