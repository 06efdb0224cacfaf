// Mamba-2: convolution and scan. The order of every sum depends on the shape of the layer alone, so a sequence has the
// same bits and the same state however its tokens are cut into chunks.
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

// Depth-wise causal convolution with SiLU, in place; continues from the convolution state and updates it.
//   x [rows][channels], weight [conv_width][channels], bias [channels] or not valid
//   convolution state [conv_width - 1][channels], oldest first
void launch_mamba2_conv(cudaStream_t stream, Tensor x, Tensor weight, Tensor bias, const RecurrentShape& shape,
                        const DeviceBatch& batch, const StatesView& states);

// The inputs of a scan: x [rows][inner], b and c [rows][groups * state_dim], dt [rows][heads]; dt_bias, a, d [heads].
struct ScanInputs {
  Tensor x, b, c, dt, dt_bias, a, d;
};

//   step = softplus(dt + dt_bias); next = state * exp(step * a) + step * x * b; out = next . c + d * x
// The state of a head is [head_dim][state_dim], in f32, f16 or bf16. It is rounded after every token.
void launch_mamba2_scan(cudaStream_t stream, Tensor out, const ScanInputs& inputs, const RecurrentShape& shape,
                        const DeviceBatch& batch, const StatesView& states);

}  // namespace quire::cuda
