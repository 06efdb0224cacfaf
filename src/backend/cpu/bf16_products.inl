// Matrix products with weights in BF16. The input is rounded to BF16 too, as in the training of such models. One
// arithmetic for any number of rows and every variant, that of the instruction VDPBF16PS: columns in pairs, from the
// first to the last; in a pair first the odd column, then the even one; for each
//
//   sum = sum + w * x, rounded once, to nearest, ties to even
//
// where w and x below 2^-126 in size count as zero, and a sum that is below 2^-126 after rounding becomes zero. Both
// keep their signs. (Rounded as if exponents had no limit: only sums below 2^-126 - 2^-151 become zero.) Other variants
// do this with fused multiplication and addition in floats and the processor's modes for small numbers, or in doubles.
// AMX has an instruction for BF16 (TDPBF16PS), but it adds up even and odd columns apart from each other, which gives
// other bits. So no variant uses it.

#if defined(__FMA__) && !defined(__AVX512BF16__)
// While it lives, instructions on floats take small numbers as zero, and make small results zero.
class SmallIsZero {
 public:
  SmallIsZero() : before_(_mm_getcsr()) { _mm_setcsr(before_ | 0x8040); }
  ~SmallIsZero() { _mm_setcsr(before_); }
  SmallIsZero(const SmallIsZero&) = delete;
  SmallIsZero& operator=(const SmallIsZero&) = delete;

 private:
  unsigned before_;
};
#else
struct SmallIsZero {
  SmallIsZero() {}  // not trivial, so that a variable of this type counts as used
};
#endif

#if !defined(__FMA__)
inline double without_small(std::uint32_t bits) {
  float value;
  __builtin_memcpy(&value, &bits, 4);
  return (bits & 0x7f800000u) == 0 ? value * 0.0 : value;
}

// sum + w * x as stated above. The product is exact in a double. The sum is made odd if it is not exact; rounding an
// odd double to a float gives what rounding the exact value would.
__attribute__((noinline)) float add_product(float sum, std::uint32_t w, std::uint32_t x) {
  const double product = without_small(w) * without_small(x), add = sum;
  double all = product + add;
  const double back = all - product, error = (product - (all - back)) + (add - back);
  if (error < 0 || error > 0) {
    std::int64_t bits;
    __builtin_memcpy(&bits, &all, 8);
    if (bits % 2 == 0) bits += (error > 0) == (all > 0) ? 1 : -1;
    __builtin_memcpy(&all, &bits, 8);
  }
  const double size = all < 0 ? -all : all;
  return size < 0x1p-126 - 0x1p-151 ? static_cast<float>(all * 0.0) : static_cast<float>(all);
}
#endif

// Adds the products of a pair of columns, sixteen rows of weights with one of the input.
QUIRE_INLINE V16 add_pair(V16 sum, U16 w, U16 x) {
#if defined(__AVX512BF16__)
  return reinterpret_cast<V16>(
      _mm512_dpbf16_ps(reinterpret_cast<__m512>(sum), reinterpret_cast<__m512bh>(w), reinterpret_cast<__m512bh>(x)));
#elif defined(__FMA__)
  sum = fma(reinterpret_cast<V16>(w & 0xffff0000u), reinterpret_cast<V16>(x & 0xffff0000u), sum);
  return fma(reinterpret_cast<V16>(w << 16), reinterpret_cast<V16>(x << 16), sum);
#else
#pragma GCC unroll 1
  for (int i = 0; i < 16; ++i) {
    const float odd = add_product(sum[i], w[i] & 0xffff0000u, x[i] & 0xffff0000u);
    sum[i] = add_product(odd, w[i] << 16, x[i] << 16);
  }
  return sum;
#endif
}

// Not inlined: the compiler could move operations out of the life of a SmallIsZero.
template <int kTiles, int kRows>
__attribute__((noinline)) void multiply_pairs(const std::byte* weights, std::uint64_t tile_stride, std::uint32_t pairs,
                                              const std::uint16_t* x, std::uint64_t stride, float* sums_memory) {
  V16 sums[kTiles][kRows];
  for (int r = 0; r < kRows; ++r) {
    for (int t = 0; t < kTiles; ++t) sums[t][r] = load16(sums_memory + (r * kTiles + t) * 16);
  }
#pragma GCC unroll 2
  for (std::uint32_t k = 0; k < pairs; ++k) {
    U16 w[kTiles];
#pragma GCC unroll 4
    for (int t = 0; t < kTiles; ++t) w[t] = reinterpret_cast<U16>(load64(weights + t * tile_stride + k * 64));
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      std::uint32_t two;
      __builtin_memcpy(&two, x + r * stride + 2 * k, 4);
      const U16 pair = two - U16{};
#pragma GCC unroll 4
      for (int t = 0; t < kTiles; ++t) sums[t][r] = add_pair(sums[t][r], w[t], pair);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int t = 0; t < kTiles; ++t) store16(sums_memory + (r * kTiles + t) * 16, sums[t][r]);
  }
}

template <int kTiles>
void multiply_pair_rows(const std::byte* weights, std::uint64_t tile_stride, std::uint32_t pairs,
                        const std::uint16_t* x, std::uint64_t stride, std::uint32_t rows, float* sums) {
  const SmallIsZero mode;
  std::uint32_t i = 0;
  for (; i + kRowsAtOnce <= rows; i += kRowsAtOnce) {
    multiply_pairs<kTiles, kRowsAtOnce>(weights, tile_stride, pairs, x + i * stride, stride, sums + i * kTiles * 16);
  }
  x += i * stride;
  sums += i * kTiles * 16;
  if constexpr (kRowsAtOnce > 1) {
    switch (rows - i) {
      case 1: multiply_pairs<kTiles, 1>(weights, tile_stride, pairs, x, stride, sums); break;
      case 2: multiply_pairs<kTiles, 2>(weights, tile_stride, pairs, x, stride, sums); break;
      case 3: multiply_pairs<kTiles, 3>(weights, tile_stride, pairs, x, stride, sums); break;
      default: break;
    }
  }
}

template <int kTiles>
void multiply_pair_tiles(const WeightTiles& weight, std::uint32_t tile, const std::uint16_t* x, std::uint64_t stride,
                         std::uint32_t rows, const Ending& end, const ProductScratch& scratch) {
  // Three tiles of so many columns fill most of the L1 cache.
  constexpr std::uint32_t kPairs = 128;
  __builtin_memset(scratch.sums, 0, std::size_t{rows} * kTiles * kTileRows * sizeof(float));
  const std::byte* first = weight.data + tile * weight.tile_bytes;
  const std::uint32_t all = (weight.cols + 1) / 2, step = rows <= kFewFloat ? all : kPairs;
  for (std::uint32_t at = 0; at < all; at += step) {
    const std::uint32_t pairs = all - at < step ? all - at : step;
    multiply_pair_rows<kTiles>(first + std::uint64_t{at} * 64, weight.tile_bytes, pairs, x + 2 * at, stride, rows,
                               scratch.sums);
  }
  for (std::uint32_t i = 0; i < rows; ++i) {
    for (int t = 0; t < kTiles; ++t) {
      end(i, tile + static_cast<std::uint32_t>(t),
          load16(scratch.sums + (i * kTiles + static_cast<std::uint32_t>(t)) * 16));
    }
  }
}

void multiply_bf16(const WeightTiles& weight, std::uint32_t begin, std::uint32_t tiles_end, const std::uint16_t* x,
                   std::uint64_t stride, std::uint32_t rows, const ProductOut& out, const ProductScratch& scratch) {
  const Ending end{&out, weight.rows};
  std::uint32_t tile = begin;
  if constexpr (kTilesAtOnce > 1) {
    for (; tile + kTilesAtOnce <= tiles_end; tile += kTilesAtOnce) {
      multiply_pair_tiles<kTilesAtOnce>(weight, tile, x, stride, rows, end, scratch);
    }
  }
  for (; tile < tiles_end; ++tile) multiply_pair_tiles<1>(weight, tile, x, stride, rows, end, scratch);
}
