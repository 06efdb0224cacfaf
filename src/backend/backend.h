// The operations a model needs, over plain views, on a ragged batch: some sequences bring a chunk of a prompt, others
// one token, side by side. The CPU fills this interface; a GPU can fill it without a change to the model, because
// - memory comes from device() and pointers are the device's own,
// - calls are work in order on one stream; results may be looked at after finish(),
// - what a step needs besides activations (tokens, positions, tables, states) is handed over once, in begin().
//
// The rule of exactness: a row of a result depends on the rows of its own sequence and nothing else, to the last bit:
// not on the other rows, on how a prompt was cut into chunks, on block size or layout, on the number of threads.
//
// Who may call: one thread. Shapes are the caller's duty and checked where it costs nothing; nothing here fails.
#pragma once

#include <cstdint>
#include <span>

#include "quire/gguf/types.h"
#include "quire/state/device.h"
#include "quire/state/ids.h"
#include "quire/state/views.h"

namespace quire {

// Activations: rows of floats, a row per token (or per token and head), `stride` floats apart.
struct Rows {
  float* data = nullptr;
  std::uint32_t rows = 0;
  std::uint32_t cols = 0;
  std::uint64_t stride = 0;

  float* row(std::uint32_t i) const { return data + i * stride; }
  Rows columns(std::uint32_t first, std::uint32_t count) const { return {data + first, rows, count, stride}; }
};

// A weight matrix: `rows` outputs of `cols` inputs each, as the model file has it or, where arranged_bytes is not 0, in
// the order that a backend has chosen for itself.
struct Weight {
  gguf::Type type = gguf::Type::F32;
  std::uint32_t rows = 0;
  std::uint32_t cols = 0;
  const std::byte* data = nullptr;
  std::uint64_t row_bytes = 0;       // in the file
  std::uint64_t arranged_bytes = 0;  // of all of it

  bool valid() const { return data != nullptr; }
  std::uint64_t file_bytes() const { return rows * row_bytes; }
  Weight part(std::uint32_t first, std::uint32_t count) const {  // of one as the file has it
    return {type, count, cols, data + first * row_bytes, row_bytes, 0};
  }
};

// What one step works on.
struct Step {
  struct Part {  // the tokens of one sequence
    std::uint32_t first_row = 0;
    std::uint32_t rows = 0;
    std::uint32_t position = 0;  // of its first row
  };
  std::span<const Token> tokens;             // [rows]
  std::span<const std::uint32_t> positions;  // [rows]
  std::span<const Part> parts;
  std::span<const KvView> kv;                  // [groups][parts]: the first layer of the group
  std::span<const std::uint64_t> layer_bytes;  // [groups]: from a layer of a page to the next
  std::span<const StateView> states;           // [parts], of recurrent models

  std::uint32_t rows() const { return static_cast<std::uint32_t>(tokens.size()); }
};

enum class RopePairs : std::uint8_t { Neighbours, Halves };  // (0,1)(2,3)…, or (0,n/2)(1,n/2+1)…
enum class Activation : std::uint8_t { Silu, GeluTanh };

// What a matrix is multiplied with, and what is done to it on the way, so that a step touches each activation once.
struct Input {
  enum class Kind : std::uint8_t {
    Plain,
    Normed,      // x / rms(x) * weight
    Gated,       // act(gate) * x
    GatedNormed  // rms_norm(x * silu(gate)) * weight, over each of `groups` equal parts of a row
  };
  Kind kind = Kind::Plain;
  Rows x;
  Rows gate = {};
  Activation activation = Activation::Silu;
  const float* weight = nullptr;
  float epsilon = 0;
  std::uint32_t groups = 1;

  static Input plain(Rows x) { return {.x = x}; }
  static Input normed(Rows x, const float* weight, float epsilon) {
    return {.kind = Kind::Normed, .x = x, .weight = weight, .epsilon = epsilon};
  }
  static Input gated(Rows gate, Rows up, Activation activation) {
    return {.kind = Kind::Gated, .x = up, .gate = gate, .activation = activation};
  }
};

// One of the matrices that are multiplied with an input:
//   out[i][n] = sum over k of weight[n][k] * input[i][k], plus bias[n] if there is one
// or that times `scale`, added to what is in out.
struct Product {
  Rows out;
  const Weight* weight = nullptr;
  const float* bias = nullptr;
  bool add = false;
  float scale = 1;
};

struct AttentionShape {
  std::uint32_t group = 0;  // of the pool
  std::uint32_t layer = 0;  // of the group
  std::uint32_t heads = 0;
  std::uint32_t kv_heads = 0;
  std::uint32_t head_dim = 0;
  float scale = 1;
  float soft_cap = 0;        // 0: none
  std::uint32_t window = 0;  // positions a token sees, itself included; 0: all
};

// What happens to queries and keys between their products and attention. Null and empty: it does not.
struct HeadChanges {
  const float* q_norm = nullptr;  // [head_dim], applied head by head
  const float* k_norm = nullptr;
  float epsilon = 0;
  Rows cosines = {};  // the first 2 * cosines.cols elements of every head are turned
  Rows sines = {};
  RopePairs pairs = RopePairs::Neighbours;
};

struct Mamba2Shape {
  std::uint32_t layer = 0;  // of the state
  std::uint32_t heads = 0;  // of head_dim channels each
  std::uint32_t head_dim = 0;
  std::uint32_t groups = 0;  // that share B and C
  std::uint32_t state_dim = 0;
  std::uint32_t conv_width = 0;  // taps, the current token included

  std::uint32_t inner() const { return heads * head_dim; }
  std::uint32_t conv_channels() const { return inner() + 2 * groups * state_dim; }
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual Device& device() = 0;
  virtual const char* variant() const = 0;  // e.g. "avx512"

  // Takes scratch memory for steps of up to this size. Nothing is allocated afterwards.
  struct Sizes {
    std::uint32_t rows = 0;    // of a step
    std::uint32_t cols = 0;    // of an input
    std::uint32_t heads = 0;   // of attention
    std::uint32_t groups = 0;  // of the pool
    std::uint32_t recurrent_heads = 0;
  };
  virtual PoolResult<void> prepare(const Sizes& sizes) = 0;
  // How much memory a matrix takes in the order that products want, 0 if they take it as it is in the file; and the
  // work of bringing it there. `to` is the device's, aligned to 64 bytes.
  virtual std::uint64_t arranged_bytes(const Weight& weight) const = 0;
  virtual Weight arrange(const Weight& weight, std::byte* to) = 0;
  virtual void begin(const Step& step) = 0;
  virtual void finish() = 0;

  // out[i] = table[tokens[i]] * scale
  virtual void embed(Rows out, const Weight& table, float scale) = 0;
  // out = x / rms(x) * weight, row by row; x and out may be the same
  virtual void rms_norm(Rows out, Rows x, const float* weight, float epsilon) = 0;
  // All of them have as many rows of output as the input has.
  virtual void matmul(std::span<const Product> products, const Input& input) = 0;
  // Rows named by index are brought together: out[i] = x[indices[i]]
  virtual void gather(Rows out, Rows x, std::span<const std::uint32_t> indices) = 0;
  // x += y * scale
  virtual void add(Rows x, Rows y, float scale) = 0;
  // x = cap * tanh(x / cap), then times scale; a cap of 0 is none
  virtual void cap_and_scale(Rows x, float cap, float scale) = 0;

  // Angles of this step: cos and sin of position * frequency, [rows][dims / 2] each.
  virtual void rope_angles(Rows cosines, Rows sines, std::span<const float> frequencies) = 0;
  // Norms and turns the heads of q and k in place, and writes K and V of the step's rows to the pages (or the
  // contiguous cache) of their sequences.
  virtual void store_kv(const AttentionShape& shape, Rows q, Rows k, Rows v, const HeadChanges& changes) = 0;
  // Each row attends to all positions of its sequence up to its own, as far as its window reaches.
  virtual void attention(Rows out, Rows q, const AttentionShape& shape) = 0;

  // Depth-wise causal convolution with bias and SiLU over the sequence's window, which moves on; in place.
  //   weight [conv_width][channels], bias [channels]
  virtual void mamba2_conv(Rows x, const float* weight, const float* bias, const Mamba2Shape& shape) = 0;
  // The recurrence: x [rows][inner], b and c [rows][groups * state_dim], dt [rows][heads].
  //   step = softplus(dt + dt_bias); state = state * exp(step * a) + step * x * b; out = state . c + d * x
  virtual void mamba2_scan(Rows out, Rows x, Rows b, Rows c, Rows dt, const float* dt_bias, const float* a,
                           const float* d, const Mamba2Shape& shape) = 0;
};

}  // namespace quire
