#include <immintrin.h>

#include "quire/backend/cpu/kernels.h"
#include "quire/backend/cpu/tiles.h"
#include "quire/gguf/grids.h"
#include "quire/gguf/half.h"

namespace quire::cpu {
namespace {
#include "kernels.inl"
}  // namespace

const Kernels* avx512_kernels() {
  static constexpr Kernels kernels = make_kernels("avx512");
  return &kernels;
}

}  // namespace quire::cpu
