// Rows of a matrix by token or position, from the file's own blocks in device memory.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "quire/backend/cuda/device_batch.h"
#include "quire/backend/tensor.h"
#include "quire/gguf/type.h"

namespace quire::cuda {

// A matrix in device memory, row by row as in the file.
struct FileTable {
  gguf::Type type = gguf::Type::F32;
  const std::byte* data = nullptr;
  std::uint64_t row_bytes = 0;
};

// Whether rows of this type can be looked up: every type that gguf::dequantize() takes.
bool can_look_up(gguf::Type type);

// out[i] = table[tokens[i]] * scale, for out.rows rows. The elements have the bits of gguf::dequantize(), then one
// multiplication. The type must be one that can_look_up() takes.
void launch_embed(cudaStream_t stream, Tensor out, const FileTable& table, float scale, const DeviceBatch& batch);

// x[i] += table[positions[i]], for x.rows rows.
void launch_add_positions(cudaStream_t stream, Tensor x, const FileTable& table, const DeviceBatch& batch);

}  // namespace quire::cuda
