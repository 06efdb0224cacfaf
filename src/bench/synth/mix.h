// Which type each matrix of a file has. A plain type ("Q4_0") is that of every matrix but the output; a mix ("Q4_K_M")
// gives some of them a larger one. Both are what llama.cpp's quantize does without an importance matrix, except that
// its Q2_K, IQ4_NL and IQ4_XS are mixes too and here they are plain: what is asked for is what is measured.
#pragma once

#include <cstdint>
#include <string_view>

#include "quire/base/error.h"
#include "quire/gguf/types.h"

namespace quire::synth {

// What a matrix is for, as far as it decides on its type.
enum class Role : std::uint8_t { output, attention_value, attention_output, feed_forward_down, other };

struct Mix {
  std::string_view name;
  gguf::Type type;          // of matrices that nothing else is said of
  std::uint32_t file_type;  // general.file_type

  // The type of the matrix that is number `index` of `count` with this role, before its rows are looked at.
  gguf::Type choose(Role role, std::uint32_t index, std::uint32_t count) const;
};

// By name, in upper or lower case; null: there is none.
const Mix* find_mix(std::string_view name);

// The type of a matrix with rows of `columns` elements: the one wanted, or the one that llama.cpp's quantize takes
// where such rows are not whole blocks. Types with blocks of 32 have nothing to fall back on.
Result<gguf::Type> fit(gguf::Type wanted, Role role, std::uint64_t columns);

}  // namespace quire::synth
