// Writes matrices of model files in the layout of the GPU's products (product_layout.h). Runs on the host and needs no
// CUDA.
//
// What the weights become:
//   F32, F16, BF16   the same numbers
//   quantised        the file's integers, with a half as scale (and as minimum) of each 16 or 32 columns. Rows are
//                    multiplied with a power of two, so that these halves are as exact as halves can be. A kernel
//                    computes scale * q + min in halves, so a weight is within 2^-10 of its row's largest scale * q
//                    or minimum, and typically within 2^-11 of itself.
//
// Who may call: one thread; the team's threads do the work.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quire/backend/backend.h"
#include "quire/backend/cuda/product_layout.h"
#include "quire/base/thread_team.h"

namespace quire::cuda {

// What matrices of this type are arranged as. Every type that gguf::dequantize() takes has one.
Packing packing_of(gguf::Type type);

// Bytes of a matrix in the layout of products: rounded up to 256, and never 0.
std::uint64_t arranged_bytes(gguf::Type type, std::uint32_t rows, std::uint32_t cols);

// Writes all of them, padding included.
void arrange(const FileMatrix& matrix, ThreadTeam& team, std::byte* to);

}  // namespace quire::cuda
