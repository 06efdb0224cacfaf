// The convolution of Mamba-2: depth-wise, causal, in place. A result is silu(bias + w[0] x[t-3] + ... + w[3] x[t]),
// added in this order by fused multiply-adds, in every kernel here.
#include "quire/backend/cuda/overlap.cuh"
#include "quire/backend/cuda/recurrent_kernels.h"
#include "quire/backend/cuda/row_kernels.h"

namespace quire::cuda {
namespace {

struct Convolution {
  float* x;  // [rows][channels]
  std::uint64_t stride;
  std::uint32_t channels;
  std::uint32_t taps;
  const float* weight;  // [taps][channels]
  std::uint64_t weight_stride;
  const float* bias;  // [channels] or null
  const DeviceEntry* entries;
  StatesView states;
  std::uint32_t layer;

  __device__ float bias_of(std::uint32_t channel) const { return bias == nullptr ? 0.0f : bias[channel]; }
  // The last taps - 1 inputs of an entry's channel, oldest first, `channels` apart.
  __device__ float* window(const DeviceEntry& entry, std::uint32_t channel) const {
    return reinterpret_cast<float*>(states.at(entry.state).conv(layer)) + channel;
  }
};

__device__ float silu(float v) { return __fdiv_rn(v, __fadd_rn(1.0f, expf(-v))); }

constexpr int kTaps = 4;  // what published models have
constexpr int kKeep = kTaps - 1;

struct Taps {
  float weights[kTaps];
  float bias;

  __device__ Taps(const Convolution& c, std::uint32_t channel) : bias(c.bias_of(channel)) {
#pragma unroll
    for (int j = 0; j < kTaps; ++j) weights[j] = c.weight[j * c.weight_stride + channel];
  }
  // From the kTaps inputs that end with the token's own.
  __device__ float apply(const float* in) const {
    float sum = bias;
#pragma unroll
    for (int j = 0; j < kTaps; ++j) sum = __fmaf_rn(weights[j], in[j], sum);
    return silu(sum);
  }
};

// A thread per channel and entry, token by token: for entries of few tokens.
constexpr std::uint32_t kFewThreads = 128;
__global__ void __launch_bounds__(kFewThreads) conv_few_kernel(Convolution c) {
  let_next_start();
  wait_for_previous();
  const std::uint32_t channel = blockIdx.x * kFewThreads + threadIdx.x;
  if (channel >= c.channels) return;
  const DeviceEntry entry = c.entries[blockIdx.y];
  if (entry.rows == 0) return;
  const Taps taps(c, channel);
  float* window = c.window(entry, channel);
  float in[kTaps];
#pragma unroll
  for (int j = 0; j < kKeep; ++j) in[j] = window[std::uint64_t(j) * c.channels];
  float* at = c.x + entry.first_row * c.stride + channel;
  for (std::uint32_t i = 0; i < entry.rows; ++i, at += c.stride) {
    in[kKeep] = *at;
    *at = taps.apply(in);
#pragma unroll
    for (int j = 0; j < kKeep; ++j) in[j] = in[j + 1];
  }
#pragma unroll
  for (int j = 0; j < kKeep; ++j) window[std::uint64_t(j) * c.channels] = in[j];
}

// Many tokens: a block has 32 channels of one entry and walks its tokens in tiles. A warp of the block has kRun
// consecutive tokens of a tile, a lane one channel. All inputs of a tile are in registers before the first result
// overwrites one, and the inputs of the next tile are on their way meanwhile.
constexpr int kWarps = 8;
constexpr int kRun = 16;
constexpr std::uint32_t kTile = kWarps * kRun;

// Inputs of tokens first - kKeep to first + kRun - 1 of the entry. Those before the tile are not loaded here.
__device__ void load_run(float (&in)[kKeep + kRun], const float* x, std::uint64_t stride, std::uint32_t first,
                         std::uint32_t rows, bool has_earlier) {
#pragma unroll
  for (int j = 0; j < kKeep + kRun; ++j) {
    const std::uint32_t token = first + j - kKeep;
    const bool wanted = (j >= kKeep || has_earlier) && first < rows && token < rows;
    in[j] = wanted ? x[token * stride] : 0.0f;
  }
}

__global__ void __launch_bounds__(kWarps * 32) conv_many_kernel(Convolution c) {
  __shared__ float carried[2][kKeep][32];  // the last inputs of a tile, for the next one
  const std::uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const DeviceEntry entry = c.entries[blockIdx.y];
  if (entry.rows == 0) return;
  const std::uint32_t channel = blockIdx.x * 32 + lane;
  const bool real = channel < c.channels;
  const std::uint32_t rows = real ? entry.rows : 0;  // a lane without a channel loads and stores nothing
  const std::uint32_t own = real ? channel : 0;
  const Taps taps(c, own);
  float* x = c.x + entry.first_row * c.stride + own;
  float* window = c.window(entry, own);

  float in[kKeep + kRun];
  load_run(in, x, c.stride, warp * kRun, rows, warp > 0);
  if (warp == 0) {
#pragma unroll
    for (int j = 0; j < kKeep; ++j) in[j] = window[std::uint64_t(j) * c.channels];
  }
  std::uint32_t parity = 0;
  for (std::uint32_t base = 0; base < entry.rows; base += kTile, parity ^= 1) {
    const std::uint32_t first = base + warp * kRun;
    if (warp == kWarps - 1) {
#pragma unroll
      for (int j = 0; j < kKeep; ++j) carried[parity][j][lane] = in[kRun + j];
    }
    __syncthreads();
    float next[kKeep + kRun];
    load_run(next, x, c.stride, first + kTile, rows, warp > 0);
    if (warp == 0) {
#pragma unroll
      for (int j = 0; j < kKeep; ++j) next[j] = carried[parity][j][lane];
    }
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
      if (first + i < rows) x[(first + i) * c.stride] = taps.apply(in + i);
    }
    // The warp with the last token has the last inputs of the entry.
#pragma unroll
    for (int i = 1; i <= kRun; ++i) {
      if (first + i != rows) continue;
#pragma unroll
      for (int j = 0; j < kKeep; ++j) window[std::uint64_t(j) * c.channels] = in[i + j];
    }
#pragma unroll
    for (int j = 0; j < kKeep + kRun; ++j) in[j] = next[j];
  }
}

// Any number of taps: a lane per channel, token by token, with the last inputs in a ring in shared memory.
__global__ void __launch_bounds__(32) conv_general_kernel(Convolution c) {
  let_next_start();
  wait_for_previous();
  extern __shared__ float ring[];  // [taps - 1][32]
  const std::uint32_t lane = threadIdx.x, channel = blockIdx.x * 32 + lane, keep = c.taps - 1;
  const DeviceEntry entry = c.entries[blockIdx.y];
  if (channel >= c.channels || entry.rows == 0) return;
  float* window = c.window(entry, channel);
  const float* weight = c.weight + channel;
  for (std::uint32_t j = 0; j < keep; ++j) ring[j * 32 + lane] = window[std::uint64_t{j} * c.channels];
  float* at = c.x + entry.first_row * c.stride + channel;
  std::uint32_t oldest = 0;
  for (std::uint32_t i = 0; i < entry.rows; ++i, at += c.stride) {
    const float current = *at;
    float sum = c.bias_of(channel);
    std::uint32_t from = oldest;
    for (std::uint32_t j = 0; j < keep; ++j) {
      sum = __fmaf_rn(weight[j * c.weight_stride], ring[from * 32 + lane], sum);
      from = from + 1 == keep ? 0 : from + 1;
    }
    *at = silu(__fmaf_rn(weight[keep * c.weight_stride], current, sum));
    if (keep == 0) continue;
    ring[oldest * 32 + lane] = current;
    oldest = oldest + 1 == keep ? 0 : oldest + 1;
  }
  for (std::uint32_t j = 0; j < keep; ++j) {
    window[std::uint64_t{j} * c.channels] = ring[oldest * 32 + lane];
    oldest = oldest + 1 == keep ? 0 : oldest + 1;
  }
}

constexpr std::uint32_t divide_up(std::uint32_t a, std::uint32_t b) { return (a + b - 1) / b; }

}  // namespace

void launch_mamba2_conv(cudaStream_t stream, Tensor x, Tensor weight, Tensor bias, const RecurrentShape& shape,
                        const DeviceBatch& batch, const StatesView& states) {
  const std::uint32_t channels = shape.conv_channels();
  if (batch.entry_count == 0 || channels == 0) return;
  const Convolution c{reinterpret_cast<float*>(x.data),
                      x.stride,
                      channels,
                      shape.conv_width,
                      reinterpret_cast<const float*>(weight.data),
                      channels,  // a vector of the file, without rows of its own
                      reinterpret_cast<const float*>(bias.data),
                      batch.entries,
                      states,
                      shape.layer};
  const bool overlap = kernels_overlap();
  const dim3 by_lanes(divide_up(channels, 32), batch.entry_count);
  if (shape.conv_width != kTaps) {
    launch(overlap, stream, by_lanes, 32, (shape.conv_width - 1) * 32 * sizeof(float), conv_general_kernel, c);
  } else if (batch.rows > batch.entry_count) {
    launch(false, stream, by_lanes, kWarps * 32, 0, conv_many_kernel, c);
  } else {
    launch(overlap, stream, dim3(divide_up(channels, kFewThreads), batch.entry_count), kFewThreads, 0, conv_few_kernel,
           c);
  }
}

}  // namespace quire::cuda
