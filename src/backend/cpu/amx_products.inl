// Matrix products with quantised weights by tile instructions (AMX), for many rows. Integer sums are exact, whoever
// adds them up, and everything after them is done in the order of products.inl: the same bits.
//
// A block of weights as unpack.inl leaves it, [8][16 outputs][4 columns], is what the instruction takes as its second
// factor. Up to sixteen rows of the input, 32 columns each, are the first. The result is 16 x 16 sums of 32 columns (of
// 16, where halves of a block have scales of their own). Tiles cannot be scaled, so each result goes through memory.
// The instructions for the next results are issued before this one is scaled: both go on at the same time.
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

// Some rows of the input and a chunk of weights, and what comes out of it. A part is as many columns as have one scale.
// A turn is up to kPartsAtOnce parts of one tile of outputs, so that the sums of its rows stay in registers. The first
// factors of these parts stay in tiles for all outputs.
template <typename Tiles, bool kHalves, bool kOffsets>
class TileProduct {
  static constexpr std::uint32_t kPart = kHalves ? 16 : 32;
  // Results that are computed before the first of them is scaled, and memory for them. It has 4 KB: with more, a load
  // could be held up by a store to another result at the same place in its 4 KB (not measured).
  static constexpr std::uint32_t kAheadResults = 3, kResults = 4;

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
    next_first_ = next_part_ = next_t_ = issued_ = scaled_ = 0;
    for (std::uint32_t i = 0; i < kAheadResults; ++i) issue();
    for (std::uint32_t part = 0; part < parts(); part += kPartsAtOnce) {
      for (std::uint32_t t = 0; t < outputs_; ++t) {
        ahead(part * kPart, t);
        if (count == kMostInputRows) {
          scale_turn<kMostInputRows>(part, t, sums);
        } else {
          scale_rows(part, t, count, sums);
        }
      }
    }
  }

 private:
  std::uint32_t parts() const { return chunk_.blocks * (32 / kPart); }
  // The end of the turn that begins with this part.
  std::uint32_t end_of(std::uint32_t first) const {
    return parts() - first < kPartsAtOnce ? parts() : first + kPartsAtOnce;
  }

  // The next result, if there is one.
  QUIRE_INLINE void issue() {
    if (next_first_ >= parts()) return;
    switch (next_part_ - next_first_) {
      case 0: one<0>(); break;
      case 1: one<1>(); break;
      case 2: one<2>(); break;
      default: one<3>(); break;
    }
    ++issued_;
    if (++next_part_ < end_of(next_first_)) return;
    if (++next_t_ == outputs_) {
      next_t_ = 0;
      next_first_ += kPartsAtOnce;
    }
    next_part_ = next_first_;
  }
  template <int kNumber>
  QUIRE_INLINE void one() {
    constexpr int kSecondFactor = kSecond + kNumber % 2, kTo = kResult + kNumber % 2;
    const std::byte* weights = chunk_.quants + next_t_ * chunk_.tile_stride + next_part_ * kPart * kTileRows;
    if (next_t_ == 0) tiles_.template load<kNumber>(q_ + next_part_ * kPart, stride_);
    tiles_.template load<kSecondFactor>(weights, 64);
    tiles_.template zero<kTo>();
    tiles_.template add_products<kTo, kNumber, kSecondFactor>();
    tiles_.template store<kTo>(results_[issued_ % kResults], 64);
  }

  // Adds the next result to the sums of some of its rows.
  template <int kRows>
  QUIRE_INLINE void scale(std::uint32_t part, std::uint32_t t, std::uint32_t row, V16 (&sums)[kRows]) const {
    const std::byte* results = results_[scaled_ % kResults] + row * 64;
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
  template <int kRows>
  QUIRE_INLINE void scale_turn(std::uint32_t first, std::uint32_t t, float* sums_memory) {
    const std::uint64_t between = std::uint64_t{outputs_} * kTileRows;
    float* own = sums_memory + t * kTileRows;
    V16 sums[kRows];
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) sums[r] = load16(own + r * between);
    for (std::uint32_t part = first; part < end_of(first); ++part, ++scaled_) {
      issue();
      scale<kRows>(part, t, 0, sums);
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) store16(own + r * between, sums[r]);
  }
  // The same for fewer rows, one by one.
  void scale_rows(std::uint32_t first, std::uint32_t t, std::uint32_t count, float* sums_memory) {
    for (std::uint32_t part = first; part < end_of(first); ++part, ++scaled_) {
      issue();
      for (std::uint32_t row = 0; row < count; ++row) {
        float* own = sums_memory + (std::uint64_t{row} * outputs_ + t) * kTileRows;
        V16 sums[1] = {load16(own)};
        scale<1>(part, t, row, sums);
        store16(own, sums[0]);
      }
    }
  }

  Tiles& tiles_;
  const Chunk& chunk_;
  const std::uint32_t outputs_;  // tiles of them
  const QuantInput& x_;
  const std::uint64_t stride_;
  const std::int8_t* q_ = nullptr;
  const float *scales_ = nullptr, *input_sums_ = nullptr;
  // The next result to issue: a turn's first part and tile of outputs, and the part.
  std::uint32_t next_first_ = 0, next_t_ = 0, next_part_ = 0;
  std::uint32_t issued_ = 0, scaled_ = 0;  // results
  alignas(4096) std::byte results_[kResults][kMostInputRows * 64];
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
