// Matrix products with quantised weights. An element of the result is computed by the same operations in the same
// order, whatever the number of rows. For each block of columns, the exact integer sum is converted to float,
// multiplied by the product of both scales, and added. Then the block's offset times the sum of the input is added.

// The rows of the input that are multiplied at once.
template <bool kHalves>
struct InputRows {
  static constexpr std::uint32_t kPart = kHalves ? 16 : 32;
  const std::int8_t* q;
  const float* scales;
  const std::int32_t* starts;  // one for each part of a block with a scale of its own; sums likewise
  const float* sums;
  std::uint64_t stride;  // columns from one row to the next

  InputRows(const QuantInput& x, std::uint64_t between, std::uint32_t row, std::uint32_t col)
      : q(x.q + row * between + col),
        scales(x.scales + (row * between + col) / 32),
        starts((kHalves ? x.half_starts : x.starts) + (row * between + col) / kPart),
        sums((kHalves ? x.half_sums : x.sums) + (row * between + col) / kPart),
        stride(between) {}

  QUIRE_INLINE void to_next_block() {
    q += 32;
    scales += 1;
    starts += 32 / kPart;
    sums += 32 / kPart;
  }
};

// One block of 32 columns. `weights(t, j)` is vector j of tile t. kAdded: the value that was added to signed quants.
// kTimes16: the last four vectors count sixteen times.
#if defined(__AVX2__) && !defined(__AVX512F__)
// The same for registers of 32 bytes. (The compiler would keep vectors of 64 bytes in memory.) Weights with offsets
// have at most five bits and are not negative, so four sums of two products are added in 16 bits.
template <int kTiles, int kRows, bool kHalves, bool kOffsets, int kAdded, bool kTimes16, typename Weights>
QUIRE_INLINE void multiply_block(const InputRows<kHalves>& x, Weights weights, const V16* scales, const V16* offsets,
                                 V16 (&sums)[kTiles][kRows]) {
  static_assert(kAdded == 0 && !kTimes16);
  constexpr int kParts = kHalves ? 2 : 1, kSteps = 8 / kParts;
  const __m256i ones = _mm256_set1_epi16(1);
#pragma GCC unroll 2
  for (int part = 0; part < kParts; ++part) {
#pragma GCC unroll 2
    for (int t = 0; t < kTiles; ++t) {
      __m256i products[kRows][2], pairs[kRows][2];
#pragma GCC unroll 8
      for (int j = 0; j < kSteps; ++j) {
        const B64 both = weights(t, part * kSteps + j);
        __m256i w[2], size[2];
        __builtin_memcpy(w, &both, 64);
        if (!kOffsets) size[0] = _mm256_abs_epi8(w[0]), size[1] = _mm256_abs_epi8(w[1]);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          std::int32_t four;
          __builtin_memcpy(&four, x.q + r * x.stride + 4 * (part * kSteps + j), 4);
          const __m256i input = _mm256_set1_epi32(four);
#pragma GCC unroll 2
          for (int h = 0; h < 2; ++h) {
            if (kOffsets) {
              const __m256i pair = _mm256_maddubs_epi16(w[h], input);
              pairs[r][h] = j % 4 == 0 ? pair : _mm256_add_epi16(pairs[r][h], pair);
              if (j % 4 != 3) continue;
            } else {
              pairs[r][h] = _mm256_maddubs_epi16(size[h], _mm256_sign_epi8(input, w[h]));
            }
            const __m256i four_products = _mm256_madd_epi16(pairs[r][h], ones);
            const bool first = j < (kOffsets ? 4 : 1);
            products[r][h] = first ? four_products : _mm256_add_epi32(products[r][h], four_products);
          }
        }
      }
      const std::uint32_t at = part * kTiles + t;
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h) {
        const __m256 scale = _mm256_loadu_ps(reinterpret_cast<const float*>(scales + at) + 8 * h);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          float* sum = reinterpret_cast<float*>(&sums[t][r]) + 8 * h;
          const __m256 factor = _mm256_mul_ps(scale, _mm256_set1_ps(x.scales[r * (x.stride / 32)]));
          __m256 next = _mm256_fmadd_ps(_mm256_cvtepi32_ps(products[r][h]), factor, _mm256_loadu_ps(sum));
          if (kOffsets) {
            const __m256 offset = _mm256_loadu_ps(reinterpret_cast<const float*>(offsets + at) + 8 * h);
            const float input_sum = x.sums[r * (x.stride / x.kPart) + part];
            next = _mm256_fmadd_ps(offset, _mm256_set1_ps(input_sum), next);
          }
          _mm256_storeu_ps(sum, next);
        }
      }
    }
  }
}
#else
template <int kTiles, int kRows, bool kHalves, bool kOffsets, int kAdded, bool kTimes16, typename Weights>
QUIRE_INLINE void multiply_block(const InputRows<kHalves>& x, Weights weights, const V16* scales, const V16* offsets,
                                 V16 (&sums)[kTiles][kRows]) {
  constexpr int kParts = kHalves ? 2 : 1, kSteps = 8 / kParts;
#pragma GCC unroll 2
  for (int part = 0; part < kParts; ++part) {
    I16 products[kTiles][kRows], upper[kTiles][kRows] = {};
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      I16 start = {};
      if (kAdded != 0) {  // starts are computed for kBias
        constexpr int kLess = kAdded == 0 ? 0 : __builtin_ctz(kBias / kAdded);
        start = (x.starts[r * (x.stride / x.kPart) + part] >> kLess) - I16{};
      }
#pragma GCC unroll 4
      for (int t = 0; t < kTiles; ++t) products[t][r] = start;
    }
#pragma GCC unroll 8
    for (int j = 0; j < kSteps; ++j) {
      B64 w[kTiles];
#pragma GCC unroll 4
      for (int t = 0; t < kTiles; ++t) w[t] = weights(t, part * kSteps + j);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const I16 four = all_of(x.q + r * x.stride + 4 * (part * kSteps + j));
#pragma GCC unroll 4
        for (int t = 0; t < kTiles; ++t) {
          I16& sum = kTimes16 && j >= 4 ? upper[t][r] : products[t][r];
          sum = add_products(sum, w[t], four);
          if (kTimes16 && j == 7) products[t][r] += sum >> 4;
        }
      }
    }
#pragma GCC unroll 4
    for (int t = 0; t < kTiles; ++t) {
      const std::uint32_t at = part * kTiles + t;
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const float scale = x.scales[r * (x.stride / 32)];
        sums[t][r] = fma(to_floats(products[t][r]), scales[at] * scale, sums[t][r]);
      }
      if (!kOffsets) continue;
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const float sum = x.sums[r * (x.stride / x.kPart) + part];
        sums[t][r] = fma(offsets[at], all(sum), sums[t][r]);
      }
    }
  }
}
#endif

// --- few rows: weights go from memory to registers

template <typename Source, int kRows>
void multiply_few(const WeightTiles& weight, std::uint32_t tile, const QuantInput& x, std::uint64_t stride,
                  std::uint32_t first, const Ending& end) {
  // One or two rows are bound by unpacking where memory is fast. Then scales stay in registers, and upper nibbles are
  // not shifted: their sum is.
  constexpr bool kTimes16 = Source::kNibbles && kRows <= 2, kUnrolled = Source::kWhole && kRows <= 2;
  constexpr std::uint32_t kParts = Source::kHalves ? 2 : 1;
  const std::byte* piece = weight.data + tile * weight.tile_bytes;
  V16 sums[1][kRows] = {};
  for (std::uint32_t at = 0; at < weight.cols; at += kPieceCols) {
    const std::uint32_t blocks = !Source::kWhole && weight.cols - at < kPieceCols ? (weight.cols - at) / 32 : 8;
    const typename Source::Scales all_scales(piece);
    InputRows<Source::kHalves> rows(x, stride, first, at);
    const auto multiply = [&](std::uint32_t b, const V16* scales, const V16* offsets) QUIRE_LAMBDA {
      // One or two rows are so fast that most hardware prefetchers keep up, and prefetches only cost time. Later rows
      // find the tile in the cache.
      if ((kRows > 2 || weight.prefetch) && first == 0 && blocks == 8) {
        constexpr std::uint32_t kLines = Source::piece_bytes(8) / 64;
        for (std::uint32_t line = kLines * b / 8; line < kLines * (b + 1) / 8; ++line) {
          __builtin_prefetch(piece + kAhead + line * 64, 0, 2);
        }
      }
      B64 w[8];
      Source::template block<kTimes16>(piece, blocks, b, w);
      multiply_block<1, kRows, Source::kHalves, Source::kOffsets, Source::kAdded, kTimes16>(
          rows, [&](int, int j) QUIRE_LAMBDA { return w[j]; }, scales, offsets, sums);
      rows.to_next_block();
    };
    const auto multiply_one = [&](std::uint32_t b) QUIRE_LAMBDA {
      V16 scales[kParts], offsets[kParts];
#pragma GCC unroll 2
      for (std::uint32_t i = 0; i < kParts; ++i) {
        scales[i] = all_scales.scale(b * kParts + i);
        if constexpr (Source::kOffsets) offsets[i] = all_scales.offset(b * kParts + i);
      }
      multiply(b, scales, offsets);
    };
    if constexpr (kUnrolled) {
#pragma GCC unroll 8
      for (std::uint32_t b = 0; b < 8; ++b) multiply_one(b);
    } else if constexpr (!Source::kWhole) {
      for (std::uint32_t b = 0; b < blocks; ++b) multiply_one(b);
    } else {
      V16 scales[8 * kParts], offsets[8 * kParts];
#pragma GCC unroll 16
      for (std::uint32_t i = 0; i < 8 * kParts; ++i) {
        scales[i] = all_scales.scale(i);
        if constexpr (Source::kOffsets) offsets[i] = all_scales.offset(i);
      }
      for (std::uint32_t b = 0; b < 8; ++b) multiply(b, scales + b * kParts, offsets + b * kParts);
    }
    piece += Source::piece_bytes(blocks);
  }
  for (int r = 0; r < kRows; ++r) end(first + static_cast<std::uint32_t>(r), tile, sums[0][r]);
}

// --- many rows: a chunk of weights is unpacked, and stays in the cache while all rows are multiplied

template <int kTiles, int kRows, bool kHalves, bool kOffsets>
__attribute__((noinline)) void multiply_chunk(const Chunk& chunk, InputRows<kHalves> x, float* sums_memory) {
  V16 sums[kTiles][kRows];
  for (int r = 0; r < kRows; ++r) {
    for (int t = 0; t < kTiles; ++t) sums[t][r] = load16(sums_memory + (r * kTiles + t) * 16);
  }
  constexpr std::uint32_t kPerBlock = kTiles * (kHalves ? 2 : 1);
  const std::byte* quants = chunk.quants;
  const V16* scales = chunk.scales;
  const V16* offsets = chunk.offsets;
  for (std::uint32_t b = 0; b < chunk.blocks; ++b, quants += 512, scales += kPerBlock, offsets += kPerBlock) {
    multiply_block<kTiles, kRows, kHalves, kOffsets, kOffsets ? 0 : kBias, false>(
        x, [&](int t, int j) QUIRE_LAMBDA { return load64(quants + t * chunk.tile_stride + j * 64); }, scales, offsets,
        sums);
    x.to_next_block();
  }
  for (int r = 0; r < kRows; ++r) {
    for (int t = 0; t < kTiles; ++t) store16(sums_memory + (r * kTiles + t) * 16, sums[t][r]);
  }
}

template <int kTiles, bool kHalves, bool kOffsets>
void multiply_rows(const Chunk& chunk, const QuantInput& x, std::uint64_t stride, std::uint32_t col, std::uint32_t rows,
                   float* sums) {
  std::uint32_t i = 0;
  for (; i + kRowsAtOnce <= rows; i += kRowsAtOnce) {
    multiply_chunk<kTiles, kRowsAtOnce, kHalves, kOffsets>(chunk, {x, stride, i, col}, sums + i * kTiles * 16);
  }
  if constexpr (kRowsAtOnce > 1) {
    float* rest = sums + i * kTiles * 16;
    switch (rows - i) {
      case 1: multiply_chunk<kTiles, 1, kHalves, kOffsets>(chunk, {x, stride, i, col}, rest); break;
      case 2: multiply_chunk<kTiles, 2, kHalves, kOffsets>(chunk, {x, stride, i, col}, rest); break;
      case 3: multiply_chunk<kTiles, 3, kHalves, kOffsets>(chunk, {x, stride, i, col}, rest); break;
      default: break;
    }
  }
}

template <int kTiles, bool kHalves, bool kOffsets, typename Unpack>
void multiply_many(const WeightTiles& weight, std::uint32_t tile, const QuantInput& x, std::uint64_t stride,
                   std::uint32_t rows, const Ending& end, const ProductScratch& scratch, Unpack unpack) {
  V16* scales = reinterpret_cast<V16*>(scratch.scales);
  V16* offsets = reinterpret_cast<V16*>(scratch.offsets);
  __builtin_memset(scratch.sums, 0, std::size_t{rows} * kTiles * kTileRows * sizeof(float));
  for (std::uint32_t col = 0; col < weight.cols; col += kChunkCols) {
    const std::uint32_t cols = weight.cols - col < kChunkCols ? weight.cols - col : kChunkCols;
    const bool in_place = weight.type == gguf::Type::Q8_0;
    for (int t = 0; t < kTiles; ++t) {
      unpack(tile + static_cast<std::uint32_t>(t), col, cols,
             in_place ? nullptr : scratch.quants + t * kChunkCols * kTileRows, scales + t, offsets + t, kTiles);
    }
    Chunk chunk{scratch.quants, kChunkCols * kTileRows, scales, offsets, cols / 32};
    if (in_place) {
      chunk.quants = weight.data + tile * weight.tile_bytes + col / kPieceCols * q8_piece(8) + scales_bytes(cols / 32);
      chunk.tile_stride = weight.tile_bytes;
    }
    multiply_rows<kTiles, kHalves, kOffsets>(chunk, x, stride, col, rows, scratch.sums);
  }
  for (std::uint32_t i = 0; i < rows; ++i) {
    for (int t = 0; t < kTiles; ++t) {
      end(i, tile + static_cast<std::uint32_t>(t),
          load16(scratch.sums + (i * kTiles + static_cast<std::uint32_t>(t)) * 16));
    }
  }
}

template <bool kHalves, bool kOffsets, typename Unpack>
void multiply_range(const WeightTiles& weight, std::uint32_t begin, std::uint32_t tiles_end, const QuantInput& x,
                    std::uint64_t stride, std::uint32_t rows, const Ending& end, const ProductScratch& scratch,
                    Unpack unpack) {
  std::uint32_t tile = begin;
  if constexpr (kTilesAtOnce > 1) {
    for (; tile + kTilesAtOnce <= tiles_end; tile += kTilesAtOnce) {
      multiply_many<kTilesAtOnce, kHalves, kOffsets>(weight, tile, x, stride, rows, end, scratch, unpack);
    }
  }
  for (; tile < tiles_end; ++tile) {
    multiply_many<1, kHalves, kOffsets>(weight, tile, x, stride, rows, end, scratch, unpack);
  }
}

template <typename Source, int kRows = kTurn>
void multiply_some(const WeightTiles& weight, std::uint32_t tile, const QuantInput& x, std::uint64_t stride,
                   std::uint32_t first, std::uint32_t count, const Ending& end) {
  if constexpr (kRows == 1) {
    multiply_few<Source, 1>(weight, tile, x, stride, first, end);
  } else if (count == kRows) {
    multiply_few<Source, kRows>(weight, tile, x, stride, first, end);
  } else {
    multiply_some<Source, kRows - 1>(weight, tile, x, stride, first, count, end);
  }
}

template <typename Source>
void multiply_tiles(const WeightTiles& weight, std::uint32_t begin, std::uint32_t tiles_end, const QuantInput& x,
                    std::uint64_t stride, std::uint32_t rows, const Ending& end, const ProductScratch& scratch) {
  if (rows <= (weight.type == gguf::Type::Q8_0 ? kFewUnpacked : kFewPacked)) {
    for (std::uint32_t tile = begin; tile < tiles_end; ++tile) {
      // Turns have about the same number of rows.
      const std::uint32_t turns = (rows + kTurn - 1) / kTurn;
      for (std::uint32_t turn = 0, first = 0; turn < turns; ++turn) {
        const std::uint32_t count = (rows - first + turns - turn - 1) / (turns - turn);
        multiply_some<Source>(weight, tile, x, stride, first, count, end);
        first += count;
      }
    }
    return;
  }
  with_unpacked_tiles<Source, kBias>(weight, [&]<bool kHalves, bool kOffsets>(auto unpack) {
    multiply_range<kHalves, kOffsets>(weight, begin, tiles_end, x, stride, rows, end, scratch, unpack);
  });
}

void multiply_quant(const WeightTiles& weight, std::uint32_t begin, std::uint32_t tiles_end, const QuantInput& x,
                    std::uint64_t stride, std::uint32_t rows, const ProductOut& out, const ProductScratch& scratch) {
  const Ending end{&out, weight.rows};
  using T = gguf::Type;
  if (weight.tile_bytes != 0) {
    switch (weight.type) {
      case T::Q8_0: return multiply_tiles<Q8Source>(weight, begin, tiles_end, x, stride, rows, end, scratch);
      case T::Q4_0: return multiply_tiles<Q4Source>(weight, begin, tiles_end, x, stride, rows, end, scratch);
      case T::MXFP4: return multiply_tiles<MXFP4Source>(weight, begin, tiles_end, x, stride, rows, end, scratch);
      case T::Q4_K: return multiply_tiles<Q4KSource>(weight, begin, tiles_end, x, stride, rows, end, scratch);
      case T::Q5_K: return multiply_tiles<Q5KSource>(weight, begin, tiles_end, x, stride, rows, end, scratch);
      case T::Q6_K: return multiply_tiles<Q6KSource>(weight, begin, tiles_end, x, stride, rows, end, scratch);
      default: return;
    }
  }
  with_unpacked_rows<kBias>(weight, [&]<bool kHalves, bool kOffsets>(auto unpack) {
    multiply_range<kHalves, kOffsets>(weight, begin, tiles_end, x, stride, rows, end, scratch, unpack);
  });
}
