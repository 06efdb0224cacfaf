// "avx512" with products of many rows and quantised weights by tile instructions. BF16 is not by VDPBF16PS: the
// processors that have AMX multiply twice as fast with two fused operations on floats (measured: 2,528 and 1,193 G
// operations a second on 16 cores).
#include <immintrin.h>

#include "quire/backend/cpu/kernels.h"
#include "quire/backend/cpu/tiles.h"
#include "quire/gguf/grids.h"
#include "quire/gguf/half.h"

namespace quire::cpu {
namespace {
// clang-format off
#include "vectors.inl"
#include "file_rows_grids.inl"
#include "file_rows.inl"
#include "tiles.inl"
#include "product_parts.inl"
#include "unpack.inl"
#include "amx_products.inl"
// clang-format on

template <typename Tiles>
Kernels kernels_with(const Kernels& others, const char* name) {
  Kernels own = others;
  own.name = name;
  own.multiply_quant = multiply_quant_by_tiles<Tiles>;
  return own;
}

}  // namespace

const Kernels* amx_kernels() {
  static const Kernels kernels = kernels_with<HardwareTiles>(*avx512_kernels(), "amx");
  return &kernels;
}

const Kernels* emulated_amx_kernels() {
  static const Kernels kernels = kernels_with<EmulatedTiles>(*avx512_kernels(), "amx_emulated");
  return &kernels;
}

}  // namespace quire::cpu
