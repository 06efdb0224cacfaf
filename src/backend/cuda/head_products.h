// Products of heads, each with a matrix of its own (backend.h: HeadProducts). The matrices are rows as in the file, and
// the arithmetic is f32. C++20 only.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>

#include "quire/gguf/type.h"

namespace quire::cuda {

struct HeadProductCall {
  float* out = nullptr;      // [tokens][heads * (rows + copied)]
  const float* x = nullptr;  // [tokens][heads * (cols + copied)]
  std::uint64_t out_stride = 0, x_stride = 0;
  std::uint32_t tokens = 0, heads = 0, rows = 0, cols = 0, copied = 0;
  const std::byte* weights = nullptr;  // [heads], `head_bytes` apart; each [rows][row_bytes]
  std::uint64_t head_bytes = 0, row_bytes = 0;
};
void launch_head_products(cudaStream_t stream, gguf::Type type, const HeadProductCall& call, bool overlap);

}  // namespace quire::cuda
