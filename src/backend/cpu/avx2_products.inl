// Matrix products with weights in F32, F16 and BF16 in registers of 32 bytes. The compiler would keep vectors of 64
// bytes, as float_products.inl and bf16_products.inl have them, in memory. The operations and their order are the same.

constexpr int kRowsAvx2 = 4;  // at once: as many as the registers hold

// Sixteen weights of a column.
struct F32Column {
  static constexpr std::uint32_t kBytes = 64;
  static QUIRE_INLINE __m256 half(const std::byte* p, int h) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(p) + 8 * h);
  }
};
struct F16Column {
  static constexpr std::uint32_t kBytes = 32;
  static QUIRE_INLINE __m256 half(const std::byte* p, int h) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p) + h));
  }
};

// sums: [kRows][16]
template <typename Column, int kRows>
__attribute__((noinline)) void multiply_columns(const std::byte* weights, std::uint32_t cols, const float* x,
                                                std::uint64_t stride, float* sums_memory) {
  __m256 sums[kRows][2];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    sums[r][0] = _mm256_loadu_ps(sums_memory + r * 16);
    sums[r][1] = _mm256_loadu_ps(sums_memory + r * 16 + 8);
  }
  for (std::uint32_t k = 0; k < cols; ++k) {
    const __m256 low = Column::half(weights + k * Column::kBytes, 0),
                 high = Column::half(weights + k * Column::kBytes, 1);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const __m256 value = _mm256_broadcast_ss(x + r * stride + k);
      sums[r][0] = _mm256_fmadd_ps(low, value, sums[r][0]);
      sums[r][1] = _mm256_fmadd_ps(high, value, sums[r][1]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    _mm256_storeu_ps(sums_memory + r * 16, sums[r][0]);
    _mm256_storeu_ps(sums_memory + r * 16 + 8, sums[r][1]);
  }
}

// The same with pairs of columns in BF16: first the odd column, then the even one. Called while a SmallIsZero lives.
template <int kRows>
__attribute__((noinline)) void multiply_column_pairs(const std::byte* weights, std::uint32_t pairs,
                                                     const std::uint16_t* x, std::uint64_t stride, float* sums_memory) {
  const __m256i upper = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
  const auto odd_of = [&](__m256i v) QUIRE_LAMBDA { return _mm256_castsi256_ps(_mm256_and_si256(v, upper)); };
  const auto even_of = [](__m256i v) QUIRE_LAMBDA { return _mm256_castsi256_ps(_mm256_slli_epi32(v, 16)); };
  __m256 sums[kRows][2];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    sums[r][0] = _mm256_loadu_ps(sums_memory + r * 16);
    sums[r][1] = _mm256_loadu_ps(sums_memory + r * 16 + 8);
  }
  for (std::uint32_t k = 0; k < pairs; ++k) {
    const auto* both = reinterpret_cast<const __m256i*>(weights + k * 64);
    const __m256i low = _mm256_loadu_si256(both), high = _mm256_loadu_si256(both + 1);
    const __m256 odd[2] = {odd_of(low), odd_of(high)}, even[2] = {even_of(low), even_of(high)};
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      std::int32_t two;
      __builtin_memcpy(&two, x + r * stride + 2 * k, 4);
      const __m256i pair = _mm256_set1_epi32(two);
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h) {
        sums[r][h] = _mm256_fmadd_ps(odd[h], odd_of(pair), sums[r][h]);
        sums[r][h] = _mm256_fmadd_ps(even[h], even_of(pair), sums[r][h]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    _mm256_storeu_ps(sums_memory + r * 16, sums[r][0]);
    _mm256_storeu_ps(sums_memory + r * 16 + 8, sums[r][1]);
  }
}

// Calls multiply.operator()<rows>(first) for all rows, kRowsAvx2 at a time and then the rest.
template <typename Multiply>
QUIRE_INLINE void by_rows(std::uint32_t rows, Multiply multiply) {
  std::uint32_t i = 0;
  for (; i + kRowsAvx2 <= rows; i += kRowsAvx2) multiply.template operator()<kRowsAvx2>(i);
  switch (rows - i) {
    case 1: return multiply.template operator()<1>(i);
    case 2: return multiply.template operator()<2>(i);
    case 3: return multiply.template operator()<3>(i);
    default: return;
  }
}

template <typename Column>
void multiply_float_tile(const WeightTiles& weight, std::uint32_t tile, const float* x, std::uint64_t stride,
                         std::uint32_t rows, float* sums, std::byte* unpacked) {
  // Weights that are used more often than that are converted to floats once.
  const bool unpack = Column::kBytes != 64 && rows > kRowsAvx2;
  constexpr std::uint32_t kCols = 128;  // half of the scratch memory, a quarter of the L1 cache
  const std::byte* first = weight.data + tile * weight.tile_bytes;
  const std::uint32_t step = rows <= kRowsAvx2 ? weight.cols : kCols;
  for (std::uint32_t col = 0; col < weight.cols; col += step) {
    const std::uint32_t cols = weight.cols - col < step ? weight.cols - col : step;
    const std::byte* from = first + std::uint64_t{col} * Column::kBytes;
    for (std::uint32_t k = 0; unpack && k < cols; ++k) {
      for (int h = 0; h < 2; ++h) {
        _mm256_storeu_ps(reinterpret_cast<float*>(unpacked) + k * 16 + 8 * h,
                         Column::half(from + k * Column::kBytes, h));
      }
    }
    by_rows(rows, [&]<int kRows>(std::uint32_t i) {
      if (unpack) {
        multiply_columns<F32Column, kRows>(unpacked, cols, x + i * stride + col, stride, sums + i * 16);
      } else {
        multiply_columns<Column, kRows>(from, cols, x + i * stride + col, stride, sums + i * 16);
      }
    });
  }
}

void multiply_pair_tile(const WeightTiles& weight, std::uint32_t tile, const std::uint16_t* x, std::uint64_t stride,
                        std::uint32_t rows, float* sums) {
  constexpr std::uint32_t kPairs = 128;
  const SmallIsZero mode;
  const std::byte* first = weight.data + tile * weight.tile_bytes;
  const std::uint32_t all = (weight.cols + 1) / 2, step = rows <= kRowsAvx2 ? all : kPairs;
  for (std::uint32_t at = 0; at < all; at += step) {
    const std::uint32_t pairs = all - at < step ? all - at : step;
    by_rows(rows, [&]<int kRows>(std::uint32_t i) {
      multiply_column_pairs<kRows>(first + std::uint64_t{at} * 64, pairs, x + i * stride + 2 * at, stride,
                                   sums + i * 16);
    });
  }
}

// Calls multiply(tile) for each tile, which adds to sums [rows][16], and writes them to the output.
template <typename Multiply>
void multiply_each_tile(const WeightTiles& weight, std::uint32_t begin, std::uint32_t tiles_end, std::uint32_t rows,
                        const ProductOut& out, float* sums, Multiply multiply) {
  const Ending end{&out, weight.rows};
  for (std::uint32_t tile = begin; tile < tiles_end; ++tile) {
    __builtin_memset(sums, 0, std::size_t{rows} * kTileRows * sizeof(float));
    multiply(tile);
    for (std::uint32_t i = 0; i < rows; ++i) end(i, tile, load16(sums + std::size_t{i} * kTileRows));
  }
}

void multiply_float_avx2(const WeightTiles& weight, std::uint32_t begin, std::uint32_t tiles_end, const float* x,
                         std::uint64_t stride, std::uint32_t rows, const ProductOut& out,
                         const ProductScratch& scratch) {
  multiply_each_tile(weight, begin, tiles_end, rows, out, scratch.sums, [&](std::uint32_t tile) {
    if (weight.type == gguf::Type::F32) {
      multiply_float_tile<F32Column>(weight, tile, x, stride, rows, scratch.sums, scratch.quants);
    } else if (weight.type == gguf::Type::F16) {
      multiply_float_tile<F16Column>(weight, tile, x, stride, rows, scratch.sums, scratch.quants);
    }
  });
}

void multiply_bf16_avx2(const WeightTiles& weight, std::uint32_t begin, std::uint32_t tiles_end, const std::uint16_t* x,
                        std::uint64_t stride, std::uint32_t rows, const ProductOut& out,
                        const ProductScratch& scratch) {
  multiply_each_tile(weight, begin, tiles_end, rows, out, scratch.sums,
                     [&](std::uint32_t tile) { multiply_pair_tile(weight, tile, x, stride, rows, scratch.sums); });
}
