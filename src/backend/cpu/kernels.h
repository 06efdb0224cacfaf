// The kernels of the CPU backend, as a table of functions per instruction set. Three tables come from one source
// (kernels.inl and what it includes), compiled with different flags. "avx512bf16" is "avx512" with products of BF16
// weights by the instruction for them, and "amx" is "avx512" with products of many rows by tile instructions. Each
// gives exact, repeatable results within itself. Tests compare them with each other.
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
};

// Activations quantised to 8 bits: element i of a row is about scales[i / 32] * q[i]. Products also need sums of q, for
// blocks of 32 and for halves of them: the start value of integer sums (see Kernels::biased), and scale * sum.
struct QuantInput {
  std::int8_t* q;
  float* scales;
  std::int32_t* starts;
  float* sums;
  std::int32_t* half_starts;
  float* half_sums;
};

// A matrix as products take it: in tiles (tiles.h), or row by row as in the file where tile_bytes is 0.
struct WeightTiles {
  gguf::Type type;
  std::uint32_t rows, cols;
  const std::byte* data;
  std::uint64_t tile_bytes;
  std::uint64_t row_bytes;
  std::uint32_t block_cols, block_bytes;  // of its type
  bool prefetch = false;                  // also for one or two rows: the processor's own prefetcher does not keep up
};

// The output of a product: out[i][n] = sum + bias[n], or out[i][n] + (sum + bias[n]) * scale.
struct ProductOut {
  float* data;
  std::uint64_t stride;
  const float* bias;
  bool add;
  float scale;
};

inline constexpr std::uint32_t kMostTiles = 3;        // multiplied at once
inline constexpr std::uint32_t kMostChunkCols = 256;  // columns multiplied at once
struct ProductScratch {                               // of one thread, aligned to 64 bytes
  std::byte* quants;                                  // [kMostTiles][kMostChunkCols][16]
  float* scales;                                      // [kMostChunkCols / 16][kMostTiles][16]
  float* offsets;
  float* sums;  // [rows][kMostTiles][16]
};

inline constexpr std::uint32_t kContextTile = 64;  // positions; a tile begins at a multiple of this
// The context is divided into sections of this many positions, at multiples of it. What a query sees of a section is
// summed up on its own, and the sections are merged in order. So one sequence can be divided among threads along its
// context, and its result does not depend on how.
inline constexpr std::uint32_t kSection = 512;
inline constexpr std::uint32_t kSectionTiles = kSection / kContextTile;
struct ContextTile {
  std::uint32_t position;
  const std::byte* keys[kContextTile];  // all are readable, also those that no query sees
  const std::byte* values[kContextTile];
};

// What the heads of a layer have in common.
struct Heads {
  std::uint32_t dim, value_dim;  // elements of a key and of a value; value_dim is at most dim
  bool latent;                   // values are the beginnings of keys, and ContextTile::values is not used
  float scale, cap;              // of scores
};

// A row and a head that attends to positions [begin, end).
struct Query {
  const float* q;
  float* sum;
  std::uint32_t begin, end;
  float highest;
  float total[16];
};

// One head of a recurrent layer and some tokens of a sequence.
struct Recurrence {
  std::byte* state;  // [head_dim][state_dim]
  ElementType type;  // of the state: F32, F16 or BF16
  std::uint32_t head_dim, state_dim, tokens;
  const float* steps;  // [tokens]; decays too
  const float* decays;
  const float* x;  // [tokens][head_dim]
  const float* b;  // [tokens][state_dim]; c too
  const float* c;
  float* out;  // [tokens][head_dim]
  std::uint64_t step_stride, x_stride, b_stride, c_stride, out_stride;
  float d;
};

// Mamba-1: the channels of a layer and some tokens of a sequence. A lane is a channel.
struct ChannelScan {
  std::byte* state;  // [state_dim][channels]
  ElementType type;  // of the state
  std::uint32_t channels, state_dim, tokens;
  const float* x;  // [tokens][channels]; dt too
  const float* dt;
  const float* b;  // [tokens][state_dim]; c too
  const float* c;
  float* out;  // [tokens][channels]
  std::uint64_t x_stride, dt_stride, b_stride, c_stride, out_stride;
  const float* dt_bias;  // [channels]; d too
  const float* d;
  const float* a;  // [state_dim][channels]
};

// The gated delta rule: one head and some tokens of a sequence. A lane is an element of the head's values.
struct DeltaHead {
  std::byte* state;  // [key_dim][value_dim]
  ElementType type;  // of the state
  std::uint32_t key_dim, value_dim, tokens;
  const float* decays;  // [tokens]; betas too
  const float* betas;
  const float* q;  // [tokens][key_dim], normed; k too
  const float* k;
  const float* v;  // [tokens][value_dim]
  float* out;      // [tokens][value_dim]
  std::uint64_t gate_stride, q_stride, k_stride, v_stride, out_stride;
};

struct Convolution {
  float* x;             // [rows][channels], in place
  const float* factor;  // [rows][channels]; null: none
  std::uint64_t stride, factor_stride;
  std::uint32_t rows, channels, taps;
  const float* weight;  // [taps][channels]
  const float* bias;    // null: none
  float* window;        // [taps - 1][channels]
  bool silu;
};
inline constexpr std::uint32_t kMostTaps = 256;

// The rows of a step that an adapter is added to.
struct LowRankRows {
  const float* x;  // [rows of the step][cols]
  std::uint64_t x_stride;
  float* t;  // [rows of the step][rank, rounded up to 16]
  std::uint64_t t_stride;
  const std::uint32_t* rows;  // [count]
  std::uint32_t count;
};

struct Kernels {
  const char* name;
  // If true, 128 is added to each signed weight, and integer sums begin at -128 times the sum of the input.
  bool biased;
  // Unpacks a row as it is in the file. False if the type is not quantised or comes in tiles.
  bool (*unpack_quant)(gguf::Type type, const std::byte* row, std::uint32_t cols, const QuantRow& out);
  void (*quantize)(const float* x, std::uint32_t cols, const QuantInput& out);
  // Products of some rows of an input with tiles [begin, end) of a matrix. The rows are `stride` columns apart.
  void (*multiply_quant)(const WeightTiles& weight, std::uint32_t begin, std::uint32_t end, const QuantInput& x,
                         std::uint64_t stride, std::uint32_t rows, const ProductOut& out,
                         const ProductScratch& scratch);
  void (*multiply_float)(const WeightTiles& weight, std::uint32_t begin, std::uint32_t end, const float* x,
                         std::uint64_t stride, std::uint32_t rows, const ProductOut& out,
                         const ProductScratch& scratch);
  // BF16 (bf16_products.inl has the arithmetic). Inputs are rounded first: to the nearest, ties to even. Rows have an
  // even number of elements: after an odd number comes a zero.
  void (*round_to_bf16)(const float* x, std::uint32_t cols, std::uint16_t* out);
  void (*multiply_bf16)(const WeightTiles& weight, std::uint32_t begin, std::uint32_t end, const std::uint16_t* x,
                        std::uint64_t stride, std::uint32_t rows, const ProductOut& out, const ProductScratch& scratch);
  // Keys and values
  // `next` is prefetched; it may be null.
  void (*attend)(const ContextTile& tile, const ContextTile* next, ElementType type, Query* queries,
                 std::uint32_t count, const Heads& heads);
  // Adds what a query saw of the next section to what it saw of those before.
  void (*merge)(Query& into, const Query& part, std::uint32_t dim);
  // Divides by the sum of the weights. sinks: null, or one score per head (query i has that at i % per_head) that
  // counts in the sum like a position without a value.
  void (*end_attention)(Query* queries, std::uint32_t count, std::uint32_t dim, const float* sinks,
                        std::uint32_t per_head);
  void (*store_kv)(ElementType type, std::byte* to, const float* from, std::uint32_t n);
  // Rows
  void (*rms_norm)(float* out, const float* x, const float* weight, float epsilon, std::uint32_t n);
  // `bias` may be null. x and out may be the same.
  void (*layer_norm)(float* out, const float* x, const float* weight, const float* bias, float epsilon,
                     std::uint32_t n);
  void (*scale_by)(float* x, float factor, std::uint32_t n);
  void (*add_scaled)(float* x, const float* y, float factor, std::uint32_t n);
  void (*gate_silu)(float* out, const float* gate, const float* up, std::uint32_t n);
  void (*gate_gelu)(float* out, const float* gate, const float* up, std::uint32_t n);
  void (*gate_sigmoid)(float* out, const float* gate, const float* up, std::uint32_t n);
  void (*multiply)(float* out, const float* a, const float* b, std::uint32_t n);
  void (*gate_clamped)(float* out, const float* gate, const float* up, std::uint32_t n);
  void (*activate_silu)(float* out, const float* x, std::uint32_t n);
  void (*activate_gelu)(float* out, const float* x, std::uint32_t n);
  void (*soft_cap)(float* x, float cap, std::uint32_t n);
  void (*rotate)(float* x, const float* cosines, const float* sines, std::uint32_t pairs, bool neighbours);
  // Recurrent layers: steps = softplus(dt + bias), decays = exp(steps * a), for all heads of a row.
  void (*discretize)(float* steps, float* decays, const float* dt, const float* bias, const float* a,
                     std::uint32_t heads);
  // The state is rounded to its type after every token, so that no bit depends on how many tokens a call has.
  void (*recur)(const Recurrence& head);
  void (*convolve)(const Convolution& layer, std::uint32_t channel, std::uint32_t count);       // at most 16 channels
  void (*scan_channels)(const ChannelScan& layer, std::uint32_t channel, std::uint32_t count);  // at most 16
  // x = x * scale / sqrt(x . x + epsilon)
  void (*normalize)(float* x, float scale, float epsilon, std::uint32_t n);
  // betas = sigmoid(beta), decays = exp(a * softplus(alpha + bias)), for some heads of a row.
  void (*delta_gates)(float* betas, float* decays, const float* beta, const float* alpha, const float* bias,
                      const float* a, std::uint32_t heads);
  void (*delta_rule)(const DeltaHead& head, std::uint32_t first, std::uint32_t count);  // at most 16 elements of values
  // Adapters, in the layout of low_rank.inl: t = A x, and out += factor * (B t) for tiles [begin, end) of B.
  void (*low_rank_a)(const float* a, std::uint32_t rank, std::uint32_t cols, const LowRankRows& rows);
  void (*low_rank_b)(const float* b, std::uint32_t rank, std::uint32_t outs, std::uint32_t begin, std::uint32_t end,
                     const LowRankRows& rows, float* out, std::uint64_t out_stride, float factor);
};

const Kernels& scalar_kernels();
const Kernels* avx2_kernels();  // null if this program was built without them
const Kernels* avx512_kernels();
const Kernels* avx512bf16_kernels();
const Kernels* amx_kernels();
// For tests: "avx512" with the code of "amx" and its tile instructions in plain code.
const Kernels* emulated_amx_kernels();

// From the plainest to the best.
inline constexpr const char* kVariants[] = {"scalar", "avx2", "avx512", "avx512bf16", "amx"};

// The best table for this processor, or the named one. Null if the processor, its operating system or the program does
// not have it. The first question about "amx" asks the operating system for the permission to use tiles.
const Kernels& best_kernels();
const Kernels* kernels_by_name(const char* name);

}  // namespace quire::cpu
