// Unpacks chunks of quantised weights, so that they stay in the cache while many rows of the input are multiplied.

// Unpacked weights, the same for every type: vectors of quants [tiles][blocks][8] of 64 bytes, and scales [blocks or
// halves][tiles].
struct Chunk {
  const std::byte* quants;
  std::uint64_t tile_stride;  // bytes
  const V16* scales;
  const V16* offsets;
  std::uint32_t blocks;
};

// Signed quants come with kTarget added.
template <typename Source, int kTarget>
void unpack_tile(const WeightTiles& weight, std::uint32_t tile, std::uint32_t col, std::uint32_t cols,
                 std::byte* quants, V16* scales, V16* offsets, std::uint32_t tiles) {
  constexpr std::uint32_t kParts = Source::kHalves ? 2 : 1;
  const std::byte* piece = weight.data + tile * weight.tile_bytes + col / kPieceCols * Source::piece_bytes(8);
  for (std::uint32_t at = 0; at < cols; at += kPieceCols) {
    const std::uint32_t blocks = !Source::kWhole && cols - at < kPieceCols ? (cols - at) / 32 : 8;
    const std::uint32_t first = at / 32 * kParts * tiles;
    const typename Source::Scales own(piece);
#pragma GCC unroll 16
    for (std::uint32_t i = 0; i < blocks * kParts; ++i) {
      scales[first + i * tiles] = own.scale(i);
      if constexpr (Source::kOffsets) offsets[first + i * tiles] = own.offset(i);
    }
    if (quants != nullptr) {
      for (std::uint32_t b = 0; b < blocks; ++b) {
        B64 w[8];
        Source::block(piece, blocks, b, w);
#pragma GCC unroll 8
        for (int j = 0; j < 8; ++j) {
          if (!Source::kOffsets) w[j] += static_cast<std::uint8_t>(kTarget - Source::kAdded);
          *reinterpret_cast<B64*>(quants + (at / 32 + b) * 512 + j * 64) = w[j];
        }
      }
    }
    piece += Source::piece_bytes(blocks);
  }
}

// For a type without tiles: rows are unpacked one by one, then interleaved.
template <int kTarget>
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
      for (std::uint32_t i = 0; i < cols; ++i) q[i] = static_cast<std::int8_t>(q[i] + kTarget);
    }
    for (std::uint32_t i = 0; i < cols; i += 4) __builtin_memcpy(quants + i * kTileRows + r * 4, q + i, 4);
    for (std::uint32_t i = 0; i < cols / 32 * parts; ++i) {
      scales[i * tiles][r] = row_scales[halves ? i : 2 * i];
      if (offsets_too) offsets[i * tiles][r] = row_offsets[halves ? i : 2 * i];
    }
  }
}

// Calls multiply.operator()<kHalves, kOffsets>(unpack), with the function that unpacks a tile of this type.
template <typename Source, int kTarget, typename Multiply>
void with_unpacked_tiles(const WeightTiles& weight, Multiply multiply) {
  multiply.template operator()<Source::kHalves, Source::kOffsets>([&](std::uint32_t tile, std::uint32_t col,
                                                                      std::uint32_t cols, std::byte* quants,
                                                                      V16* scales, V16* offsets, std::uint32_t tiles) {
    unpack_tile<Source, kTarget>(weight, tile, col, cols, quants, scales, offsets, tiles);
  });
}
// The same for a type without tiles.
template <int kTarget, typename Multiply>
void with_unpacked_rows(const WeightTiles& weight, Multiply multiply) {
  using T = gguf::Type;
  const bool halves = weight.type == T::Q2_K || weight.type == T::Q3_K || weight.type == T::IQ2_XS ||
                      weight.type == T::IQ2_S || weight.type == T::IQ1_M;
  const bool offsets_too = weight.type == T::Q2_K || weight.type == T::Q4_1 || weight.type == T::Q5_1;
  const auto unpack = [&](std::uint32_t tile, std::uint32_t col, std::uint32_t cols, std::byte* quants, V16* scales,
                          V16* offsets, std::uint32_t tiles) {
    unpack_rows<kTarget>(weight, tile, col, cols, halves, offsets_too, quants, scales, offsets, tiles);
  };
  if (halves && offsets_too) {
    multiply.template operator()<true, true>(unpack);
  } else if (halves) {
    multiply.template operator()<true, false>(unpack);
  } else if (offsets_too) {
    multiply.template operator()<false, true>(unpack);
  } else {
    multiply.template operator()<false, false>(unpack);
  }
}
