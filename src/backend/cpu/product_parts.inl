// What all matrix products share: how many tiles and rows are multiplied at once, and where sums are written.

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
