// Matrix products with weights in F32 and F16, in floats: column by column, with one fused multiplication and addition
// for each.

struct F32Source {
  static constexpr std::uint32_t kBytes = 64;
  static QUIRE_INLINE V16 load(const std::byte* p) { return load16(reinterpret_cast<const float*>(p)); }
};
struct F16Source {
  static constexpr std::uint32_t kBytes = 32;
  static QUIRE_INLINE V16 load(const std::byte* p) { return load_halves(p); }
};

template <typename Source, int kTiles, int kRows>
__attribute__((noinline)) void multiply_floats(const std::byte* weights, std::uint64_t tile_stride, std::uint32_t cols,
                                               const float* x, std::uint64_t stride, float* sums_memory) {
  V16 sums[kTiles][kRows];
  for (int r = 0; r < kRows; ++r) {
    for (int t = 0; t < kTiles; ++t) sums[t][r] = load16(sums_memory + (r * kTiles + t) * 16);
  }
#pragma GCC unroll 2
  for (std::uint32_t k = 0; k < cols; ++k) {
    V16 w[kTiles];
#pragma GCC unroll 4
    for (int t = 0; t < kTiles; ++t) w[t] = Source::load(weights + t * tile_stride + k * Source::kBytes);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const V16 value = all(x[r * stride + k]);
#pragma GCC unroll 4
      for (int t = 0; t < kTiles; ++t) sums[t][r] = fma(w[t], value, sums[t][r]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int t = 0; t < kTiles; ++t) store16(sums_memory + (r * kTiles + t) * 16, sums[t][r]);
  }
}

template <typename Source, int kTiles>
void multiply_float_rows(const std::byte* weights, std::uint64_t tile_stride, std::uint32_t cols, const float* x,
                         std::uint64_t stride, std::uint32_t rows, float* sums) {
  std::uint32_t i = 0;
  for (; i + kRowsAtOnce <= rows; i += kRowsAtOnce) {
    multiply_floats<Source, kTiles, kRowsAtOnce>(weights, tile_stride, cols, x + i * stride, stride,
                                                 sums + i * kTiles * 16);
  }
  x += i * stride;
  sums += i * kTiles * 16;
  if constexpr (kRowsAtOnce > 1) {
    switch (rows - i) {
      case 1: multiply_floats<Source, kTiles, 1>(weights, tile_stride, cols, x, stride, sums); break;
      case 2: multiply_floats<Source, kTiles, 2>(weights, tile_stride, cols, x, stride, sums); break;
      case 3: multiply_floats<Source, kTiles, 3>(weights, tile_stride, cols, x, stride, sums); break;
      default: break;
    }
  }
}

template <typename Source, int kTiles>
void multiply_float_tiles(const WeightTiles& weight, std::uint32_t tile, const float* x, std::uint64_t stride,
                          std::uint32_t rows, const Ending& end, const ProductScratch& scratch) {
  // As many bytes as a chunk of quants: three tiles of floats fill most of the L1 cache.
  constexpr std::uint32_t kCols = kChunkCols / 4;
  __builtin_memset(scratch.sums, 0, std::size_t{rows} * kTiles * kTileRows * sizeof(float));
  const std::byte* first = weight.data + tile * weight.tile_bytes;
  if (rows <= kFewFloat) {
    multiply_float_rows<Source, kTiles>(first, weight.tile_bytes, weight.cols, x, stride, rows, scratch.sums);
  } else {
    for (std::uint32_t col = 0; col < weight.cols; col += kCols) {
      const std::uint32_t cols = weight.cols - col < kCols ? weight.cols - col : kCols;
      const std::byte* weights = first + col * Source::kBytes;
      if (Source::kBytes == 64) {
        multiply_float_rows<F32Source, kTiles>(weights, weight.tile_bytes, cols, x + col, stride, rows, scratch.sums);
        continue;
      }
      for (int t = 0; t < kTiles; ++t) {
        float* to = reinterpret_cast<float*>(scratch.quants) + t * kCols * kTileRows;
        for (std::uint32_t k = 0; k < cols; ++k) {
          store16(to + k * 16, Source::load(weights + t * weight.tile_bytes + k * Source::kBytes));
        }
      }
      multiply_float_rows<F32Source, kTiles>(scratch.quants, kCols * 64, cols, x + col, stride, rows, scratch.sums);
    }
  }
  for (std::uint32_t i = 0; i < rows; ++i) {
    for (int t = 0; t < kTiles; ++t) {
      end(i, tile + static_cast<std::uint32_t>(t),
          load16(scratch.sums + (i * kTiles + static_cast<std::uint32_t>(t)) * 16));
    }
  }
}

template <typename Source>
void multiply_float_range(const WeightTiles& weight, std::uint32_t begin, std::uint32_t tiles_end, const float* x,
                          std::uint64_t stride, std::uint32_t rows, const Ending& end, const ProductScratch& scratch) {
  std::uint32_t tile = begin;
  if constexpr (kTilesAtOnce > 1) {
    for (; tile + kTilesAtOnce <= tiles_end; tile += kTilesAtOnce) {
      multiply_float_tiles<Source, kTilesAtOnce>(weight, tile, x, stride, rows, end, scratch);
    }
  }
  for (; tile < tiles_end; ++tile) multiply_float_tiles<Source, 1>(weight, tile, x, stride, rows, end, scratch);
}

void multiply_float(const WeightTiles& weight, std::uint32_t begin, std::uint32_t tiles_end, const float* x,
                    std::uint64_t stride, std::uint32_t rows, const ProductOut& out, const ProductScratch& scratch) {
  const Ending end{&out, weight.rows};
  switch (weight.type) {
    case gguf::Type::F32:
      return multiply_float_range<F32Source>(weight, begin, tiles_end, x, stride, rows, end, scratch);
    case gguf::Type::F16:
      return multiply_float_range<F16Source>(weight, begin, tiles_end, x, stride, rows, end, scratch);
    default: return;
  }
}
