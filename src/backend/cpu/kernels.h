// The inner loops of the CPU backend, as a table of functions per instruction set. The three tables are made from one
// source (kernels.inl) compiled with different flags; each is exact within itself, and tests compare them with each
// other.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quire/gguf/types.h"
#include "quire/state/views.h"

namespace quire::cpu {

// A quantised weight row as integers under scales: element i is scale[i / 16] * q[i] + offset[i / 16].
struct QuantRow {
  std::int8_t* q;
  float* scales;
  float* offsets;
  bool has_offsets;
};

// An activation row quantised to 8 bits: element i is about scale[i / 32] * q[i]; sums[i / 16] are exact sums of q.
struct QuantInput {
  std::int8_t* q;
  float* scales;
  std::int32_t* sums;
};

struct Kernels {
  const char* name;
  // Weights
  bool (*unpack_quant)(gguf::Type type, const std::byte* row, std::uint32_t cols,
                       QuantRow& out);  // false: not such a type
  bool (*unpack_float)(gguf::Type type, const std::byte* row, std::uint32_t cols, float* out);  // likewise
  void (*quantize)(const float* x, std::uint32_t cols, const QuantInput& out);
  float (*dot_quant)(const QuantRow& weight, const QuantInput& x, std::uint32_t cols);
  float (*dot)(const float* a, const float* b, std::uint32_t n);
  // Keys and values
  float (*dot_kv)(ElementType type, const float* q, const std::byte* k, std::uint32_t n);
  void (*add_kv)(ElementType type, float* sum, float weight, const std::byte* v, std::uint32_t n);
  void (*store_kv)(ElementType type, std::byte* to, const float* from, std::uint32_t n);
  // Rows
  float (*sum_of_squares)(const float* x, std::uint32_t n);
  void (*scale_by)(float* x, float factor, std::uint32_t n);
  void (*multiply)(float* out, const float* x, const float* weight, float factor,
                   std::uint32_t n);  // x * factor * weight
  void (*add_scaled)(float* x, const float* y, float factor, std::uint32_t n);
  // state = state * decay + input * b; returns state . c
  float (*recur)(float* state, float decay, float input, const float* b, const float* c, std::uint32_t n);
};

const Kernels& scalar_kernels();
const Kernels* avx2_kernels();  // null where this program was built without them
const Kernels* avx512_kernels();

// The best that this processor has; or the named one ("scalar", "avx2", "avx512"), null if it cannot be had.
const Kernels& best_kernels();
const Kernels* kernels_by_name(const char* name);

}  // namespace quire::cpu
