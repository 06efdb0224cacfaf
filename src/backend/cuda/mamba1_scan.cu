// The scan of Mamba-1, token by token with the state in registers. Four lanes share a channel: lane p has the elements
// p, p + 4, ... of its state. For an output, a lane adds up its elements in order, then lanes are added in pairs 1 and
// 2 apart. A block has 32 channels of one sequence and walks its tokens in tiles.
#include "quire/backend/cuda/overlap.cuh"
#include "quire/backend/cuda/recurrent_kernels.h"
#include "quire/backend/cuda/recurrent_scan.cuh"
#include "quire/backend/cuda/row_kernels.h"

namespace quire::cuda {
namespace {

constexpr std::uint32_t kChannels = 32;  // of a block
constexpr std::uint32_t kShare = 4;      // lanes of a channel
constexpr std::uint32_t kThreads = kChannels * kShare;
constexpr std::uint32_t kTile = 16;    // tokens
constexpr std::uint32_t kPerLane = 4;  // elements of a lane in registers: states of 16

struct ChannelScan {
  float* out;
  const float *x, *b, *c, *dt;
  std::uint64_t out_stride, x_stride, b_stride, c_stride, dt_stride;
  const float *dt_bias, *a, *d;
  std::uint32_t channels, state_dim, layer;
  const DeviceEntry* entries;
  StatesView states;
};

// What all tokens of a tile need: step sizes and inputs of the block's channels, b and c of all.
struct Tile {
  float step[kTile][kChannels], x[kTile][kChannels];
  float b[kTile][kPerLane * kShare], c[kTile][kPerLane * kShare];
};

// The same values on their way to the next tile.
struct Ahead {
  static constexpr std::uint32_t kEach = kTile * kChannels / kThreads;
  static constexpr std::uint32_t kShared = kTile * kPerLane * kShare / kThreads;
  float dt[kEach], x[kEach], b[kShared], c[kShared];

  __device__ void load(const ChannelScan& s, const DeviceEntry& entry, std::uint32_t base) {
    const std::uint32_t channel = blockIdx.x * kChannels + threadIdx.x % kChannels;
#pragma unroll
    for (std::uint32_t i = 0; i < kEach; ++i) {
      const std::uint32_t token = base + i * (kThreads / kChannels) + threadIdx.x / kChannels;
      const bool real = token < entry.rows && channel < s.channels;
      const std::uint64_t row = entry.first_row + token;
      dt[i] = real ? s.dt[row * s.dt_stride + channel] : 0.0f;
      x[i] = real ? s.x[row * s.x_stride + channel] : 0.0f;
    }
    constexpr std::uint32_t kState = kPerLane * kShare;
#pragma unroll
    for (std::uint32_t i = 0; i < kShared; ++i) {
      const std::uint32_t token = base + i * (kThreads / kState) + threadIdx.x / kState, n = threadIdx.x % kState;
      const std::uint64_t row = entry.first_row + token;
      b[i] = token < entry.rows ? s.b[row * s.b_stride + n] : 0.0f;
      c[i] = token < entry.rows ? s.c[row * s.c_stride + n] : 0.0f;
    }
  }
  __device__ void store(Tile& tile, float bias) const {
    const std::uint32_t channel = threadIdx.x % kChannels;
#pragma unroll
    for (std::uint32_t i = 0; i < kEach; ++i) {
      const std::uint32_t token = i * (kThreads / kChannels) + threadIdx.x / kChannels;
      tile.step[token][channel] = discretize(dt[i], bias, 0.0f).step;
      tile.x[token][channel] = x[i];
    }
    constexpr std::uint32_t kState = kPerLane * kShare;
#pragma unroll
    for (std::uint32_t i = 0; i < kShared; ++i) {
      const std::uint32_t token = i * (kThreads / kState) + threadIdx.x / kState, n = threadIdx.x % kState;
      tile.b[token][n] = b[i];
      tile.c[token][n] = c[i];
    }
  }
};

// Not inlined: one piece of code, so that no kernel fuses its operations in another way.
__device__ __noinline__ float decay_of(float step, float a) { return expf(__fmul_rn(step, a)); }

__device__ float add_share(float sum) {
  sum = __fadd_rn(sum, __shfl_xor_sync(~0u, sum, 1));
  return __fadd_rn(sum, __shfl_xor_sync(~0u, sum, 2));
}

template <ElementType kType>
__global__ void __launch_bounds__(kThreads) scan_kernel(ChannelScan s) {
  let_next_start();
  __shared__ Tile tile;
  using Bits = typename StateType<kType>::Bits;
  const std::uint32_t part = threadIdx.x % kShare, own = threadIdx.x / kShare, channel = blockIdx.x * kChannels + own;
  const bool real = channel < s.channels;
  const std::uint32_t loaded = blockIdx.x * kChannels + threadIdx.x % kChannels;  // whose dt this thread loads
  const float bias = loaded < s.channels ? s.dt_bias[loaded] : 0.0f, d = real ? s.d[channel] : 0.0f;
  float a[kPerLane], h[kPerLane];
#pragma unroll
  for (std::uint32_t j = 0; j < kPerLane; ++j) {
    a[j] = real ? s.a[std::uint64_t{j * kShare + part} * s.channels + channel] : 0.0f;
  }
  wait_for_previous();
  const DeviceEntry entry = s.entries[blockIdx.y];
  if (entry.rows == 0) return;
  auto* state = reinterpret_cast<Bits*>(s.states.at(entry.state).ssm(s.layer)) + (real ? channel : 0);
#pragma unroll
  for (std::uint32_t j = 0; j < kPerLane; ++j) {
    h[j] = StateType<kType>::load(state[std::uint64_t{j * kShare + part} * s.channels]);
  }
  Ahead ahead;
  ahead.load(s, entry, 0);
  for (std::uint32_t base = 0; base < entry.rows; base += kTile) {
    __syncthreads();  // the tile before is done
    ahead.store(tile, bias);
    __syncthreads();
    ahead.load(s, entry, base + kTile);
    const std::uint32_t count = min(kTile, entry.rows - base);
    for (std::uint32_t t = 0; t < count; ++t) {
      const float step = tile.step[t][own], x = tile.x[t][own], input = __fmul_rn(step, x);
      float sum = 0;
#pragma unroll
      for (std::uint32_t j = 0; j < kPerLane; ++j) {
        const std::uint32_t n = j * kShare + part;
        const float next = __fmaf_rn(h[j], decay_of(step, a[j]), __fmul_rn(input, tile.b[t][n]));
        sum = __fmaf_rn(next, tile.c[t][n], sum);
        h[j] = rounded<kType>(next);
      }
      sum = add_share(sum);
      if (part == 0 && real) s.out[(entry.first_row + base + t) * s.out_stride + channel] = __fmaf_rn(d, x, sum);
    }
  }
  if (!real) return;
#pragma unroll
  for (std::uint32_t j = 0; j < kPerLane; ++j) {
    state[std::uint64_t{j * kShare + part} * s.channels] = StateType<kType>::store(h[j]);
  }
}

// Any size of state: the same division among lanes, with the state in memory.
template <ElementType kType>
__global__ void __launch_bounds__(kThreads) scan_general_kernel(ChannelScan s) {
  let_next_start();
  wait_for_previous();
  using Bits = typename StateType<kType>::Bits;
  const DeviceEntry entry = s.entries[blockIdx.y];
  const std::uint32_t part = threadIdx.x % kShare, channel = blockIdx.x * kChannels + threadIdx.x / kShare;
  const bool real = channel < s.channels;
  const std::uint32_t at = real ? channel : 0;
  auto* state = reinterpret_cast<Bits*>(s.states.at(entry.state).ssm(s.layer)) + at;
  for (std::uint32_t i = 0; i < entry.rows; ++i) {
    const std::uint64_t row = entry.first_row + i;
    const float step = discretize(s.dt[row * s.dt_stride + at], s.dt_bias[at], 0.0f).step;
    const float x = s.x[row * s.x_stride + at], input = __fmul_rn(step, x);
    float sum = 0;
    for (std::uint32_t n = part; real && n < s.state_dim; n += kShare) {
      Bits& own = state[std::uint64_t{n} * s.channels];
      const float decay = decay_of(step, s.a[std::uint64_t{n} * s.channels + at]);
      const float next = __fmaf_rn(StateType<kType>::load(own), decay, __fmul_rn(input, s.b[row * s.b_stride + n]));
      sum = __fmaf_rn(next, s.c[row * s.c_stride + n], sum);
      own = StateType<kType>::store(next);
    }
    sum = add_share(sum);
    if (part == 0 && real) s.out[row * s.out_stride + channel] = __fmaf_rn(s.d[channel], x, sum);
  }
}

template <ElementType kType>
void launch_for(cudaStream_t stream, const ChannelScan& scan, const DeviceBatch& batch) {
  const dim3 grid((scan.channels + kChannels - 1) / kChannels, batch.entry_count);
  launch(kernels_overlap(), stream, grid, kThreads, 0,
         scan.state_dim == kPerLane * kShare ? scan_kernel<kType> : scan_general_kernel<kType>, scan);
}

const float* floats(Tensor t) { return reinterpret_cast<const float*>(t.data); }

}  // namespace

void launch_mamba1_scan(cudaStream_t stream, Tensor out, const ScanInputs& in, const ChannelShape& shape,
                        const DeviceBatch& batch, const StatesView& states) {
  if (batch.entry_count == 0 || shape.channels == 0) return;
  const ChannelScan scan{.out = reinterpret_cast<float*>(out.data),
                         .x = floats(in.x),
                         .b = floats(in.b),
                         .c = floats(in.c),
                         .dt = floats(in.dt),
                         .out_stride = out.stride,
                         .x_stride = in.x.stride,
                         .b_stride = in.b.stride,
                         .c_stride = in.c.stride,
                         .dt_stride = in.dt.stride,
                         .dt_bias = floats(in.dt_bias),
                         .a = floats(in.a),
                         .d = floats(in.d),
                         .channels = shape.channels,
                         .state_dim = shape.state_dim,
                         .layer = shape.layer,
                         .entries = batch.entries,
                         .states = states};
  switch (states.type) {
    case ElementType::F16: return launch_for<ElementType::F16>(stream, scan, batch);
    case ElementType::BF16: return launch_for<ElementType::BF16>(stream, scan, batch);
    default: return launch_for<ElementType::F32>(stream, scan, batch);
  }
}

}  // namespace quire::cuda
