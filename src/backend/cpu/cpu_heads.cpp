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

void CpuBackend::matmul_heads(const HeadProducts& products) {
  const Weight& weight = *products.weight;
  const std::uint32_t heads = weight.count, rows = products.x.rows, copied = products.copied();
  const std::uint32_t from = weight.cols + copied, to = weight.rows + copied;  // elements of a head
  QUIRE_CHECK(products.x.cols == heads * from && products.out.cols == heads * to && rows == products.out.rows,
              "shapes agree");
  const cpu::InputForms form = cpu::InputForms::of(weight.type);
  // Inputs of all heads in 8 bits or in BF16 are next to each other, without what is copied between them. In BF16 they
  // begin at even columns.
  const std::uint32_t apart = form.bf16 ? round_up(weight.cols, 2u) : weight.cols;
  QUIRE_CHECK(rows <= sizes_.rows && (!form.converted() || heads * apart <= sizes_.cols),
              "steps are as large as they were prepared for");
  if (form.converted() || copied > 0) {
    cpu::for_each(team_, rows, kFewRows, [&](std::uint32_t i) {
      for (std::uint32_t h = 0; h < heads; ++h) {
        const float* x = row_of(products.x, i) + h * from;
        if (form.quants) kernels_.quantize(x, weight.cols, input_.part(i, h * apart));
        if (form.bf16) kernels_.round_to_bf16(x, weight.cols, bf16_row(i) + h * apart);
        std::memcpy(row_of(products.out, i) + h * to + weight.rows, x + weight.cols, copied * sizeof(float));
      }
    });
  }
  const std::uint32_t tiles = divide_up(weight.rows, cpu::kTileRows), pieces = divide_up(tiles, cpu::kMostTiles);
  cpu::for_each_by_thread(team_, heads * pieces, 0, [&](std::uint32_t n, std::uint32_t thread) {
    const std::uint32_t h = n / pieces, begin = n % pieces * cpu::kMostTiles;
    const ProductRows x{.floats = row_of(products.x, 0) + h * from,
                        .stride = products.x.stride,
                        .bf16 = bf16_row(0) + h * apart,
                        .bf16_stride = sizes_.cols,
                        .quants = input_.part(0, h * apart),
                        .quant_stride = input_.stride(),
                        .count = rows};
    multiply(weight.at(h), begin, std::min(tiles, begin + cpu::kMostTiles), x,
             {row_of(products.out, 0) + h * to, products.out.stride, nullptr, false, 1.0f}, thread);
  });
}

}  // namespace quire
