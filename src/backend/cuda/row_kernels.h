// Operations on single rows. Every launcher puts its kernels on the stream and returns. It allocates nothing, does not
// wait and may be captured in a graph. Rows are f32 with any stride; a row may have any length.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "quire/backend/cuda/device_batch.h"
#include "quire/backend/tensor.h"

namespace quire::cuda {

// Whether kernels may start while the one before them ends (overlap.cuh) on the current device: those of this program
// were compiled for 9.0 or later.
bool kernels_overlap();

// out = x / rms(x) * weight, row by row; x and out may be the same
void launch_rms_norm(cudaStream_t stream, Tensor out, Tensor x, Tensor weight, float epsilon);
// out[i] = x[wanted[i]], for out.rows rows
void launch_gather_wanted(cudaStream_t stream, Tensor out, Tensor x, const DeviceBatch& batch);
// x += y * scale
void launch_add(cudaStream_t stream, Tensor x, Tensor y, float scale);
// x = cap * tanh(x / cap), then times scale; a cap of 0 is none
void launch_cap_and_scale(cudaStream_t stream, Tensor x, float cap, float scale);
// cos and sin of position * frequency, times magnitude; [rows][frequencies.cols] each
void launch_rope_angles(cudaStream_t stream, Tensor cosines, Tensor sines, Tensor frequencies, float magnitude,
                        const DeviceBatch& batch);

// One word to write: value at to + 4 * index. The same as Device::Word, which includes host headers.
struct WordWrite {
  std::uint64_t index = 0;
  std::uint32_t value = 0;
};
// Writes scattered words. `words` is device memory. No index may occur twice: there is no order among the writes.
void launch_write_words(cudaStream_t stream, void* to, const WordWrite* words, std::uint32_t count);

}  // namespace quire::cuda
