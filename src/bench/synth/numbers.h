// The sizes of a shape by their names on the command line, and which of them a shape may or must have.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "quire/bench/synth/family.h"
#include "quire/bench/synth/synth.h"

namespace quire::synth {

enum class Need : std::uint8_t { none, may, must };

struct Number {
  std::string_view name;
  std::uint32_t Shape::*value;
  std::uint32_t most;  // the maximum of the model loader
  Need (*need)(const Family& family, const Shape& shape);
};

std::span<const Number> numbers();

}  // namespace quire::synth
