// The most that a machine could reach with a model, so that a measured rate can be given as a share of it. The limit
// follows from the work that a phase cannot avoid:
// - It reads the weight matrices once, at their size in the file; of the experts only those that some token chose. It
//   reads the keys and values that its tokens attend to. It reads and writes the recurrent states of its sequences.
// - It multiplies every token by the matrices of the layers, and by the output matrix if its logits are wanted. That is
//   two operations per element: on bytes if the matrix is quantised, on BF16 if it is that, otherwise on floats.
// Everything else (embedding lookup, norms, the arithmetic of attention and of recurrences) counts as free.
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

// The cost of a model's tokens, from its file.
struct ModelCost {
  struct Matrices {
    std::uint64_t bytes = 0;
    std::uint64_t int8_elements = 0;  // of quantised matrices
    std::uint64_t bf16_elements = 0;
    std::uint64_t f32_elements = 0;  // of the others
  };
  struct Attention {
    std::uint64_t bytes_per_token = 0;  // of keys and values, in all layers with this window
    std::uint32_t window = 0;           // 0: all tokens
  };
  Matrices layers, output;
  Matrices experts;         // all of them
  double expert_share = 1;  // that a token uses
  std::vector<Attention> attention;
  std::uint64_t state_bytes = 0;  // recurrent state of a sequence
};
ModelCost cost_of(const gguf::File& file, const StateLayout& layout);

// A step, or a whole prompt. The numbers are averages, so they are floating-point.
struct Phase {
  double tokens = 0;     // tokens that go through the layers
  double logits = 0;     // tokens whose logits are wanted
  double sequences = 1;  // sequences that the tokens belong to
  double context = 0;    // tokens that each sequence attends to
  double shared = 0;     // length of the prefix that all sequences share: read once
};
struct Work {
  double tokens = 0;
  double bytes = 0;     // read or written
  double int8_ops = 0;  // operations
  double f32_ops = 0;
  double bf16_ops = 0;
};
Work work_of(const ModelCost& cost, const Phase& phase);
// The bytes of keys and values alone.
double kv_bytes(const ModelCost& cost, double context);

enum class Bound : std::uint8_t { read, int8, f32, bf16 };
std::string_view name(Bound bound);

// In tokens per second.
struct Limit {
  double tokens_per_second = 0;  // the smaller of `read` and `compute`
  Bound bound = Bound::read;     // what sets it
  double read = 0;               // the limit of memory alone
  double compute = 0;            // the limit of multiplying alone; infinite without multiplications
};
// The kind of operations that takes longest.
Bound longest(const Work& work, const MachineLimits& machine);
Limit limit_of(const Work& work, const MachineLimits& machine);

}  // namespace quire::bench
