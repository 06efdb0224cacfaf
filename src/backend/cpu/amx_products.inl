// Matrix products with quantised weights by tile instructions (AMX), for many rows. Integer sums are exact, whoever
// adds them up, and everything after them is done in the order of products.inl: the same bits.
//
// A block of weights as unpack.inl leaves it, [8][16 outputs][4 columns], is what the instruction takes as its second
// factor. Up to sixteen rows of the input, 32 columns each, are the first. The result is 16 x 16 sums of 32 columns (of
// 16, where halves of a block have scales of their own). Tiles cannot be scaled, so each result goes through memory.
// The instructions for the next results are issued before these are scaled: both go on at the same time.
//
// `Tiles` has the instructions: HardwareTiles, or EmulatedTiles for tests on other machines.

constexpr std::uint32_t kMostInputRows = 16;  // of a tile
constexpr std::uint32_t kFewForTiles = 8;     // up to this many rows, weights go through registers as in products.inl
constexpr std::uint32_t kPartsAtOnce = 4;     // first factors that are kept in tiles
// The numbers of the tiles: first factors, then
constexpr int kSecond = 4, kResult = 6;

// The operand of LDTILECFG.
struct alignas(64) TileShapes {
  std::uint8_t palette = 1, start_row = 0, unused[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};

  // `part`: columns under one scale.
  TileShapes(std::uint32_t input_rows, std::uint32_t part) {
    for (int i = 0; i < 8; ++i) {
      row_bytes[i] = static_cast<std::uint16_t>(i < kSecond ? part : 64);
      rows[i] = static_cast<std::uint8_t>(i >= kSecond && i < kResult ? part / 4 : input_rows);
    }
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
  // kTo += kFirst * kSecondFactor, signed bytes
  template <int kTo, int kFirst, int kSecondFactor>
  QUIRE_INLINE void add_products() {
    asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kTo), "i"(kFirst), "i"(kSecondFactor));
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
  template <int kTo, int kFirst, int kSecondFactor>
  void add_products() {
    Tile& to = tiles_[kTo];
    const Tile &first = tiles_[kFirst], &second = tiles_[kSecondFactor];
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

// Some rows of the input and a chunk of weights, and what comes out of it.
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
    const std::uint32_t turns = (parts() + kPartsAtOnce - 1) / kPartsAtOnce * outputs_;
    issue(0);
    for (std::uint32_t turn = 0; turn < turns; ++turn) {
      if (turn + 1 < turns) issue(turn + 1);
      ahead(turn, turns);
      scale(turn, count, sums);
    }
  }

 private:
  std::uint32_t parts() const { return chunk_.blocks * (32 / kPart); }
  std::uint32_t parts_of(std::uint32_t turn) const {
    const std::uint32_t left = parts() - turn / outputs_ * kPartsAtOnce;
    return left < kPartsAtOnce ? left : kPartsAtOnce;
  }

  // A turn is up to kPartsAtOnce parts of one tile of outputs. First factors stay for all outputs.
  QUIRE_INLINE void issue(std::uint32_t turn) {
    const std::uint32_t part = turn / outputs_ * kPartsAtOnce, t = turn % outputs_, count = parts_of(turn);
    const std::byte* w = chunk_.quants + t * chunk_.tile_stride + part * kPart * kTileRows;
    const std::int8_t* q = q_ + part * kPart;
    std::byte* to = results_[turn % 2][0];
    constexpr std::uint32_t kBytes = kPart * kTileRows, kResultBytes = sizeof(results_[0][0]);
    if (t == 0) {
      tiles_.template load<0>(q, stride_);
      if (count > 1) tiles_.template load<1>(q + kPart, stride_);
      if (count > 2) tiles_.template load<2>(q + 2 * kPart, stride_);
      if (count > 3) tiles_.template load<3>(q + 3 * kPart, stride_);
    }
    one<0, kSecond, kResult>(w, to);
    if (count > 1) one<1, kSecond + 1, kResult + 1>(w + kBytes, to + kResultBytes);
    if (count > 2) one<2, kSecond, kResult>(w + 2 * kBytes, to + 2 * kResultBytes);
    if (count > 3) one<3, kSecond + 1, kResult + 1>(w + 3 * kBytes, to + 3 * kResultBytes);
  }
  template <int kFirst, int kSecondFactor, int kTo>
  QUIRE_INLINE void one(const std::byte* w, std::byte* to) {
    tiles_.template load<kSecondFactor>(w, 64);
    tiles_.template zero<kTo>();
    tiles_.template add_products<kTo, kFirst, kSecondFactor>();
    tiles_.template store<kTo>(to, 64);
  }

  void scale(std::uint32_t turn, std::uint32_t count, float* sums) const {
    if (count == kMostInputRows) return scale_rows<kMostInputRows>(turn, 0, sums);
    std::uint32_t row = 0;
    for (; row + 4 <= count; row += 4) scale_rows<4>(turn, row, sums);
    for (; row < count; ++row) scale_rows<1>(turn, row, sums);
  }
  template <int kRows>
  QUIRE_INLINE void scale_rows(std::uint32_t turn, std::uint32_t row, float* sums_memory) const {
    const std::uint32_t first = turn / outputs_ * kPartsAtOnce, t = turn % outputs_, count = parts_of(turn);
    const std::uint64_t between = std::uint64_t{outputs_} * kTileRows;
    float* own = sums_memory + row * between + t * kTileRows;
    V16 sums[kRows];
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) sums[r] = load16(own + r * between);
    for (std::uint32_t p = 0; p < count; ++p) {
      const std::uint32_t part = first + p;
      const V16 scale = chunk_.scales[part * outputs_ + t];
      const std::byte* results = results_[turn % 2][p] + row * 64;
      const float* scales = scales_ + row * (stride_ / 32) + part * kPart / 32;
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const I16 products = *reinterpret_cast<const I16*>(results + r * 64);
        sums[r] = fma(to_floats(products), scale * scales[r * (stride_ / 32)], sums[r]);
      }
      if (!kOffsets) continue;
      const V16 offset = chunk_.offsets[part * outputs_ + t];
      const float* input_sums = input_sums_ + row * (stride_ / kPart) + part;
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) sums[r] = fma(offset, all(input_sums[r * (stride_ / kPart)]), sums[r]);
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) store16(own + r * between, sums[r]);
  }

  Tiles& tiles_;
  const Chunk& chunk_;
  const std::uint32_t outputs_;  // tiles of them
  const QuantInput& x_;
  const std::uint64_t stride_;
  const std::int8_t* q_ = nullptr;
  const float *scales_ = nullptr, *input_sums_ = nullptr;
  alignas(64) std::byte results_[2][kPartsAtOnce][kMostInputRows * 64];
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
    const auto prefetch = [&](std::uint32_t turn, std::uint32_t turns) QUIRE_LAMBDA {
      const std::uint32_t t = turn % outputs, steps = turns / outputs, step = turn / outputs;
      const std::uint64_t lines = chunk_bytes / 64;
      for (std::uint64_t line = lines * step / steps; line < lines * (step + 1) / steps; ++line) {
        __builtin_prefetch(next + t * weight.tile_bytes + line * 64, 0, 2);
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
  if (rows <= kFewForTiles) {
    return avx512_kernels()->multiply_quant(weight, begin, tiles_end, x, stride, rows, out, scratch);
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
    case T::Q6_K: return with_unpacked_tiles<Q6KSource, 0>(weight, multiply);
    default: return;
  }
}
