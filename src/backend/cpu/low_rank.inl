// What an adapter (LoRA) adds: t = A x, then out += factor * (B t). Lanes are the elements of t, and of out, so nothing
// is added across lanes.
//
//   A   tiles of 16 rows, [cols][16] each; t[r] is four sums, of the columns k with k % 4 = 0, 1, 2, 3, each from the
//       first column on; then (0 + 1) + (2 + 3)
//   B   tiles of 16 rows, [rank][16] each; u[n] is one sum from the first column on
//
// Each product is fused with its sum, in all variants: so they agree to the bit.

// a * b + c, rounded once.
QUIRE_INLINE V16 fused(V16 a, V16 b, V16 c) {
#if defined(__AVX512F__) || defined(__FMA__)
  return fma(a, b, c);
#else
  for (int i = 0; i < 16; ++i) c[i] = __builtin_fmaf(a[i], b[i], c[i]);
  return c;
#endif
}

// Some rows at once, so that a tile is read once for all of them.
template <int kRows>
QUIRE_INLINE void low_rank_a_rows(const float* tile, std::uint32_t cols, const LowRankRows& r,
                                  const std::uint32_t* rows, std::uint32_t at) {
  V16 sums[kRows][4] = {};
  const float* x[kRows];
  for (int i = 0; i < kRows; ++i) x[i] = r.x + rows[i] * r.x_stride;
  std::uint32_t k = 0;
  for (; k + 4 <= cols; k += 4) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const V16 a = load16(tile + (std::size_t{k} + static_cast<std::uint32_t>(j)) * 16);
#pragma GCC unroll 4
      for (int i = 0; i < kRows; ++i) sums[i][j] = fused(a, all(x[i][k + static_cast<std::uint32_t>(j)]), sums[i][j]);
    }
  }
  for (int j = 0; k < cols; ++k, ++j) {
    const V16 a = load16(tile + std::size_t{k} * 16);
    for (int i = 0; i < kRows; ++i) sums[i][j] = fused(a, all(x[i][k]), sums[i][j]);
  }
  for (int i = 0; i < kRows; ++i) {
    store16(r.t + rows[i] * r.t_stride + at, (sums[i][0] + sums[i][1]) + (sums[i][2] + sums[i][3]));
  }
}

void low_rank_a(const float* a, std::uint32_t rank, std::uint32_t cols, const LowRankRows& r) {
  for (std::uint32_t at = 0; at < rank; at += 16, a += std::size_t{cols} * 16) {
    std::uint32_t i = 0;
    for (; i + 4 <= r.count; i += 4) low_rank_a_rows<4>(a, cols, r, r.rows + i, at);
    for (; i < r.count; ++i) low_rank_a_rows<1>(a, cols, r, r.rows + i, at);
  }
}

template <int kRows>
QUIRE_INLINE void low_rank_b_rows(const float* tile, std::uint32_t rank, const LowRankRows& r,
                                  const std::uint32_t* rows, float* out, std::uint64_t out_stride, float factor,
                                  std::uint32_t lanes) {
  V16 sums[kRows] = {};
  const float* t[kRows];
  for (int i = 0; i < kRows; ++i) t[i] = r.t + rows[i] * r.t_stride;
  for (std::uint32_t k = 0; k < rank; ++k) {
    const V16 b = load16(tile + std::size_t{k} * 16);
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) sums[i] = fused(b, all(t[i][k]), sums[i]);
  }
  for (int i = 0; i < kRows; ++i) {
    float* const to = out + rows[i] * out_stride;
    store_up_to(to, fused(sums[i], all(factor), load_up_to(to, lanes)), lanes);
  }
}

// Tiles [begin, end) of B, which has `outs` rows. `out` is that of tile 0.
void low_rank_b(const float* b, std::uint32_t rank, std::uint32_t outs, std::uint32_t begin, std::uint32_t end,
                const LowRankRows& r, float* out, std::uint64_t out_stride, float factor) {
  for (std::uint32_t tile = begin; tile < end; ++tile) {
    const float* const weights = b + std::size_t{tile} * rank * 16;
    const std::uint32_t lanes = outs - tile * 16 < 16 ? outs - tile * 16 : 16;
    std::uint32_t i = 0;
    for (; i + 4 <= r.count; i += 4) {
      low_rank_b_rows<4>(weights, rank, r, r.rows + i, out + tile * 16, out_stride, factor, lanes);
    }
    for (; i < r.count; ++i) {
      low_rank_b_rows<1>(weights, rank, r, r.rows + i, out + tile * 16, out_stride, factor, lanes);
    }
  }
}
