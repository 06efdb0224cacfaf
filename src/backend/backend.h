// The operations that a model needs, over plain views, on one batch. In a batch some sequences bring a chunk of a
// prompt (prefill) and others one token (decode). There is one implementation per kind of device. The conformance suite
// (conformance_testing.h) tests what every one of them must do.
//
// Order and errors
// - Operations go to one stream. They run in the order of the calls and may still be running when a call returns.
//   read() and sample() ask for what the host wants to see; the host may look at it after finish().
// - An operation by itself does not fail. An error is reported once, by finish(). The step is void then, and nothing of
//   it may be committed.
// - device() uses the same stream: its copies are in order with the operations.
// - begin() takes the batch over: everything in it belongs to the backend until finish().
//
// The rule of exactness: a row of a result depends on the rows of its own sequence and on nothing else, to the last
// bit. It does not depend on the other rows, on how a prompt was cut into chunks, on block size or layout, or on the
// number of threads.
//
// Who may call: one thread. The caller must pass the right shapes; they are checked where a check costs nothing.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "quire/backend/sampling_job.h"
#include "quire/backend/tensor.h"
#include "quire/gguf/types.h"
#include "quire/state/batch.h"
#include "quire/state/device.h"

namespace quire {

// A matrix as it is in the model file, in host memory: `rows` outputs of `cols` inputs each.
struct FileMatrix {
  gguf::Type type = gguf::Type::F32;
  std::uint32_t rows = 0;
  std::uint32_t cols = 0;
  const std::byte* data = nullptr;
  std::uint64_t row_bytes = 0;

  std::uint64_t bytes() const { return rows * row_bytes; }
  FileMatrix part(std::uint32_t first, std::uint32_t count) const {
    return {type, count, cols, data + first * row_bytes, row_bytes};
  }
};

struct LowRank;

// The same matrix on the device, in the layout that the backend has chosen. Only that backend knows what `data` is.
struct Weight {
  gguf::Type type = gguf::Type::F32;
  std::uint32_t rows = 0;
  std::uint32_t cols = 0;
  const std::byte* data = nullptr;
  std::uint64_t unit_bytes = 0;  // of a row, or of what the backend's layout has instead of rows
  bool arranged = false;         // in the backend's layout; else row by row as in the file
  // WeightUse::Both: the rows as in the file, for lookups. Null: `data` can be looked up.
  const std::byte* table = nullptr;
  // The matrices of a layer's experts are a stack: `count` matrices of this shape, `stride` bytes apart.
  std::uint32_t count = 1;
  std::uint64_t stride = 0;
  // What adapters add where this matrix is multiplied or looked up: adapters[i] is that of adapter i + 1. Null:
  // nothing.
  const LowRank* adapters = nullptr;

  friend bool operator==(const Weight&, const Weight&) = default;
  bool valid() const { return data != nullptr; }
  Weight at(std::uint32_t i) const {  // matrix i of a stack
    Weight one = *this;
    one.data += i * stride;
    one.count = 1;
    one.stride = 0;
    return one;
  }
};

// An adapter of a matrix W (LoRA). The rows of sequences that have the adapter (BatchEntry::adapter) get
//   out = W x + scale * B (A x)
// and the sum is never formed with W: other rows of the same step are computed with W alone. Where W is looked up and
// not multiplied, A has a row for each row of W, and row i gives W[i] + scale * B A[i].
//
// Everything is f32, whatever the types in the file: t = A x, u = B t, then out + (scale * product's scale) * u. The
// order of both sums follows from the shapes of A and B alone. The input is the one that W is multiplied with, before
// it is quantised. Backends say more of their order; on a CPU it is the same in all variants of the kernels.
struct LowRank {
  // [rank][columns of W]; looked up: [rows of W][rank], loaded for WeightUse::Lookup. A stack where W is one.
  Weight a;
  Weight b;  // [rows of W][rank]
  float scale = 1;

  bool valid() const { return a.valid(); }  // not valid: the adapter leaves this matrix as it is
};

// What a matrix is used for.
enum class WeightUse : std::uint8_t {
  Product,  // multiplied
  Lookup,   // rows are looked up by token or position
  Both,     // multiplied and looked up: the table of a model with tied embeddings
  Heads,    // multiplied by matmul_heads()
  LowRank,  // A or B of an adapter (LowRank); of any type that can be dequantised, and becomes f32
};

// Rows in host memory.
struct HostRows {
  const float* data = nullptr;
  std::uint32_t rows = 0;
  std::uint32_t cols = 0;
  std::uint64_t stride = 0;

  std::span<const float> row(std::uint32_t i) const { return {data + i * stride, cols}; }
};

enum class RopePairs : std::uint8_t { Neighbours, Halves };  // (0,1)(2,3)…, or (0,n/2)(1,n/2+1)…
enum class Activation : std::uint8_t {
  Silu,
  GeluTanh,
  // gpt-oss: g * sigmoid(1.702 g) * (u + 1), with the gate g at most 7 and u between -7 and 7
  ClampedSwiglu,
  Sigmoid,
  None,
};

// The input of a matrix product, and the operation that is applied to it first. The two are fused, so that a step
// touches each activation once.
struct Input {
  enum class Kind : std::uint8_t {
    Plain,
    Normed,       // x / rms(x) * weight
    Gated,        // act(gate) * x
    GatedNormed,  // rms_norm(x * silu(gate)) * weight, over each of `groups` equal parts of a row
    NormedGated,  // silu(gate) * (rms_norm(x) * weight), over the same parts
    LayerNormed,  // (x - mean(x)) / sqrt(variance(x) + epsilon) * weight + bias
    Activated     // act(x); Silu or GeluTanh
  };
  Kind kind = Kind::Plain;
  Tensor x;
  Tensor gate = {};
  Activation activation = Activation::Silu;
  Tensor weight = {};  // [cols]
  float epsilon = 0;
  std::uint32_t groups = 1;
  Tensor bias = {};  // [cols], or none; LayerNormed

  friend bool operator==(const Input&, const Input&) = default;
  static Input plain(Tensor x) { return {.x = x}; }
  static Input normed(Tensor x, Tensor weight, float epsilon) {
    return {.kind = Kind::Normed, .x = x, .weight = weight, .epsilon = epsilon};
  }
  static Input gated(Tensor gate, Tensor up, Activation activation) {
    return {.kind = Kind::Gated, .x = up, .gate = gate, .activation = activation};
  }
  static Input layer_normed(Tensor x, Tensor weight, Tensor bias, float epsilon) {
    return {.kind = Kind::LayerNormed, .x = x, .weight = weight, .epsilon = epsilon, .bias = bias};
  }
  static Input activated(Tensor x, Activation activation) {
    return {.kind = Kind::Activated, .x = x, .activation = activation};
  }
};

// One of the matrices that an input is multiplied with:
//   out[i][n] = sum over k of weight[n][k] * input[i][k], plus bias[n] if there is one
// With `add`, that result times `scale` is added to `out`.
struct Product {
  Tensor out;
  const Weight* weight = nullptr;
  Tensor bias = {};  // [weight.rows]
  bool add = false;
  float scale = 1;
  friend bool operator==(const Product&, const Product&) = default;
};

// How a router chooses the experts of a row. It has one logit per expert; everything is computed in f32.
//
//   score      softmax over all logits, or the sigmoid of each logit, or the logit itself (ChosenSoftmax)
//   choice     the `used` experts with the highest score + selection bias, best first; equal ones: the lower number
//   weight     the score without the bias; ChosenSoftmax: the softmax over the logits of the chosen experts
//
// With several groups of experts, only those in the best `groups_used` groups can be chosen. A group is as good as its
// best expert, or with sigmoids as the sum of its two best ones (DeepSeek V3).
struct Router {
  enum class Scores : std::uint8_t { Softmax, Sigmoid, ChosenSoftmax };
  Scores scores = Scores::Softmax;
  std::uint32_t experts = 0;      // to choose from
  std::uint32_t used = 0;         // chosen for a row
  std::uint32_t groups = 1;       // of equal size; they divide the experts in their order
  std::uint32_t groups_used = 1;  // these have `used` experts at least
  bool normed = false;            // weights are divided by their sum, which counts as kLeastSum at least
  float scale = 1;                // weights are multiplied by this
  static constexpr float kLeastSum = 0x1p-14f;
  static constexpr std::uint32_t kMostGroups = 64;

  friend bool operator==(const Router&, const Router&) = default;
};

// The experts of each row of a step, best first.
struct Choices {
  Tensor numbers;  // [rows][used]: of the experts, as floats
  Tensor weights;  // [rows][used]
  friend bool operator==(const Choices&, const Choices&) = default;
};

// The feed-forward parts that rows are divided among. Each product has a stack of matrices, one per expert. A bias is
// [experts][rows of the matrix].
//   gate, up   [inner][width]; their outputs are scratch memory, [rows * used][inner] without gaps
//   down       [width][inner]; out is [rows][width]
struct ExpertLayer {
  Product gate, up, down;
  Activation activation = Activation::Silu;
};

struct AttentionShape {
  std::uint32_t group = 0;  // of the pool
  std::uint32_t layer = 0;  // of the group
  std::uint32_t heads = 0;
  std::uint32_t kv_heads = 0;
  std::uint32_t head_dim = 0;
  // Not 0: latent attention. The value of a position is the first value_dim elements of its key. Pages have one plane
  // (PageShape::planes), and store_kv() takes no values.
  std::uint32_t value_dim = 0;
  float scale = 1;
  float soft_cap = 0;        // 0: none
  std::uint32_t window = 0;  // positions that a token sees, itself included; 0: all
  // [heads], or none. Attention sinks: a score per head that takes part in the softmax like one more position, whose
  // value is zero. It is neither scaled nor capped.
  Tensor sinks = {};
  friend bool operator==(const AttentionShape&, const AttentionShape&) = default;
  bool latent() const { return value_dim != 0; }
  std::uint32_t value_length() const { return latent() ? value_dim : head_dim; }
};

// Norms, rotation and factors of the heads of queries and keys, after their projections. One without a valid tensor is
// left out.
struct HeadChanges {
  // RMS norms: [head_dim], applied head by head; or [heads * head_dim] (keys: [kv_heads * head_dim]), over all heads of
  // a row at once.
  Tensor q_norm = {};
  Tensor k_norm = {};
  float epsilon = 0;
  Tensor cosines = {};  // 2 * cosines.cols elements of every head are rotated, from `rotated_from` on
  Tensor sines = {};
  std::uint32_t rotated_from = 0;
  RopePairs pairs = RopePairs::Neighbours;
  // If the pool keeps keys as Q8_0: after the rotation, keys are divided by these factors, and the queries that a KV
  // head serves are multiplied by its factors. That leaves scores as they are. Powers of two, so nothing is rounded.
  // Not used with any other type.
  Tensor key_balance = {};  // [kv_heads * head_dim]
  friend bool operator==(const HeadChanges&, const HeadChanges&) = default;
};

// A product for each head of a row, with a matrix of its own:
//   out[i][h][n] = sum over k of weight[h][n][k] * x[i][h][k]
// Heads of x and of out are next to each other. A head of x may have more elements than the matrix has columns. They
// are copied behind the head's outputs.
struct HeadProducts {
  Tensor out;                      // [rows][heads * (weight.rows + copied)]
  Tensor x;                        // [rows][heads * (weight.cols + copied)]
  const Weight* weight = nullptr;  // a stack with a matrix for each head, loaded for WeightUse::Heads

  std::uint32_t copied() const { return x.cols / weight->count - weight->cols; }
};

// A depth-wise causal convolution over the tokens of a sequence.
struct ConvolutionShape {
  std::uint32_t layer = 0;  // index among the recurrent layers
  std::uint32_t channels = 0;
  std::uint32_t width = 0;  // taps, the current token included
  bool silu = true;         // of the result
  friend bool operator==(const ConvolutionShape&, const ConvolutionShape&) = default;
};

struct Mamba1Shape {
  std::uint32_t layer = 0;  // index among the recurrent layers
  std::uint32_t channels = 0;
  std::uint32_t state_dim = 0;  // of each channel
  friend bool operator==(const Mamba1Shape&, const Mamba1Shape&) = default;
};

struct Mamba2Shape {
  std::uint32_t layer = 0;  // index among the recurrent layers
  std::uint32_t heads = 0;  // of head_dim channels each
  std::uint32_t head_dim = 0;
  std::uint32_t groups = 0;  // of heads; a group shares B and C
  std::uint32_t state_dim = 0;
  std::uint32_t conv_width = 0;  // taps, the current token included

  friend bool operator==(const Mamba2Shape&, const Mamba2Shape&) = default;
  std::uint32_t inner() const { return heads * head_dim; }
  std::uint32_t conv_channels() const { return inner() + 2 * groups * state_dim; }
  ConvolutionShape convolution() const { return {layer, conv_channels(), conv_width}; }
};

// The gated delta rule. Several heads of values may share a head of queries and keys.
struct DeltaShape {
  std::uint32_t layer = 0;  // index among the recurrent layers
  std::uint32_t heads = 0;  // of values
  std::uint32_t key_heads = 0;
  std::uint32_t key_dim = 0;    // of a head
  std::uint32_t value_dim = 0;  // of a head
  // Head h has key head h % key_heads. False: neighbouring heads share one.
  bool tiled = false;
  // Column of head h in alpha and beta: h / gate_run * gate_step + h % gate_run
  std::uint32_t gate_run = 0;
  std::uint32_t gate_step = 0;
  float epsilon = 0;  // of the norms of queries and keys

  friend bool operator==(const DeltaShape&, const DeltaShape&) = default;
  std::uint32_t inner() const { return heads * value_dim; }
  std::uint32_t keys() const { return key_heads * key_dim; }
  std::uint32_t key_head(std::uint32_t head) const { return tiled ? head % key_heads : head / (heads / key_heads); }
  std::uint32_t gate_column(std::uint32_t head) const { return head / gate_run * gate_step + head % gate_run; }
};

// For people: what runs the model.
struct BackendFacts {
  std::string device;         // as --device names it: "cpu"
  std::string variant;        // of its kernels: "avx512"
  std::uint32_t threads = 0;  // host threads that compute; 0: none
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual Device& device() = 0;
  virtual BackendFacts facts() const = 0;

  // Whether the KV cache can hold this type.
  virtual bool stores(ElementType kv_type) const = 0;
  // Whether recurrent (SSM) states can have this type.
  virtual bool stores_state(ElementType type) const = 0;

  // Allocates scratch memory for steps of up to this size. Nothing is allocated afterwards.
  struct Sizes {
    std::uint32_t rows = 0;            // of a step
    std::uint32_t cols = 0;            // of an input
    std::uint32_t heads = 0;           // of attention
    std::uint32_t attention_cols = 0;  // of all heads
    std::uint32_t groups = 0;          // of the pool
    std::uint32_t recurrent_heads = 0;
    std::uint32_t experts = 0;       // of a layer
    std::uint32_t experts_used = 0;  // by a row
    std::uint32_t expert_inner = 0;  // columns between gate and down
    std::uint32_t expert_width = 0;  // of an expert's input and output
    std::uint32_t rank = 0;          // of adapters, the largest; 0: there are none
    std::uint64_t read = 0;          // elements that the host reads
    sampling::Limits sampling;       // of sample()
  };
  virtual PoolResult<void> prepare(const Sizes& sizes) = 0;

  // How much device memory a matrix takes in this backend's layout. 0: it is used in place, in the mapped file. That is
  // possible where device memory is host memory.
  virtual std::uint64_t weight_bytes(const FileMatrix& matrix, WeightUse use) const = 0;
  // Copies a matrix there. `to` is device memory, weight_bytes() long and aligned to 64 bytes.
  virtual PoolResult<Weight> load(const FileMatrix& matrix, WeightUse use, std::byte* to) = 0;

  // A step: begin(), operations, read() and sample(), finish().
  virtual void begin(const Batch& batch) = 0;
  // Asks for rows that the host wants to see. They are valid after finish() and until the next begin(). No later
  // operation of this step may write to them.
  virtual HostRows read(Tensor x) = 0;
  // The same for some rows, in ascending order. The other rows of the result must not be looked at.
  virtual HostRows read_rows(Tensor x, std::span<const std::uint32_t> rows) = 0;
  // Picks a token from a row of logits for each job. The answers are in the order of the jobs, valid after finish() and
  // until the next begin(). They do not depend on the device: the same logits give the same answer, to the last bit.
  // At most once in a step, within Sizes::sampling. What the jobs point to must stay until finish(), and no later
  // operation of this step may write to the logits. `masks`: the words of the masks are complete only after its wait().
  // Null: they are complete now.
  virtual std::span<const sampling::Picked> sample(Tensor logits, std::span<const sampling::Job> jobs,
                                                   sampling::MaskGate* masks) = 0;
  std::span<const sampling::Picked> sample(Tensor logits, std::span<const sampling::Job> jobs) {
    return sample(logits, jobs, nullptr);
  }
  // Waits for all work since begin(), and reports the error if any of it failed.
  virtual PoolResult<void> finish() = 0;

  // out[i] = table[tokens[i]] * scale
  virtual void embed(Tensor out, const Weight& table, float scale) = 0;
  // x[i] += table[positions[i]]. The positions of the step must be rows of the table.
  virtual void add_positions(Tensor x, const Weight& table) = 0;
  // out = x / rms(x) * weight, row by row; x and out may be the same
  virtual void rms_norm(Tensor out, Tensor x, Tensor weight, float epsilon) = 0;
  // out = (x - mean(x)) / sqrt(variance(x) + epsilon) * weight + bias, row by row; x and out may be the same, and the
  // bias may be left out. The variance is the mean of (x - mean(x))^2.
  virtual void layer_norm(Tensor out, Tensor x, Tensor weight, Tensor bias, float epsilon) = 0;
  // Multiplies one input with several matrices. Each output has as many rows as the input. Where a matrix has adapters,
  // the input has a row for each row of the batch, or for each row that the batch wants: so a row's adapter is known.
  // They are added here, in experts() and in embed(). matmul_heads() and add_positions() know none.
  virtual void matmul(std::span<const Product> products, const Input& input) = 0;
  // The products of all heads in one operation.
  virtual void matmul_heads(const HeadProducts& products) = 0;
  // Chooses experts for each row. logits [rows][experts]; selection_bias [experts] or none.
  virtual void route(const Choices& choices, Tensor logits, Tensor selection_bias, const Router& router) = 0;
  // out[i] = sum over ranks k of weight[i][k] * down_e(activation(gate_e(input[i]), up_e(input[i]))), e = number[i][k]
  // The sum is in the order of the ranks, beginning with the best. With down.add, it is added as matmul() does. Only
  // experts that some row has chosen are computed. A row's result does not depend on what other rows chose.
  virtual void experts(const ExpertLayer& layer, const Input& input, const Choices& choices) = 0;
  // The rows whose logits the batch wants: out[i] = x[wanted[i]]
  virtual void gather_wanted(Tensor out, Tensor x) = 0;
  // x += y * scale
  virtual void add(Tensor x, Tensor y, float scale) = 0;
  // x = cap * tanh(x / cap), then times scale; a cap of 0 is none
  virtual void cap_and_scale(Tensor x, float cap, float scale) = 0;

  // The rotary angles of this step: cos and sin of position * frequency, times magnitude; [rows][frequencies.cols]
  // each.
  virtual void rope_angles(Tensor cosines, Tensor sines, Tensor frequencies, float magnitude) = 0;
  // Applies norms, rotation and factors to the heads of q and k in place, and writes K and V of the step's rows to the
  // pages of their sequences. In latent attention v is not valid, and K alone is written.
  virtual void store_kv(const AttentionShape& shape, Tensor q, Tensor k, Tensor v, const HeadChanges& changes) = 0;
  // Each row attends to all positions of its sequence up to its own, as far back as its window reaches.
  //   q [rows][heads * head_dim], out [rows][heads * value_length()]
  virtual void attention(Tensor out, Tensor q, const AttentionShape& shape) = 0;

  // The columns of `both` are 2 * head_dim for each head: its query, then its gate. They go to `q` and `gate`.
  virtual void split_query_gate(Tensor q, Tensor gate, Tensor both, std::uint32_t head_dim) = 0;

  // Depth-wise causal convolution in place. It continues from the sequence's convolution state, which is the last
  // width - 1 inputs, and updates that state.
  //   in = x * factor (x without a factor);  x = act(bias + sum over t of weight[t] * in[t taps back])
  //   factor [rows][channels] or none, weight [width][channels], bias [channels] or none; act is SiLU or nothing
  // The sum begins with the bias and goes from the oldest input to the newest.
  virtual void convolve(Tensor x, Tensor factor, Tensor weight, Tensor bias, const ConvolutionShape& shape) = 0;

  // How all recurrences below keep their states: `next` becomes the state of the next token. If the state is f16 or
  // bf16, it is rounded to nearest, ties to even, after every token, also within a chunk. An f16 is clamped to +-65504.
  // A bf16 that is too large becomes infinite. A NaN stays a NaN. Outputs are computed from what is not rounded yet.
  // The order of every sum follows from the shape alone.

  // Mamba-1, channel by channel: x and dt [rows][channels], b and c [rows][state_dim]; dt_bias and d [channels],
  // a [state_dim][channels].
  //   step = softplus(dt + dt_bias); next[n] = state[n] * exp(step * a[n]) + step * x * b[n];
  //   out = next . c + d * x
  virtual void mamba1_scan(Tensor out, Tensor x, Tensor b, Tensor c, Tensor dt, Tensor dt_bias, Tensor a, Tensor d,
                           const Mamba1Shape& shape) = 0;
  // Mamba-2: x [rows][inner], b and c [rows][groups * state_dim], dt [rows][heads]; dt_bias, a, d [heads].
  //   step = softplus(dt + dt_bias); next = state * exp(step * a) + step * x * b; out = next . c + d * x
  virtual void mamba2_scan(Tensor out, Tensor x, Tensor b, Tensor c, Tensor dt, Tensor dt_bias, Tensor a, Tensor d,
                           const Mamba2Shape& shape) = 0;
  // The gated delta rule: q and k [rows][keys], v [rows][inner], alpha and beta [rows][gate columns]; dt_bias and
  // a [heads]. For each head, with a state of [key_dim][value_dim]:
  //   q = q / sqrt(q . q + epsilon) / sqrt(key_dim); k = k / sqrt(k . k + epsilon)
  //   decay = exp(a * softplus(alpha + dt_bias)); read = decay * (k . state); delta = (v - read) * sigmoid(beta)
  //   next[n] = state[n] * decay + k[n] * delta; out = q . next
  // q and k are overwritten.
  virtual void delta_rule(Tensor out, Tensor q, Tensor k, Tensor v, Tensor alpha, Tensor beta, Tensor dt_bias, Tensor a,
                          const DeltaShape& shape) = 0;
};

}  // namespace quire
