// How rotary frequencies are changed for contexts that are longer than the model was first trained for.
//
// Who may call: anyone, from any thread; there is no state.
// How it fails: not at all. constants.cpp reads the values from the file and refuses those that are out of range.
#pragma once

#include <cstdint>
#include <span>

namespace quire::model {

// What a file says of it, and what was chosen. For people too: `quire info` describes it.
struct RopeScaling {
  enum class Kind : std::uint8_t {
    None,
    Linear,    // all frequencies are divided by `factor`
    Yarn,      // slow frequencies are divided by `factor`, fast ones are left, and there is a ramp between the two
    LongRope,  // each frequency is divided by a factor of its own, from one of two lists
  };
  Kind kind = Kind::None;
  float factor = 1;
  std::uint32_t original_length = 0;  // tokens of the first training; Yarn and LongRope
  bool long_factors = false;          // LongRope: which list was chosen
};

// YaRN (https://arxiv.org/abs/2309.00071). A pair of elements that turns more than `beta_fast` times within
// `original_length` positions keeps its frequency. One that turns less than `beta_slow` times is divided by `factor`.
struct Yarn {
  float base = 10000;  // of the rotary frequencies
  float factor = 1;
  std::uint32_t original_length = 0;
  float beta_fast = 32;
  float beta_slow = 1;
  float extrapolation = 1;  // how much of the ramp is applied; 0: all frequencies are divided
  bool whole_pairs = true;  // the ramp begins and ends at whole pairs
};
// `frequencies` are those without scaling: one for each pair of the elements that are rotated.
void apply_yarn(std::span<float> frequencies, const Yarn& yarn);

// By how much YaRN multiplies cosines and sines: 1 + 0.1 * multiplier * ln(factor); 1 for a factor up to 1.
float yarn_magnitude(float factor, float multiplier = 1);

}  // namespace quire::model
