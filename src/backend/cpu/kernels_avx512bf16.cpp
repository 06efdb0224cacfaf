// "avx512" with products of BF16 weights by VDPBF16PS.
#include <immintrin.h>

#include "quire/backend/cpu/kernels.h"
#include "quire/backend/cpu/tiles.h"
#include "quire/gguf/half.h"

namespace quire::cpu {
namespace {
// clang-format off
#include "vectors.inl"
#include "product_parts.inl"
#include "bf16_products.inl"
// clang-format on
}  // namespace

const Kernels* avx512bf16_kernels() {
  static const Kernels kernels = [] {
    Kernels own = *avx512_kernels();
    own.name = "avx512bf16";
    own.multiply_bf16 = multiply_bf16;
    return own;
  }();
  return &kernels;
}

}  // namespace quire::cpu
