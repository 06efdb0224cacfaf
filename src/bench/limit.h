// What a machine could reach at most with a model, so that what was reached can be told as a share of it. The limit
// follows from what a phase cannot do without:
// - it reads the matrices that it multiplies by, once and at their size in the file; the keys and values that its
//   tokens look at; and it reads and writes the recurrent states of its sequences;
// - it multiplies every token by the matrices of the layers, and those whose logits are wanted by the output matrix:
//   two operations for each element, on bytes where the matrix is quantised, on floats where it is not.
// Everything else (looking up embeddings, norms, the arithmetic of attention and of recurrences) counts as free.
//
//   const ModelCost cost = cost_of(model.file(), pool.layout());
//   const Limit limit = limit_of(work_of(cost, {.tokens = 1, .logits = 1, .context = 64}), machine);
//
// Who may call: anyone, from any thread; there is no state and nothing fails.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "quire/bench/machine_limits.h"
#include "quire/gguf/gguf.h"
#include "quire/state/layout.h"

namespace quire::bench {

// What a model's file says of what its tokens cost.
struct ModelCost {
  struct Matrices {
    std::uint64_t bytes = 0;
    std::uint64_t int8_elements = 0;  // of quantised matrices
    std::uint64_t f32_elements = 0;   // of the others
  };
  struct Attention {
    std::uint64_t bytes_per_token = 0;  // of keys and values, in all layers with this window
    std::uint32_t window = 0;           // 0: all tokens
  };
  Matrices layers, output;
  std::vector<Attention> attention;
  std::uint64_t state_bytes = 0;  // of a sequence
};
ModelCost cost_of(const gguf::File& file, const StateLayout& layout);

// A step, or a whole prompt. Averages need not be whole.
struct Phase {
  double tokens = 0;     // that go through the layers
  double logits = 0;     // of them, whose logits are wanted
  double sequences = 1;  // that they belong to
  double context = 0;    // tokens that each sequence looks at
  double shared = 0;     // of them, those at the beginning that all sequences have in common: read once
};
struct Work {
  double tokens = 0;
  double bytes = 0;     // read, or written
  double int8_ops = 0;  // operations
  double f32_ops = 0;
};
Work work_of(const ModelCost& cost, const Phase& phase);
// The bytes of keys and values alone.
double kv_bytes(const ModelCost& cost, double context);

enum class Bound : std::uint8_t { read, int8, f32 };
std::string_view name(Bound bound);

// In tokens a second.
struct Limit {
  double tokens_per_second = 0;  // the smaller of both
  Bound bound = Bound::read;     // which it is
  double read = 0;               // if only memory were slow
  double compute = 0;            // if only multiplying were slow; infinite where nothing is multiplied
};
Limit limit_of(const Work& work, const MachineLimits& machine);

}  // namespace quire::bench
