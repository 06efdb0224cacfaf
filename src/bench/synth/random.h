// Random numbers by counting: the number at a place depends on the stream and on the place and on nothing else, so that
// threads can fill parts of a file in any order. The function is the finalizer of SplitMix64, two multiplications for
// eight bytes; it is not for secrets.
#pragma once

#include <cstdint>

namespace quire::synth {

class Stream {
 public:
  // Streams of one seed have nothing to do with each other.
  constexpr Stream(std::uint64_t seed, std::uint64_t number) : key_(mixed(mixed(seed) + number * kStep)) {}

  constexpr std::uint64_t at(std::uint64_t place) const { return mixed(key_ + place * kStep); }

  // In [0, 1).
  constexpr float fraction(std::uint64_t place) const { return static_cast<float>(at(place) >> 40) * 0x1p-24f; }

  // About normal, with mean 0 and deviation 1, and never beyond 3.5: the sum of four even ones.
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
