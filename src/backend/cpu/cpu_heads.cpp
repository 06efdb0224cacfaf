// The CPU backend's products of heads. They use the kernels of matmul(), so an element has the bits that matmul() would
// give it.
#include <algorithm>
#include <cstring>

#include "quire/backend/cpu/cpu_backend.h"
#include "quire/backend/cpu/for_each.h"
#include "quire/backend/cpu/tiles.h"
#include "quire/base/check.h"
#include "quire/base/numbers.h"

namespace quire {

using cpu::kFewRows;
using cpu::row_of;

namespace {

bool is_quantised(gguf::Type type) { return gguf::type_info(type).block_size > 1; }

cpu::WeightTiles tiles_of(const Weight& weight) {
  const gguf::TypeInfo& info = gguf::type_info(weight.type);
  return {.type = weight.type,
          .rows = weight.rows,
          .cols = weight.cols,
          .data = weight.data,
          .tile_bytes = weight.arranged ? weight.unit_bytes : 0,
          .row_bytes = weight.arranged ? 0 : weight.unit_bytes,
          .block_cols = info.block_size,
          .block_bytes = info.block_bytes};
}

}  // namespace

void CpuBackend::matmul_heads(const HeadProducts& products) {
  const Weight& any = products.weights.front();
  const std::uint32_t heads = products.heads(), rows = products.x.rows, copied = products.copied();
  const std::uint32_t from = any.cols + copied, to = any.rows + copied;  // elements of a head
  QUIRE_CHECK(products.x.cols == heads * from && products.out.cols == heads * to && rows == products.out.rows,
              "shapes agree");
  const bool quants = is_quantised(any.type);
  QUIRE_CHECK(rows <= sizes_.rows && (!quants || heads * any.cols <= sizes_.cols),
              "steps are as large as they were prepared for");
  // Quantised inputs of all heads are next to each other, without what is copied between them.
  if (quants || copied > 0) {
    cpu::for_each(team_, rows, kFewRows, [&](std::uint32_t i) {
      for (std::uint32_t h = 0; h < heads; ++h) {
        const float* x = row_of(products.x, i) + h * from;
        if (quants) kernels_.quantize(x, any.cols, quant_input(i, h * any.cols));
        std::memcpy(row_of(products.out, i) + h * to + any.rows, x + any.cols, copied * sizeof(float));
      }
    });
  }
  const std::uint32_t tiles = divide_up(any.rows, cpu::kTileRows);
  const std::uint32_t pieces = divide_up(tiles, cpu::kMostTiles);
  cpu::for_each_by_thread(team_, heads * pieces, 0, [&](std::uint32_t n, std::uint32_t thread) {
    const std::uint32_t h = n / pieces, begin = n % pieces * cpu::kMostTiles;
    const std::uint32_t end = std::min(tiles, begin + cpu::kMostTiles);
    const cpu::WeightTiles weight = tiles_of(products.weights[h]);
    const cpu::ProductOut out{row_of(products.out, 0) + h * to, products.out.stride, nullptr, false, 1.0f};
    if (quants) {
      kernels_.multiply_quant(weight, begin, end, quant_input(0, h * any.cols), sizes_.cols, rows, out,
                              scratch(thread));
    } else {
      kernels_.multiply_float(weight, begin, end, row_of(products.x, 0) + h * from, products.x.stride, rows, out,
                              scratch(thread));
    }
  });
}

}  // namespace quire
