// Blocks of random weights, made in the form in which files have them: random quants under a scale that gives them the
// deviation asked for, with mean 0. No float is ever quantised, so that this is as fast as memory for most types.
//
// Who may call: anyone, from any thread. What holds: a block depends on the stream and on its index alone.
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
  // Of any type that Quire computes with.
  Blocks(gguf::Type type, float deviation, Stream stream);

  // Whole blocks, from the one with index `first` on.
  void fill(std::uint64_t first, std::span<std::byte> out) const;

 private:
  void fill_floats(std::uint64_t first, std::span<std::byte> out) const;
  void finish(std::uint8_t* block, std::uint64_t bits) const;

  // Scales and offsets to choose from, as 16-bit floats: blocks of a real tensor are not all alike either.
  struct Choice {
    std::uint16_t scale, offset;
  };
  static constexpr std::size_t kChoices = 16;

  gguf::Type type_;
  std::size_t block_bytes_;
  float deviation_;
  Stream stream_;
  std::array<Choice, kChoices> choices_ = {};
};

}  // namespace quire::synth
