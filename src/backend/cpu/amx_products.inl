// Matrix products with quantised weights by tile instructions (AMX), for many rows. Integer sums are exact, whoever
// adds them up, and everything after them is done in the order of products.inl: the same bits.
//
// A block of weights as unpack.inl leaves it, [8][16 outputs][4 columns], is what the instruction takes as its second
// factor. Up to sixteen rows of the input, 32 columns each, are the first. The result is 16 x 16 sums of 32 columns (of
// 16, where halves of a block have scales of their own). Tiles cannot be scaled, so each result goes through memory.
// Eight results are stored, then all eight are scaled. A load that comes soon after the tile's store waits for it, and
// for every store in flight at the same place of another 4 KB: issuing results just ahead of their use cost more than
// it gained (16 threads of a Xeon, 512 rows of Q8_0: 3,311 G operations a second, 7,000 to 8,100 for this order in a
// program with nothing but these loops, 6,300 to 6,800 for the instructions of "avx512" there).
//
// `Tiles` has the instructions: HardwareTiles, or EmulatedTiles for tests on other machines.

constexpr std::uint32_t kMostInputRows = 16;  // of a tile
constexpr std::uint32_t kFewForTiles = 8;     // up to this many rows, weights go through registers as in products.inl
constexpr std::uint32_t kPartsAtOnce = 8;     // results between the first store and the first load
// The numbers of the tiles.
constexpr int kFirst = 0, kSecond = 1, kResult = 2;

// The operand of LDTILECFG.
struct alignas(64) TileShapes {
  std::uint8_t palette = 1, start_row = 0, unused[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};

  // `part`: columns under one scale.
  TileShapes(std::uint32_t input_rows, std::uint32_t part) {
    row_bytes[kFirst] = static_cast<std::uint16_t>(part);
    row_bytes[kSecond] = row_bytes[kResult] = 64;
    rows[kFirst] = rows[kResult] = static_cast<std::uint8_t>(input_rows);
    rows[kSecond] = static_cast<std::uint8_t>(part / 4);
  }
};

// Needs a processor with AMX and the operating system's permission (kernels.cpp).
class HardwareTiles {
 public:
  HardwareTiles() = default;
  HardwareTiles(const HardwareTiles&) = delete;
  HardwareTiles& operator=(const HardwareTiles&) = delete;
  ~HardwareTiles() { asm volatile("tilerelease" ::: "memory"); }

  void shape(const TileShapes& shapes) { asm volatile("ldtilecfg %0" ::"m"(shapes)); }
  template <int kTile>
  QUIRE_INLINE void load(const void* from, std::uint64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kTile>
  QUIRE_INLINE void zero() {
    asm volatile("tilezero %%tmm%c0" ::"i"(kTile));
  }
  // kResult += kFirst * kSecond, signed bytes
  QUIRE_INLINE void add_products() {
    asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kResult), "i"(kFirst), "i"(kSecond));
  }
  template <int kTile>
  QUIRE_INLINE void store(void* to, std::uint64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(kTile) : "memory");
  }
};

// The same in plain code.
class EmulatedTiles {
 public:
  void shape(const TileShapes& shapes) {
    for (int i = 0; i < 8; ++i) tiles_[i] = {shapes.rows[i], shapes.row_bytes[i], {}};
  }
  template <int kTile>
  void load(const void* from, std::uint64_t stride) {
    Tile& tile = tiles_[kTile];
    for (std::uint32_t r = 0; r < tile.rows; ++r) {
      __builtin_memcpy(tile.data[r], static_cast<const std::byte*>(from) + r * stride, tile.row_bytes);
    }
  }
  template <int kTile>
  void zero() {
    __builtin_memset(tiles_[kTile].data, 0, sizeof(tiles_[kTile].data));
  }
  void add_products() {
    Tile& to = tiles_[kResult];
    const Tile &first = tiles_[kFirst], &second = tiles_[kSecond];
    for (std::uint32_t m = 0; m < to.rows; ++m) {
      for (std::uint32_t k = 0; k < first.row_bytes / 4u; ++k) {
        for (std::uint32_t n = 0; n < to.row_bytes / 4u; ++n) {
          std::int32_t sum;
          __builtin_memcpy(&sum, to.data[m] + 4 * n, 4);
          for (std::uint32_t j = 0; j < 4; ++j) sum += first.data[m][4 * k + j] * second.data[k][4 * n + j];
          __builtin_memcpy(to.data[m] + 4 * n, &sum, 4);
        }
      }
    }
  }
  template <int kTile>
  void store(void* to, std::uint64_t stride) {
    const Tile& tile = tiles_[kTile];
    for (std::uint32_t r = 0; r < tile.rows; ++r) {
      __builtin_memcpy(static_cast<std::byte*>(to) + r * stride, tile.data[r], tile.row_bytes);
    }
  }

 private:
  struct Tile {
    std::uint32_t rows, row_bytes;
    std::int8_t data[16][64];
  };
  Tile tiles_[8];
};

// Some rows of the input and a chunk of weights, and what comes out of it. A part is as many columns as have one scale.
// A turn is up to kPartsAtOnce parts of one tile of outputs, so that the sums of its rows stay in registers.
template <typename Tiles, bool kHalves, bool kOffsets>
class TileProduct {
  static constexpr std::uint32_t kPart = kHalves ? 16 : 32;

 public:
  TileProduct(Tiles& tiles, const Chunk& chunk, std::uint32_t outputs, const QuantInput& x, std::uint64_t stride)
      : tiles_(tiles), chunk_(chunk), outputs_(outputs), x_(x), stride_(stride) {}

  // Rows [first, first + count) from column `col` on. sums: [count][outputs][16]
  template <typename Ahead>
  void operator()(std::uint32_t first, std::uint32_t count, std::uint32_t col, float* sums, Ahead ahead) {
    const std::uint64_t at = first * stride_ + col;
    q_ = x_.q + at;
    scales_ = x_.scales + at / 32;
    input_sums_ = (kHalves ? x_.half_sums : x_.sums) + at / kPart;
    const std::uint32_t parts = chunk_.blocks * (32 / kPart);
    for (std::uint32_t part = 0; part < parts; part += kPartsAtOnce) {
      const std::uint32_t end = parts - part < kPartsAtOnce ? parts : part + kPartsAtOnce;
      for (std::uint32_t t = 0; t < outputs_; ++t) {
        ahead(part * kPart, t);
        multiply(part, end, t);
        if (count == kMostInputRows) {
          scale_turn(part, end, t, sums);
        } else {
          scale_rows(part, end, t, count, sums);
        }
      }
    }
  }

 private:
  // The integer sums of some parts.
  QUIRE_INLINE void multiply(std::uint32_t part, std::uint32_t end, std::uint32_t t) {
    const std::byte* weights = chunk_.quants + t * chunk_.tile_stride + part * kPart * kTileRows;
    std::byte* to = results_[0];
    for (; part < end; ++part, weights += kPart * kTileRows, to += sizeof(results_[0])) {
      tiles_.template load<kSecond>(weights, 64);
      tiles_.template load<kFirst>(q_ + part * kPart, stride_);
      tiles_.template zero<kResult>();
      tiles_.add_products();
      tiles_.template store<kResult>(to, 64);
    }
  }

  // Adds the results of one part to the sums of some of its rows.
  template <int kRows>
  QUIRE_INLINE void scale(const std::byte* results, std::uint32_t part, std::uint32_t t, std::uint32_t row,
                          V16 (&sums)[kRows]) const {
    results += row * 64;
    const V16 factor = chunk_.scales[part * outputs_ + t];
    const float* scales = scales_ + row * (stride_ / 32) + part * kPart / 32;
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const I16 products = *reinterpret_cast<const I16*>(results + r * 64);
      sums[r] = fma(to_floats(products), factor * scales[r * (stride_ / 32)], sums[r]);
    }
    if (!kOffsets) return;
    const V16 offset = chunk_.offsets[part * outputs_ + t];
    const float* input_sums = input_sums_ + row * (stride_ / kPart) + part;
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) sums[r] = fma(offset, all(input_sums[r * (stride_ / kPart)]), sums[r]);
  }
  QUIRE_INLINE void scale_turn(std::uint32_t first, std::uint32_t end, std::uint32_t t, float* sums_memory) const {
    const std::uint64_t between = std::uint64_t{outputs_} * kTileRows;
    float* own = sums_memory + t * kTileRows;
    V16 sums[kMostInputRows];
#pragma GCC unroll 16
    for (std::uint32_t r = 0; r < kMostInputRows; ++r) sums[r] = load16(own + r * between);
    for (std::uint32_t part = first; part < end; ++part) scale(results_[part - first], part, t, 0, sums);
#pragma GCC unroll 16
    for (std::uint32_t r = 0; r < kMostInputRows; ++r) store16(own + r * between, sums[r]);
  }
  // The same for fewer rows, one by one.
  void scale_rows(std::uint32_t first, std::uint32_t end, std::uint32_t t, std::uint32_t count,
                  float* sums_memory) const {
    for (std::uint32_t row = 0; row < count; ++row) {
      float* own = sums_memory + (std::uint64_t{row} * outputs_ + t) * kTileRows;
      V16 sums[1] = {load16(own)};
      for (std::uint32_t part = first; part < end; ++part) scale(results_[part - first], part, t, row, sums);
      store16(own, sums[0]);
    }
  }

  Tiles& tiles_;
  const Chunk& chunk_;
  const std::uint32_t outputs_;  // tiles of them
  const QuantInput& x_;
  const std::uint64_t stride_;
  const std::int8_t* q_ = nullptr;
  const float *scales_ = nullptr, *input_sums_ = nullptr;
  alignas(4096) std::byte results_[kPartsAtOnce][kMostInputRows * 64];
};

template <typename Tiles, bool kHalves, bool kOffsets, typename Unpack>
void multiply_by_tiles(const WeightTiles& weight, std::uint32_t tile, std::uint32_t outputs, const QuantInput& x,
                       std::uint64_t stride, std::uint32_t rows, const Ending& end, const ProductScratch& scratch,
                       Unpack unpack) {
  V16* scales = reinterpret_cast<V16*>(scratch.scales);
  V16* offsets = reinterpret_cast<V16*>(scratch.offsets);
  __builtin_memset(scratch.sums, 0, std::size_t{rows} * outputs * kTileRows * sizeof(float));
  const std::uint32_t rest = rows % kMostInputRows;
  constexpr std::uint32_t kPart = kHalves ? 16 : 32;
  const TileShapes whole(kMostInputRows, kPart), part(rest, kPart);
  Tiles tiles;
  for (std::uint32_t col = 0; col < weight.cols; col += kChunkCols) {
    const std::uint32_t cols = weight.cols - col < kChunkCols ? weight.cols - col : kChunkCols;
    for (std::uint32_t t = 0; t < outputs; ++t) {
      unpack(tile + t, col, cols, scratch.quants + std::size_t{t} * kChunkCols * kTileRows, scales + t, offsets + t,
             outputs);
    }
    const Chunk chunk{scratch.quants, kChunkCols * kTileRows, scales, offsets, cols / 32};
    TileProduct<Tiles, kHalves, kOffsets> product(tiles, chunk, outputs, x, stride);
    // While the first rows are multiplied, the next chunk comes from memory. After the last one it is the first of the
    // next tiles, which the same thread often takes.
    const std::uint64_t chunk_bytes = weight.tile_bytes * cols / weight.cols;
    const bool last = col + kChunkCols >= weight.cols;
    const std::byte* next = weight.data + (tile + (last ? outputs : 0)) * weight.tile_bytes +
                            (last ? 0 : weight.tile_bytes * (col + kChunkCols) / weight.cols);
    const auto prefetch = [&](std::uint32_t at, std::uint32_t t) QUIRE_LAMBDA {
      const std::uint32_t until = cols - at < kPartsAtOnce * kPart ? cols : at + kPartsAtOnce * kPart;
      for (std::uint64_t byte = chunk_bytes * at / cols; byte < chunk_bytes * until / cols; byte += 64) {
        __builtin_prefetch(next + t * weight.tile_bytes + byte, 0, 2);
      }
    };
    const auto nothing = [](std::uint32_t, std::uint32_t) QUIRE_LAMBDA {};
    if (rows >= kMostInputRows) tiles.shape(whole);
    for (std::uint32_t row = 0; row < rows; row += kMostInputRows) {
      float* sums = scratch.sums + std::size_t{row} * outputs * kTileRows;
      const std::uint32_t count = rows - row < kMostInputRows ? rest : kMostInputRows;
      if (count == rest) tiles.shape(part);
      if (row == 0) {
        product(row, count, col, sums, prefetch);
      } else {
        product(row, count, col, sums, nothing);
      }
    }
  }
  for (std::uint32_t i = 0; i < rows; ++i) {
    for (std::uint32_t t = 0; t < outputs; ++t) {
      end(i, tile + t, load16(scratch.sums + (std::size_t{i} * outputs + t) * kTileRows));
    }
  }
}

template <typename Tiles>
void multiply_quant_by_tiles(const WeightTiles& weight, std::uint32_t begin, std::uint32_t tiles_end,
                             const QuantInput& x, std::uint64_t stride, std::uint32_t rows, const ProductOut& out,
                             const ProductScratch& scratch) {
  // Scales for 16 columns cost as much as those for 32, and leave half of the instruction unused: Q6_K is a fifth
  // faster through registers.
  if (rows <= kFewForTiles || weight.type == gguf::Type::Q6_K) {
    // A core of these processors has more misses in flight with prefetches than its own prefetcher starts. One row of
    // Q8_0 on a Xeon: 146 GB/s without them and 177 with, 16 threads; 96 and 118, 8 threads; 60 and 66, 4 threads.
    WeightTiles few = weight;
    few.prefetch = true;
    return avx512_kernels()->multiply_quant(few, begin, tiles_end, x, stride, rows, out, scratch);
  }
  const Ending end{&out, weight.rows};
  const auto multiply = [&]<bool kHalves, bool kOffsets>(auto unpack) {
    for (std::uint32_t tile = begin; tile < tiles_end; tile += kMostTiles) {
      const std::uint32_t outputs = tiles_end - tile < kMostTiles ? tiles_end - tile : kMostTiles;
      multiply_by_tiles<Tiles, kHalves, kOffsets>(weight, tile, outputs, x, stride, rows, end, scratch, unpack);
    }
  };
  using T = gguf::Type;
  if (weight.tile_bytes == 0) return with_unpacked_rows<0>(weight, multiply);
  switch (weight.type) {
    case T::Q8_0: return with_unpacked_tiles<Q8Source, 0>(weight, multiply);
    case T::Q4_0: return with_unpacked_tiles<Q4Source, 0>(weight, multiply);
    case T::MXFP4: return with_unpacked_tiles<MXFP4Source, 0>(weight, multiply);
    case T::Q4_K: return with_unpacked_tiles<Q4KSource, 0>(weight, multiply);
    case T::Q5_K: return with_unpacked_tiles<Q5KSource, 0>(weight, multiply);
    default: return;
  }
}
