#include <immintrin.h>

#include "quire/backend/cpu/kernels.h"
#include "quire/backend/cpu/tiles.h"
#include "quire/gguf/grids.h"
#include "quire/gguf/half.h"

namespace quire::cpu {
namespace {
// clang-format off
#include "kernels.inl"
#include "avx2_products.inl"
// clang-format on
}  // namespace

const Kernels* avx2_kernels() {
  static constexpr Kernels kernels = [] {
    Kernels own = make_kernels("avx2");
    own.multiply_float = multiply_float_avx2;
    own.multiply_bf16 = multiply_bf16_avx2;
    return own;
  }();
  return &kernels;
}

}  // namespace quire::cpu
