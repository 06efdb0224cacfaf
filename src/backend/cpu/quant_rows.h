// Rows of activations, quantised to 8 bits for products (kernels.h: QuantInput).
#pragma once

#include <cstdint>

#include "quire/backend/cpu/kernels.h"
#include "quire/base/large_vector.h"

namespace quire::cpu {

class QuantRows {
 public:
  // `cols` is a multiple of 32. Rows are an odd number of cache lines apart. Products read the same columns of sixteen
  // rows; with a power of two between them, these would compete for a few sets of the cache.
  void resize(std::size_t rows, std::uint32_t cols) {
    stride_ = ((cols + 63) / 64 * 64) | 64;
    const std::size_t all = rows * stride_;
    q_.resize(all);
    scales_.resize(all / 32);
    starts_.resize(all / 32);
    sums_.resize(all / 32);
    half_starts_.resize(all / 16);
    half_sums_.resize(all / 16);
  }
  std::uint32_t stride() const { return stride_; }
  QuantInput row(std::size_t i) { return part(i, 0); }
  // The row's columns from `first_col` on. It is a multiple of 32, or any number if the matrix has no blocks.
  QuantInput part(std::size_t i, std::uint32_t first_col) {
    const std::size_t at = i * stride_ + first_col;
    return {q_.data() + at,         scales_.data() + at / 32,      starts_.data() + at / 32,
            sums_.data() + at / 32, half_starts_.data() + at / 16, half_sums_.data() + at / 16};
  }

 private:
  std::uint32_t stride_ = 0;  // columns
  LargeVector<std::int8_t> q_;
  LargeVector<float> scales_, sums_, half_sums_;
  LargeVector<std::int32_t> starts_, half_starts_;
};

}  // namespace quire::cpu
