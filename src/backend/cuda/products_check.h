// For cuda_products_bench: compares results where they are, so that a million products can be checked in a minute.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "quire/backend/tensor.h"

namespace quire::cuda {

// *differing += the elements whose bits differ. Both have the same shape.
void count_differing(cudaStream_t stream, const Tensor& a, const Tensor& b, std::uint64_t* differing);

}  // namespace quire::cuda
