// The gated delta rule, token by token with the state in registers. Four lanes share an element of a head's values:
// lane p has the elements 16 j + 4 p + i of the key (i below 4), so that lanes read shared memory side by side. A sum
// over a key: a lane has four sums, one for each i, in the order of j; they are added as (0 + 1) + (2 + 3), then lanes
// in pairs 1 and 2 apart. A block has 32 elements of one head of one sequence and walks its tokens in tiles.
#include "quire/backend/cuda/overlap.cuh"
#include "quire/backend/cuda/recurrent_kernels.h"
#include "quire/backend/cuda/recurrent_scan.cuh"
#include "quire/backend/cuda/row_kernels.h"

namespace quire::cuda {
namespace {

constexpr unsigned kAllLanes = ~0u;
constexpr std::uint32_t kValues = 32;  // of a block
constexpr std::uint32_t kShare = 4;    // lanes of a value
constexpr std::uint32_t kThreads = kValues * kShare;
constexpr std::uint32_t kTile = 8;  // tokens

struct DeltaRule {
  float *out, *q, *k;
  const float *v, *alpha, *beta;
  std::uint64_t out_stride, q_stride, k_stride, v_stride, alpha_stride, beta_stride;
  const float *dt_bias, *a;
  DeltaRuleShape shape;
  const DeviceEntry* entries;
  StatesView states;

  __device__ std::uint32_t key_column(std::uint32_t head) const {
    const std::uint32_t key = shape.tiled ? head % shape.key_heads : head / (shape.heads / shape.key_heads);
    return key * shape.key_dim;
  }
  __device__ std::uint32_t gate_column(std::uint32_t head) const {
    return head / shape.gate_run * shape.gate_step + head % shape.gate_run;
  }
  __device__ std::byte* state(const DeviceEntry& entry, std::uint32_t head) const {
    return states.at(entry.state).ssm(shape.layer) +
           std::uint64_t{head} * shape.key_dim * shape.value_dim * element_bytes(states.type);
  }
};

struct Gates {
  float decay, beta;
};
// Not inlined: one piece of code, so that no kernel fuses its operations in another way.
__device__ __noinline__ float sigmoid(float x) { return __fdiv_rn(1.0f, __fadd_rn(1.0f, expf(-x))); }
__device__ Gates gates_of(const DeltaRule& r, std::uint64_t row, std::uint32_t head) {
  const std::uint32_t column = r.gate_column(head);
  return {discretize(r.alpha[row * r.alpha_stride + column], r.dt_bias[head], r.a[head]).decay,
          sigmoid(r.beta[row * r.beta_stride + column])};
}
__device__ float delta_of(float v, Gates gates, float read) {
  return __fmul_rn(__fsub_rn(v, __fmul_rn(gates.decay, read)), gates.beta);
}

// Norms of queries and keys in place: a warp for each head of a row.
constexpr std::uint32_t kNormWarps = 4;
__global__ void __launch_bounds__(kNormWarps * 32) norm_kernel(DeltaRule r) {
  let_next_start();
  wait_for_previous();
  const std::uint32_t lane = threadIdx.x % 32, index = blockIdx.y * kNormWarps + threadIdx.x / 32;
  if (index >= 2 * r.shape.key_heads) return;
  const bool query = index < r.shape.key_heads;
  const std::uint32_t column = (query ? index : index - r.shape.key_heads) * r.shape.key_dim;
  float* x = (query ? r.q + blockIdx.x * r.q_stride : r.k + blockIdx.x * r.k_stride) + column;
  float sum = 0;
  for (std::uint32_t n = lane; n < r.shape.key_dim; n += 32) sum = __fmaf_rn(x[n], x[n], sum);
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    sum = __fadd_rn(sum, __shfl_xor_sync(kAllLanes, sum, distance));
  }
  const float scale = query ? __fdiv_rn(1.0f, __fsqrt_rn(static_cast<float>(r.shape.key_dim))) : 1.0f;
  const float factor = __fdiv_rn(scale, __fsqrt_rn(__fadd_rn(sum, r.shape.epsilon)));
  for (std::uint32_t n = lane; n < r.shape.key_dim; n += 32) x[n] = __fmul_rn(x[n], factor);
}

template <int kQuads>
struct Tile {
  static constexpr std::uint32_t kKeys = 16 * kQuads;
  alignas(16) float q[kTile][kKeys], k[kTile][kKeys];
  float v[kTile][kValues];
  Gates gates[kTile];
};

// A tile's values on their way from device memory.
template <int kQuads>
struct Ahead {
  static constexpr std::uint32_t kKeys = 16 * kQuads;
  static constexpr std::uint32_t kEach = kTile * kKeys / kThreads, kValueEach = kTile * kValues / kThreads;
  float q[kEach], k[kEach], v[kValueEach];
  Gates gates = {};

  __device__ void load(const DeltaRule& r, const DeviceEntry& entry, std::uint32_t head, std::uint32_t first,
                       std::uint32_t base) {
    const std::uint32_t key = r.key_column(head);
#pragma unroll
    for (std::uint32_t i = 0; i < kEach; ++i) {
      const std::uint32_t at = i * kThreads + threadIdx.x, token = base + at / kKeys, n = at % kKeys;
      const std::uint64_t row = entry.first_row + token;
      const bool real = token < entry.rows;
      q[i] = real ? r.q[row * r.q_stride + key + n] : 0.0f;
      k[i] = real ? r.k[row * r.k_stride + key + n] : 0.0f;
    }
#pragma unroll
    for (std::uint32_t i = 0; i < kValueEach; ++i) {
      const std::uint32_t at = i * kThreads + threadIdx.x, token = base + at / kValues, value = first + at % kValues;
      const bool real = token < entry.rows && value < r.shape.value_dim;
      v[i] = real ? r.v[(entry.first_row + token) * r.v_stride + head * r.shape.value_dim + value] : 0.0f;
    }
    const std::uint32_t token = base + threadIdx.x;
    if (threadIdx.x < kTile && token < entry.rows) gates = gates_of(r, entry.first_row + token, head);
  }
  __device__ void store(Tile<kQuads>& tile) const {
#pragma unroll
    for (std::uint32_t i = 0; i < kEach; ++i) {
      const std::uint32_t at = i * kThreads + threadIdx.x;
      tile.q[at / kKeys][at % kKeys] = q[i];
      tile.k[at / kKeys][at % kKeys] = k[i];
    }
#pragma unroll
    for (std::uint32_t i = 0; i < kValueEach; ++i) {
      const std::uint32_t at = i * kThreads + threadIdx.x;
      tile.v[at / kValues][at % kValues] = v[i];
    }
    if (threadIdx.x < kTile) tile.gates[threadIdx.x] = gates;
  }
};

__device__ float add_parts(const float (&sums)[4]) {
  float sum = __fadd_rn(__fadd_rn(sums[0], sums[1]), __fadd_rn(sums[2], sums[3]));
  sum = __fadd_rn(sum, __shfl_xor_sync(kAllLanes, sum, 1));
  return __fadd_rn(sum, __shfl_xor_sync(kAllLanes, sum, 2));
}

// For keys of 16 * kQuads elements.
template <ElementType kType, int kQuads>
__global__ void __launch_bounds__(kThreads) delta_kernel(DeltaRule r) {
  let_next_start();
  wait_for_previous();
  __shared__ Tile<kQuads> tile;
  using Bits = typename StateType<kType>::Bits;
  const DeviceEntry entry = r.entries[blockIdx.y];
  if (entry.rows == 0) return;
  const std::uint32_t slices = (r.shape.value_dim + kValues - 1) / kValues, head = blockIdx.x / slices;
  const std::uint32_t first = blockIdx.x % slices * kValues, part = threadIdx.x % kShare;
  const std::uint32_t own = threadIdx.x / kShare, value = first + own;
  const bool real = value < r.shape.value_dim;
  auto* state = reinterpret_cast<Bits*>(r.state(entry, head)) + (real ? value : 0);
  float s[kQuads][4];
#pragma unroll
  for (int j = 0; j < kQuads; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      s[j][i] = StateType<kType>::load(state[std::uint64_t(16 * j + 4 * part + i) * r.shape.value_dim]);
    }
  }
  float* out = r.out + entry.first_row * r.out_stride + head * r.shape.value_dim + value;
  Ahead<kQuads> ahead;
  ahead.load(r, entry, head, first, 0);
  for (std::uint32_t base = 0; base < entry.rows; base += kTile) {
    __syncthreads();  // the tile before is done
    ahead.store(tile);
    __syncthreads();
    ahead.load(r, entry, head, first, base + kTile);
    const std::uint32_t count = min(kTile, entry.rows - base);
    for (std::uint32_t t = 0; t < count; ++t) {
      const auto* keys = reinterpret_cast<const float4*>(tile.k[t]) + part;
      const auto* queries = reinterpret_cast<const float4*>(tile.q[t]) + part;
      const Gates gates = tile.gates[t];
      float sums[4] = {};
#pragma unroll
      for (int j = 0; j < kQuads; ++j) {
        const float4 quad = keys[4 * j];
        const float k[4] = {quad.x, quad.y, quad.z, quad.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[i] = __fmaf_rn(s[j][i], k[i], sums[i]);
      }
      const float delta = delta_of(tile.v[t][own], gates, add_parts(sums));
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[i] = 0;
#pragma unroll
      for (int j = 0; j < kQuads; ++j) {
        const float4 quad = keys[4 * j], query = queries[4 * j];
        const float k[4] = {quad.x, quad.y, quad.z, quad.w}, q[4] = {query.x, query.y, query.z, query.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float next = __fmaf_rn(s[j][i], gates.decay, __fmul_rn(k[i], delta));
          sums[i] = __fmaf_rn(next, q[i], sums[i]);
          s[j][i] = rounded<kType>(next);
        }
      }
      const float sum = add_parts(sums);
      if (part == 0 && real) out[(base + t) * r.out_stride] = sum;
    }
  }
  if (!real) return;
#pragma unroll
  for (int j = 0; j < kQuads; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      state[std::uint64_t(16 * j + 4 * part + i) * r.shape.value_dim] = StateType<kType>::store(s[j][i]);
    }
  }
}

// Keys of any length: a thread for each value, with the state in memory, and sums in the order of the key's elements.
template <ElementType kType>
__global__ void __launch_bounds__(kThreads) delta_general_kernel(DeltaRule r) {
  let_next_start();
  wait_for_previous();
  using Bits = typename StateType<kType>::Bits;
  const DeviceEntry entry = r.entries[blockIdx.y];
  const std::uint32_t value_dim = r.shape.value_dim, column = blockIdx.x * kThreads + threadIdx.x;
  if (column >= r.shape.heads * value_dim) return;
  const std::uint32_t head = column / value_dim, key = r.key_column(head);
  auto* state = reinterpret_cast<Bits*>(r.state(entry, head)) + column % value_dim;
  for (std::uint32_t i = 0; i < entry.rows; ++i) {
    const std::uint64_t row = entry.first_row + i;
    const float *k = r.k + row * r.k_stride + key, *q = r.q + row * r.q_stride + key;
    const Gates gates = gates_of(r, row, head);
    float read = 0, sum = 0;
    for (std::uint32_t n = 0; n < r.shape.key_dim; ++n) {
      read = __fmaf_rn(StateType<kType>::load(state[std::uint64_t{n} * value_dim]), k[n], read);
    }
    const float delta = delta_of(r.v[row * r.v_stride + column], gates, read);
    for (std::uint32_t n = 0; n < r.shape.key_dim; ++n) {
      Bits& own = state[std::uint64_t{n} * value_dim];
      const float next = __fmaf_rn(StateType<kType>::load(own), gates.decay, __fmul_rn(k[n], delta));
      sum = __fmaf_rn(next, q[n], sum);
      own = StateType<kType>::store(next);
    }
    r.out[row * r.out_stride + column] = sum;
  }
}

template <ElementType kType, int kQuads>
void launch_tiled(cudaStream_t stream, const DeltaRule& rule, const DeviceBatch& batch) {
  const dim3 grid((rule.shape.value_dim + kValues - 1) / kValues * rule.shape.heads, batch.entry_count);
  // With many tokens, blocks of the next kernel that wait would take room from these.
  launch(batch.rows == batch.entry_count && kernels_overlap(), stream, grid, kThreads, 0, delta_kernel<kType, kQuads>,
         rule);
}

// Which kernel runs decides the order of sums. So it depends on the shape alone.
template <ElementType kType>
void launch_for(cudaStream_t stream, const DeltaRule& rule, const DeviceBatch& batch) {
  switch (rule.shape.key_dim) {
    case 64: return launch_tiled<kType, 4>(stream, rule, batch);
    case 128: return launch_tiled<kType, 8>(stream, rule, batch);
    case 256: return launch_tiled<kType, 16>(stream, rule, batch);
    default: break;
  }
  const dim3 grid((rule.shape.heads * rule.shape.value_dim + kThreads - 1) / kThreads, batch.entry_count);
  launch(kernels_overlap(), stream, grid, kThreads, 0, delta_general_kernel<kType>, rule);
}

// A row per blockIdx.x, and kSplitThreads columns of q and gate per blockIdx.y.
constexpr std::uint32_t kSplitThreads = 256;
__global__ void __launch_bounds__(kSplitThreads)
    split_kernel(Tensor q, Tensor gate, Tensor both, std::uint32_t head_dim) {
  let_next_start();
  wait_for_previous();
  const std::uint32_t column = blockIdx.y * kSplitThreads + threadIdx.x;
  if (column >= q.cols) return;
  const auto* from = reinterpret_cast<const float*>(both.data) + blockIdx.x * both.stride +
                     std::uint64_t{column / head_dim} * 2 * head_dim + column % head_dim;
  reinterpret_cast<float*>(q.data)[blockIdx.x * q.stride + column] = from[0];
  reinterpret_cast<float*>(gate.data)[blockIdx.x * gate.stride + column] = from[head_dim];
}

float* floats(Tensor t) { return reinterpret_cast<float*>(t.data); }

}  // namespace

void launch_delta_rule(cudaStream_t stream, Tensor out, const DeltaInputs& in, const DeltaRuleShape& shape,
                       const DeviceBatch& batch, const StatesView& states) {
  if (batch.entry_count == 0 || shape.heads == 0) return;
  const DeltaRule rule{.out = floats(out),
                       .q = floats(in.q),
                       .k = floats(in.k),
                       .v = floats(in.v),
                       .alpha = floats(in.alpha),
                       .beta = floats(in.beta),
                       .out_stride = out.stride,
                       .q_stride = in.q.stride,
                       .k_stride = in.k.stride,
                       .v_stride = in.v.stride,
                       .alpha_stride = in.alpha.stride,
                       .beta_stride = in.beta.stride,
                       .dt_bias = floats(in.dt_bias),
                       .a = floats(in.a),
                       .shape = shape,
                       .entries = batch.entries,
                       .states = states};
  const dim3 norms(in.q.rows, (2 * shape.key_heads + kNormWarps - 1) / kNormWarps);
  if (!shape.normed) launch(kernels_overlap(), stream, norms, kNormWarps * 32, 0, norm_kernel, rule);
  switch (states.type) {
    case ElementType::F16: return launch_for<ElementType::F16>(stream, rule, batch);
    case ElementType::BF16: return launch_for<ElementType::BF16>(stream, rule, batch);
    default: return launch_for<ElementType::F32>(stream, rule, batch);
  }
}

void launch_split_query_gate(cudaStream_t stream, Tensor q, Tensor gate, Tensor both, std::uint32_t head_dim) {
  if (q.rows == 0 || q.cols == 0) return;
  launch(kernels_overlap(), stream, dim3(q.rows, (q.cols + kSplitThreads - 1) / kSplitThreads), kSplitThreads, 0,
         split_kernel, q, gate, both, head_dim);
}

}  // namespace quire::cuda
