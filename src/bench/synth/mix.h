// Decides the type of each matrix of a file. A plain type ("Q4_0") is the type of all matrices except the output. A mix
// ("Q4_K_M") gives some matrices a larger type. Both follow llama.cpp's quantize without an importance matrix, with two
// exceptions: its Q2_K, IQ4_NL and IQ4_XS are mixes, but here they are plain types, so that exactly that type is
// measured. And it gives larger types to the attention of models with exactly eight experts, of which no shape has a
// name here.
#pragma once

#include <cstdint>
#include <string_view>

#include "quire/base/error.h"
#include "quire/gguf/types.h"

namespace quire::synth {

// The role of a matrix, as far as its type depends on it.
enum class Role : std::uint8_t { output, attention_value, attention_output, feed_forward_down, other };

struct Mix {
  std::string_view name;
  gguf::Type type;          // of matrices without a special rule
  std::uint32_t file_type;  // general.file_type

  // The type of matrix number `index` of `count` with this role. `stacked`: a tensor of several matrices, one for each
  // expert or head. It does not consider the row length.
  gguf::Type choose(Role role, std::uint32_t index, std::uint32_t count, bool stacked = false) const;
};

// By name, in upper or lower case. Null: unknown.
const Mix* find_mix(std::string_view name);

// The type of a matrix with rows of `columns` elements: the wanted type, or if such rows are not whole blocks, the
// fallback of llama.cpp's quantize. Types with blocks of 32 have no fallback.
Result<gguf::Type> fit(gguf::Type wanted, Role role, std::uint64_t columns);

}  // namespace quire::synth
