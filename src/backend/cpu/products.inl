// Matrix products. An element of the result is computed by the same operations in the same order, whatever the number
// of rows. For each block of columns, the exact integer sum is converted to float, multiplied by the product of both
// scales, and added. Then the block's offset times the sum of the input is added. Float weights: column by column.

// How many tiles and rows of the input are multiplied at once: as many as the registers hold.
#if defined(__AVX512F__)
constexpr std::uint32_t kTilesAtOnce = 3, kRowsAtOnce = 4;
constexpr int kTurn = 8;  // rows at once with one tile
#elif defined(__AVX2__)
constexpr std::uint32_t kTilesAtOnce = 1, kRowsAtOnce = 4;
constexpr int kTurn = 2;
#else
constexpr std::uint32_t kTilesAtOnce = 1, kRowsAtOnce = 1;
constexpr int kTurn = 1;
#endif
// Up to this many rows, weights are unpacked in registers as they come from memory, so that loading and multiplying
// overlap. With more rows it pays to unpack them to memory first. Q8_0 needs no unpacking.
constexpr std::uint32_t kFewPacked = 16, kFewUnpacked = 32, kFewFloat = 4;
constexpr std::uint32_t kAhead = 8192;  // prefetch distance in bytes
// Columns of weights that are unpacked at once, and multiplied with all rows while they are in the cache.
constexpr std::uint32_t kChunkCols = kMostChunkCols;

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
};

// One block of 32 columns. `weights(t, j)` is vector j of tile t. kAdded: the value that was added to signed quants.
template <int kTiles, int kRows, bool kHalves, bool kOffsets, int kAdded, typename Weights>
QUIRE_INLINE void multiply_block(const InputRows<kHalves>& x, std::uint32_t b, Weights weights, const V16* scales,
                                 const V16* offsets, V16 (&sums)[kTiles][kRows]) {
  constexpr int kParts = kHalves ? 2 : 1, kSteps = 8 / kParts;
#pragma GCC unroll 2
  for (int part = 0; part < kParts; ++part) {
    I16 products[kTiles][kRows];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      I16 start = {};
      if (kAdded != 0) {  // starts are computed for kBias
        constexpr int kLess = kAdded == 0 ? 0 : __builtin_ctz(kBias / kAdded);
        start = (x.starts[r * (x.stride / x.kPart) + b * kParts + part] >> kLess) - I16{};
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
        const I16 four = all_of(x.q + r * x.stride + 32 * b + 4 * (part * kSteps + j));
#pragma GCC unroll 4
        for (int t = 0; t < kTiles; ++t) products[t][r] = add_products(products[t][r], w[t], four);
      }
    }
#pragma GCC unroll 4
    for (int t = 0; t < kTiles; ++t) {
      const std::uint32_t at = (b * kParts + part) * kTiles + t;
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const float scale = x.scales[r * (x.stride / 32) + b];
        sums[t][r] = fma(to_floats(products[t][r]), scales[at] * scale, sums[t][r]);
      }
      if (!kOffsets) continue;
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const float sum = x.sums[r * (x.stride / x.kPart) + b * kParts + part];
        sums[t][r] = fma(offsets[at], all(sum), sums[t][r]);
      }
    }
  }
}

// Writes a sum to the output: adds the bias, then stores it or adds it to the output.
struct Ending {
  const ProductOut* out;
  std::uint32_t rows;  // of the weight; rows beyond are padding

  QUIRE_INLINE void operator()(std::uint32_t row, std::uint32_t tile, V16 sum) const {
    const std::uint32_t n = tile * kTileRows, count = rows - n < kTileRows ? rows - n : kTileRows;
    float* to = out->data + row * out->stride + n;
    if (count == kTileRows) {
      if (out->bias != nullptr) sum = sum + load16(out->bias + n);
      store16(to, out->add ? fma(sum, all(out->scale), load16(to)) : sum);
    } else {
      if (out->bias != nullptr) sum = sum + load_some(out->bias + n, count);
      store_some(to, out->add ? fma(sum, all(out->scale), load_some(to, count)) : sum, count);
    }
  }
};

// --- few rows: weights go from memory to registers

template <typename Source, int kRows>
void multiply_few(const WeightTiles& weight, std::uint32_t tile, const QuantInput& x, std::uint64_t stride,
                  std::uint32_t first, const Ending& end) {
  const std::byte* piece = weight.data + tile * weight.tile_bytes;
  V16 sums[1][kRows] = {};
  for (std::uint32_t at = 0; at < weight.cols; at += kPieceCols) {
    const std::uint32_t blocks = weight.cols - at < kPieceCols ? (weight.cols - at) / 32 : 8;
    const std::uint32_t bytes = Source::piece_bytes(blocks);
    V16 scales[16], offsets[16];
    Source::scales(piece, blocks, scales, offsets, 1);
    const InputRows<Source::kHalves> rows(x, stride, first, at);
    for (std::uint32_t b = 0; b < blocks; ++b) {
      // One or two rows are so fast that the hardware prefetcher keeps up, and prefetches only cost time. Later rows
      // find the tile in the cache.
      if (kRows > 2 && first == 0 && blocks == 8) {
        constexpr std::uint32_t kLines = Source::piece_bytes(8) / 64;
        for (std::uint32_t line = kLines * b / 8; line < kLines * (b + 1) / 8; ++line) {
          __builtin_prefetch(piece + kAhead + line * 64, 0, 2);
        }
      }
      B64 w[8];
      Source::block(piece, blocks, b, w);
      multiply_block<1, kRows, Source::kHalves, Source::kOffsets, Source::kAdded>(
          rows, b, [&](int, int j) QUIRE_LAMBDA { return w[j]; }, scales, offsets, sums);
    }
    piece += bytes;
  }
  for (int r = 0; r < kRows; ++r) end(first + static_cast<std::uint32_t>(r), tile, sums[0][r]);
}

// --- many rows: a chunk of weights is unpacked, and stays in the cache while all rows are multiplied

// Unpacked weights, the same for every type: vectors of quants [tiles][blocks][8] of 64 bytes, and scales [blocks or
// halves][tiles].
struct Chunk {
  const std::byte* quants;
  std::uint64_t tile_stride;  // bytes
  const V16* scales;
  const V16* offsets;
  std::uint32_t blocks;
};

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
    multiply_block<kTiles, kRows, kHalves, kOffsets, kOffsets ? 0 : kBias>(
        x, 0, [&](int t, int j) QUIRE_LAMBDA { return load64(quants + t * chunk.tile_stride + j * 64); }, scales,
        offsets, sums);
    x.q += 32;
    x.scales += 1;
    x.starts += 32 / x.kPart;
    x.sums += 32 / x.kPart;
  }
  for (int r = 0; r < kRows; ++r) {
    for (int t = 0; t < kTiles; ++t) store16(sums_memory + (r * kTiles + t) * 16, sums[t][r]);
  }
}

template <typename Source>
void unpack_tile(const WeightTiles& weight, std::uint32_t tile, std::uint32_t col, std::uint32_t cols,
                 std::byte* quants, V16* scales, V16* offsets, std::uint32_t tiles) {
  constexpr std::uint32_t kParts = Source::kHalves ? 2 : 1;
  const std::byte* piece = weight.data + tile * weight.tile_bytes + col / kPieceCols * Source::piece_bytes(8);
  for (std::uint32_t at = 0; at < cols; at += kPieceCols) {
    const std::uint32_t blocks = cols - at < kPieceCols ? (cols - at) / 32 : 8;
    const std::uint32_t first = at / 32 * kParts * tiles;
    Source::scales(piece, blocks, scales + first, offsets + first, tiles);
    if (quants != nullptr) {
      for (std::uint32_t b = 0; b < blocks; ++b) {
        B64 w[8];
        Source::block(piece, blocks, b, w);
#pragma GCC unroll 8
        for (int j = 0; j < 8; ++j) {
          if (!Source::kOffsets) w[j] += static_cast<std::uint8_t>(kBias - Source::kAdded);
          *reinterpret_cast<B64*>(quants + (at / 32 + b) * 512 + j * 64) = w[j];
        }
      }
    }
    piece += Source::piece_bytes(blocks);
  }
}

// For a type without tiles: rows are unpacked one by one, then interleaved.
void unpack_rows(const WeightTiles& weight, std::uint32_t tile, std::uint32_t col, std::uint32_t cols, bool halves,
                 bool offsets_too, std::byte* quants, V16* scales, V16* offsets, std::uint32_t tiles) {
  alignas(64) std::int8_t q[kChunkCols];
  float row_scales[kChunkCols / 16], row_offsets[kChunkCols / 16];
  const QuantRow row{q, row_scales, row_offsets};
  const std::uint32_t parts = halves ? 2 : 1;
  for (std::uint32_t r = 0; r < kTileRows; ++r) {
    const std::uint32_t n = tile * kTileRows + r;
    if (n < weight.rows) {
      unpack_quant(weight.type, weight.data + n * weight.row_bytes + col / weight.block_cols * weight.block_bytes, cols,
                   row);
    } else {
      __builtin_memset(q, 0, sizeof(q));
      __builtin_memset(row_scales, 0, sizeof(row_scales));
      __builtin_memset(row_offsets, 0, sizeof(row_offsets));
    }
    if (!offsets_too) {
      for (std::uint32_t i = 0; i < cols; ++i) q[i] = static_cast<std::int8_t>(q[i] + kBias);
    }
    for (std::uint32_t i = 0; i < cols; i += 4) __builtin_memcpy(quants + i * kTileRows + r * 4, q + i, 4);
    for (std::uint32_t i = 0; i < cols / 32 * parts; ++i) {
      scales[i * tiles][r] = row_scales[halves ? i : 2 * i];
      if (offsets_too) offsets[i * tiles][r] = row_offsets[halves ? i : 2 * i];
    }
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
  const auto unpack = [&](std::uint32_t tile, std::uint32_t col, std::uint32_t cols, std::byte* quants, V16* scales,
                          V16* offsets, std::uint32_t tiles) {
    unpack_tile<Source>(weight, tile, col, cols, quants, scales, offsets, tiles);
  };
  multiply_range<Source::kHalves, Source::kOffsets>(weight, begin, tiles_end, x, stride, rows, end, scratch, unpack);
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
  const bool halves = weight.type == T::Q2_K || weight.type == T::Q3_K || weight.type == T::IQ2_XS ||
                      weight.type == T::IQ2_S || weight.type == T::IQ1_M;
  const bool offsets_too = weight.type == T::Q2_K || weight.type == T::Q4_1 || weight.type == T::Q5_1;
  const auto unpack = [&](std::uint32_t tile, std::uint32_t col, std::uint32_t cols, std::byte* quants, V16* scales,
                          V16* offsets, std::uint32_t tiles) {
    unpack_rows(weight, tile, col, cols, halves, offsets_too, quants, scales, offsets, tiles);
  };
  if (halves && offsets_too) {
    multiply_range<true, true>(weight, begin, tiles_end, x, stride, rows, end, scratch, unpack);
  } else if (halves) {
    multiply_range<true, false>(weight, begin, tiles_end, x, stride, rows, end, scratch, unpack);
  } else if (offsets_too) {
    multiply_range<false, true>(weight, begin, tiles_end, x, stride, rows, end, scratch, unpack);
  } else {
    multiply_range<false, false>(weight, begin, tiles_end, x, stride, rows, end, scratch, unpack);
  }
}

// --- floats

struct F32Source {
  static constexpr std::uint32_t kBytes = 64;
  static QUIRE_INLINE V16 load(const std::byte* p) { return load16(reinterpret_cast<const float*>(p)); }
};
struct F16Source {
  static constexpr std::uint32_t kBytes = 32;
  static QUIRE_INLINE V16 load(const std::byte* p) { return load_halves(p); }
};
struct BF16Source {
  static constexpr std::uint32_t kBytes = 32;
  static QUIRE_INLINE V16 load(const std::byte* p) { return load_brain_halves(p); }
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
    case gguf::Type::BF16:
      return multiply_float_range<BF16Source>(weight, begin, tiles_end, x, stride, rows, end, scratch);
    default: return;
  }
}
