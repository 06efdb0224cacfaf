// The convolution of recurrent layers: depth-wise, causal, in place. With four taps a result is
// act(bias + w[0] in[t-3] + ... + w[3] in[t]), added in this order by fused multiply-adds, in every kernel here. An
// input `in` is x, or x times a factor.
#include "quire/backend/cuda/overlap.cuh"
#include "quire/backend/cuda/recurrent_kernels.h"
#include "quire/backend/cuda/row_kernels.h"

namespace quire::cuda {
namespace {

struct Convolution {
  float* x;  // [rows][channels]
  std::uint64_t stride;
  const float* factor;  // [rows][channels] or null
  std::uint64_t factor_stride;
  std::uint32_t channels;
  std::uint32_t taps;
  const float* weight;  // [taps][channels]
  std::uint64_t weight_stride;
  const float* bias;  // [channels] or null
  const DeviceEntry* entries;
  StatesView states;
  std::uint32_t layer;
  bool silu;

  __device__ float input(std::uint64_t row, std::uint32_t channel) const {
    const float own = x[row * stride + channel];
    return factor == nullptr ? own : __fmul_rn(own, factor[row * factor_stride + channel]);
  }
  __device__ float activated(float v) const { return silu ? __fdiv_rn(v, __fadd_rn(1.0f, expf(-v))) : v; }
  __device__ float bias_of(std::uint32_t channel) const { return bias == nullptr ? 0.0f : bias[channel]; }
  // The last taps - 1 inputs of an entry's channel, oldest first, `channels` apart.
  __device__ float* window(const DeviceEntry& entry, std::uint32_t channel) const {
    return reinterpret_cast<float*>(states.at(entry.state).conv(layer)) + channel;
  }
};

// Published models have four taps, and LFM2 has three.
template <int kTaps>
struct Taps {
  float weights[kTaps];
  float bias;

  __device__ Taps(const Convolution& c, std::uint32_t channel) : bias(c.bias_of(channel)) {
#pragma unroll
    for (int j = 0; j < kTaps; ++j) weights[j] = c.weight[j * c.weight_stride + channel];
  }
  // From the kTaps inputs that end with the token's own.
  __device__ float apply(const Convolution& c, const float* in) const {
    float sum = bias;
#pragma unroll
    for (int j = 0; j < kTaps; ++j) sum = __fmaf_rn(weights[j], in[j], sum);
    return c.activated(sum);
  }
};

// A thread per channel and entry, token by token: for entries of few tokens.
constexpr std::uint32_t kFewThreads = 128;
template <int kTaps>
__global__ void __launch_bounds__(kFewThreads, 8) conv_few_kernel(Convolution c) {
  constexpr int kKeep = kTaps - 1;
  let_next_start();
  wait_for_previous();
  const std::uint32_t channel = blockIdx.x * kFewThreads + threadIdx.x;
  if (channel >= c.channels) return;
  const DeviceEntry entry = c.entries[blockIdx.y];
  if (entry.rows == 0) return;
  const Taps<kTaps> taps(c, channel);
  float* window = c.window(entry, channel);
  float in[kTaps];
#pragma unroll
  for (int j = 0; j < kKeep; ++j) in[j] = window[std::uint64_t(j) * c.channels];
  for (std::uint32_t i = 0; i < entry.rows; ++i) {
    const std::uint64_t row = entry.first_row + i;
    in[kKeep] = c.input(row, channel);
    c.x[row * c.stride + channel] = taps.apply(c, in);
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
template <int kKeep>
__device__ void load_run(float (&in)[kKeep + kRun], const Convolution& c, std::uint64_t row, std::uint32_t channel,
                         std::uint32_t first, std::uint32_t rows, bool has_earlier) {
#pragma unroll
  for (int j = 0; j < kKeep + kRun; ++j) {
    const std::uint32_t token = first + j - kKeep;
    const bool wanted = (j >= kKeep || has_earlier) && first < rows && token < rows;
    in[j] = wanted ? c.input(row + token, channel) : 0.0f;
  }
}

template <int kTaps>
__global__ void __launch_bounds__(kWarps * 32) conv_many_kernel(Convolution c) {
  constexpr int kKeep = kTaps - 1;
  __shared__ float carried[2][kKeep][32];  // the last inputs of a tile, for the next one
  const std::uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const DeviceEntry entry = c.entries[blockIdx.y];
  if (entry.rows == 0) return;
  const std::uint32_t channel = blockIdx.x * 32 + lane;
  const bool real = channel < c.channels;
  const std::uint32_t rows = real ? entry.rows : 0;  // a lane without a channel loads and stores nothing
  const std::uint32_t own = real ? channel : 0;
  const Taps<kTaps> taps(c, own);
  float* x = c.x + entry.first_row * c.stride + own;
  float* window = c.window(entry, own);

  float in[kKeep + kRun];
  load_run<kKeep>(in, c, entry.first_row, own, warp * kRun, rows, warp > 0);
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
    load_run<kKeep>(next, c, entry.first_row, own, first + kTile, rows, warp > 0);
    if (warp == 0) {
#pragma unroll
      for (int j = 0; j < kKeep; ++j) next[j] = carried[parity][j][lane];
    }
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
      if (first + i < rows) x[(first + i) * c.stride] = taps.apply(c, in + i);
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
  std::uint32_t oldest = 0;
  for (std::uint32_t i = 0; i < entry.rows; ++i) {
    const std::uint64_t row = entry.first_row + i;
    const float current = c.input(row, channel);
    float sum = c.bias_of(channel);
    std::uint32_t from = oldest;
    for (std::uint32_t j = 0; j < keep; ++j) {
      sum = __fmaf_rn(weight[j * c.weight_stride], ring[from * 32 + lane], sum);
      from = from + 1 == keep ? 0 : from + 1;
    }
    c.x[row * c.stride + channel] = c.activated(__fmaf_rn(weight[keep * c.weight_stride], current, sum));
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

constexpr std::uint32_t kCopyThreads = 256, kCopyBlocks = 64;
__global__ void __launch_bounds__(kCopyThreads)
    copy_states_kernel(const DeviceEntry* entries, StatesView states, std::uint64_t offset, std::uint64_t words) {
  const DeviceEntry entry = entries[blockIdx.y];
  const auto* from = reinterpret_cast<const std::uint32_t*>(states.at(entry.from).base + offset);
  auto* to = reinterpret_cast<std::uint32_t*>(states.at(entry.state).base + offset);
  for (std::uint64_t i = blockIdx.x * kCopyThreads + threadIdx.x; i < words; i += gridDim.x * kCopyThreads) {
    to[i] = from[i];
  }
}

template <int kTaps>
void launch_taps(cudaStream_t stream, const Convolution& c, const DeviceBatch& batch) {
  if (batch.rows > batch.entry_count) {
    launch(false, stream, dim3(divide_up(c.channels, 32), batch.entry_count), kWarps * 32, 0, conv_many_kernel<kTaps>,
           c);
  } else {
    launch(kernels_overlap(), stream, dim3(divide_up(c.channels, kFewThreads), batch.entry_count), kFewThreads, 0,
           conv_few_kernel<kTaps>, c);
  }
}

}  // namespace

void launch_copy_states(cudaStream_t stream, const DeviceBatch& drafts, const StatesView& states, std::uint32_t layer,
                        std::uint64_t offset, std::uint64_t bytes) {
  const std::uint64_t words = bytes / sizeof(std::uint32_t);
  if (drafts.entry_count == 0 || words == 0) return;
  const auto blocks =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(kCopyBlocks, (words + kCopyThreads - 1) / kCopyThreads));
  launch(false, stream, dim3(blocks, drafts.entry_count), kCopyThreads, 0, copy_states_kernel, drafts.entries, states,
         layer * states.layer_stride + offset, words);
}

void launch_convolution(cudaStream_t stream, Tensor x, const ConvInputs& in, const ConvShape& shape,
                        const DeviceBatch& batch, const StatesView& states) {
  if (batch.entry_count == 0 || shape.channels == 0) return;
  const Convolution c{.x = reinterpret_cast<float*>(x.data),
                      .stride = x.stride,
                      .factor = reinterpret_cast<const float*>(in.factor.data),
                      .factor_stride = in.factor.stride,
                      .channels = shape.channels,
                      .taps = shape.width,
                      .weight = reinterpret_cast<const float*>(in.weight.data),
                      .weight_stride = shape.channels,  // a vector of the file, without rows of its own
                      .bias = reinterpret_cast<const float*>(in.bias.data),
                      .entries = batch.entries,
                      .states = states,
                      .layer = shape.layer,
                      .silu = shape.silu};
  if (shape.width == 4) return launch_taps<4>(stream, c, batch);
  if (shape.width == 3) return launch_taps<3>(stream, c, batch);
  launch(kernels_overlap(), stream, dim3(divide_up(shape.channels, 32), batch.entry_count), 32,
         (shape.width - 1) * 32 * sizeof(float), conv_general_kernel, c);
}

}  // namespace quire::cuda
