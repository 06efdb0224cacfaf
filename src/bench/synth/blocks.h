// Makes blocks of random weights directly in the format of the file: random quants, and a scale that gives the weights
// the wanted standard deviation, with mean 0. No float is quantised, so this is as fast as memory for most types.
//
// Who may call: anyone, from any thread.
// What holds: a block depends only on the stream and on its index.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "quire/bench/synth/random.h"
#include "quire/gguf/types.h"

namespace quire::synth {

class Blocks {
 public:
  // `type` is any of synth's types (type_names() in synth.h).
  Blocks(gguf::Type type, float deviation, Stream stream);

  // Fills `out` with whole blocks, beginning with index `first`.
  void fill(std::uint64_t first, std::span<std::byte> out) const;

 private:
  void fill_floats(std::uint64_t first, std::span<std::byte> out) const;
  void finish(std::uint8_t* block, std::uint64_t bits) const;

  // The scales and offsets of blocks, as 16-bit floats. There are several, as in a real tensor.
  struct Choice {
    std::uint16_t scale, offset;
  };
  static constexpr std::size_t kChoices = 16;

  void choose_exponents(double scale);

  gguf::Type type_;
  std::size_t block_bytes_;
  float deviation_;
  Stream stream_;
  // MXFP4: scales are powers of two. The smaller exponent of two, and how many of 65536 blocks have the larger one.
  std::uint8_t exponent_ = 0;
  std::uint32_t larger_ = 0;
  std::array<Choice, kChoices> choices_ = {};
};

}  // namespace quire::synth
