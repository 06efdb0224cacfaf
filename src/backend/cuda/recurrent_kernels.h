// Recurrent layers: convolutions and scans. The order of every sum depends on the shape of the layer alone, so a
// sequence has the same bits and the same state however its tokens are cut into chunks.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "quire/backend/cuda/device_batch.h"
#include "quire/backend/tensor.h"
#include "quire/state/views.h"

namespace quire::cuda {

// Mamba2Shape of backend.h, which CUDA code cannot include.
struct RecurrentShape {
  std::uint32_t layer = 0;
  std::uint32_t heads = 0;
  std::uint32_t head_dim = 0;
  std::uint32_t groups = 0;
  std::uint32_t state_dim = 0;
  std::uint32_t conv_width = 0;

  constexpr std::uint32_t conv_channels() const { return heads * head_dim + 2 * groups * state_dim; }
};

// The widest convolution. A model with a wider one is refused when it is read.
inline constexpr std::uint32_t kMostConvTaps = 256;

// ConvolutionShape of backend.h.
struct ConvShape {
  std::uint32_t layer = 0;
  std::uint32_t channels = 0;
  std::uint32_t width = 0;
  bool silu = true;
};
struct ConvInputs {
  Tensor factor, weight, bias;  // factor and bias may be invalid: none
};

// Depth-wise causal convolution in place; continues from the convolution state and updates it.
//   x and factor [rows][channels], weight [width][channels], bias [channels]
//   convolution state [width - 1][channels], oldest first
void launch_convolution(cudaStream_t stream, Tensor x, const ConvInputs& inputs, const ConvShape& shape,
                        const DeviceBatch& batch, const StatesView& states);

// The inputs of a scan: x [rows][inner], b and c [rows][groups * state_dim], dt [rows][heads]; dt_bias, a, d [heads].
struct ScanInputs {
  Tensor x, b, c, dt, dt_bias, a, d;
};

//   step = softplus(dt + dt_bias); next = state * exp(step * a) + step * x * b; out = next . c + d * x
// The state of a head is [head_dim][state_dim], in f32, f16 or bf16. It is rounded after every token.
void launch_mamba2_scan(cudaStream_t stream, Tensor out, const ScanInputs& inputs, const RecurrentShape& shape,
                        const DeviceBatch& batch, const StatesView& states);

// Mamba1Shape of backend.h. Inputs: x and dt [rows][channels], b and c [rows][state_dim]; dt_bias and d [channels],
// a [state_dim][channels].
struct ChannelShape {
  std::uint32_t layer = 0;
  std::uint32_t channels = 0;
  std::uint32_t state_dim = 0;
};

//   step = softplus(dt + dt_bias); next[n] = state[n] * exp(step * a[n]) + step * x * b[n]; out = next . c + d * x
// The state is [state_dim][channels].
void launch_mamba1_scan(cudaStream_t stream, Tensor out, const ScanInputs& inputs, const ChannelShape& shape,
                        const DeviceBatch& batch, const StatesView& states);

// DeltaShape of backend.h.
struct DeltaRuleShape {
  std::uint32_t layer = 0;
  std::uint32_t heads = 0, key_heads = 0;
  std::uint32_t key_dim = 0, value_dim = 0;
  bool tiled = false;
  std::uint32_t gate_run = 0, gate_step = 0;
  float epsilon = 0;
  bool normed = false;  // q and k are normed already
};
struct DeltaInputs {
  Tensor q, k, v, alpha, beta, dt_bias, a;
};

// The gated delta rule as in backend.h; q and k are normed in place. The state of a head is [key_dim][value_dim].
void launch_delta_rule(cudaStream_t stream, Tensor out, const DeltaInputs& inputs, const DeltaRuleShape& shape,
                       const DeviceBatch& batch, const StatesView& states);

// Drafts continue in a state of their own: copies the part of a layer's state at `offset` from where each entry's
// drafts continue. `bytes` is a multiple of 4.
void launch_copy_states(cudaStream_t stream, const DeviceBatch& drafts, const StatesView& states, std::uint32_t layer,
                        std::uint64_t offset, std::uint64_t bytes);

// Columns of `both` go to q and gate, head_dim of them in turn.
void launch_split_query_gate(cudaStream_t stream, Tensor q, Tensor gate, Tensor both, std::uint32_t head_dim);

}  // namespace quire::cuda
