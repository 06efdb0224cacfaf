#include <immintrin.h>

#include "quire/backend/cpu/kernels.h"
#include "quire/backend/cpu/tiles.h"
#include "quire/gguf/grids.h"
#include "quire/gguf/half.h"

namespace quire::cpu {
namespace {
#include "kernels.inl"
}  // namespace

const Kernels* avx2_kernels() {
  static constexpr Kernels kernels = make_kernels("avx2");
  return &kernels;
}

}  // namespace quire::cpu
