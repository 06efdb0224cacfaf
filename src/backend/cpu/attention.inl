// Attention over one tile of the context: 64 positions, whose keys and values are in pages, for some queries that see
// all of them or a part. A key is loaded once for several queries. The result of a query is the same as if it were
// alone.
//
//   score = sum over the elements of the head, sixteen lanes wide; the lanes are added up as in sums_of()
//   sum = sum * shrink + weight of t * value of t, position by position
// In latent attention the value of a position is the beginning of its key.
//
// The tiles of a section (kSection positions) are done in order, each section on its own; merge() then joins the
// sections in their order.

// The keys, or the values, of a tile: the elements of row `t` from `at` on, in vectors of sixteen. The conversion to
// float is exact for every type. A Q8_0 element is too: 8 bits times the 11 of its scale fit into a float.
template <typename Element>
class PlainRows {
 public:
  static constexpr std::uint32_t kBytes = Element::kBytes;
  static constexpr int kVectors = 1;  // that are loaded at once where possible
  PlainRows(const std::byte* const* rows, std::uint32_t /*dim*/) : rows_(rows) {}
  template <int kCount>
  QUIRE_INLINE void load(std::uint32_t t, std::uint32_t at, V16* to) const {
#pragma GCC unroll 8
    for (int v = 0; v < kCount; ++v) to[v] = Element::load(rows_[t] + (at + 16 * v) * kBytes);
  }
  QUIRE_INLINE V16 load_rest(std::uint32_t t, std::uint32_t at, std::uint32_t count) const {
    alignas(64) std::byte some[64] = {};
    __builtin_memcpy(some, rows_[t] + at * kBytes, std::size_t{count} * kBytes);
    return Element::load(some);
  }

 private:
  const std::byte* const* rows_;
};
struct F32Element {
  static constexpr std::uint32_t kBytes = 4;
  static QUIRE_INLINE V16 load(const std::byte* p) { return load16(reinterpret_cast<const float*>(p)); }
};
struct F16Element {
  static constexpr std::uint32_t kBytes = 2;
  static QUIRE_INLINE V16 load(const std::byte* p) { return load_halves(p); }
};
struct BF16Element {
  static constexpr std::uint32_t kBytes = 2;
  static QUIRE_INLINE V16 load(const std::byte* p) { return load_brain_halves(p); }
};
using F32Rows = PlainRows<F32Element>;
using F16Rows = PlainRows<F16Element>;
using BF16Rows = PlainRows<BF16Element>;

class Q8Rows {
 public:
  static constexpr std::uint32_t kBytes = 1;
  static constexpr int kVectors = 2;  // that have one scale
  // The scales of all rows are converted once.
  Q8Rows(const std::byte* const* rows, std::uint32_t dim)
      : rows_(rows), blocks_((dim + kScaledElements - 1) / kScaledElements) {
    alignas(64) std::byte halves[kContextTile * kMostBlocks * 2];
    // A copy of a size that the compiler knows takes an instruction or two.
    const auto gather = [&](auto size) QUIRE_LAMBDA {
      const std::byte* const* row = rows;
      for (std::uint32_t t = 0; t < kContextTile; ++t, ++row) {
        __builtin_memcpy(halves + t * size, *row + scales_offset(dim), size);
      }
    };
    switch (blocks_) {
      case 2: gather(std::integral_constant<std::size_t, 4>{}); break;
      case 4: gather(std::integral_constant<std::size_t, 8>{}); break;
      case 8: gather(std::integral_constant<std::size_t, 16>{}); break;
      default: gather(std::size_t{blocks_} * 2);
    }
    for (std::uint32_t i = 0; i < kContextTile * blocks_; i += 16) {
      store16(scales_ + i, load_halves(halves + std::size_t{i} * 2));
    }
  }
  // `at` is the beginning of a block of 32, if there are several vectors.
  template <int kCount>
  QUIRE_INLINE void load(std::uint32_t t, std::uint32_t at, V16* to) const {
    const float* const scales = scales_ + t * blocks_ + at / kScaledElements;
#pragma GCC unroll 8
    for (int v = 0; v < kCount; ++v) to[v] = load_signed_bytes(rows_[t] + at + 16 * v) * scales[v / 2];
  }
  QUIRE_INLINE V16 load_rest(std::uint32_t t, std::uint32_t at, std::uint32_t count) const {
    std::byte some[16] = {};
    __builtin_memcpy(some, rows_[t] + at, count);
    return load_signed_bytes(some) * scales_[t * blocks_ + at / kScaledElements];
  }

 private:
  static constexpr std::uint32_t kMostBlocks = kMostScaledRow / kScaledElements;
  const std::byte* const* rows_;
  std::uint32_t blocks_;
  alignas(64) float scales_[kContextTile * kMostBlocks];  // [positions][blocks]
};

// Scores of kQueries queries with 16 / kQueries keys, from position `first` of the tile on.
template <typename Rows, int kQueries>
QUIRE_INLINE V16 score(const Query* queries, const Rows& keys, std::uint32_t first, const std::byte* const* next,
                       std::uint32_t dim) {
  constexpr int kKeys = 16 / kQueries;
  V16 sums[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) sums[i] = V16{};
  const auto add = [&]<int kVectors>(std::uint32_t at) QUIRE_LAMBDA {
    V16 q[kQueries][kVectors];
#pragma GCC unroll 4
    for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) q[i][v] = load16(queries[i].q + at + 16 * v);
    }
#pragma GCC unroll 16
    for (int k = 0; k < kKeys; ++k) {
      V16 key[kVectors];
      keys.template load<kVectors>(first + k, at, key);
#pragma GCC unroll 4
      for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) sums[i * kKeys + k] = fma(q[i][v], key[v], sums[i * kKeys + k]);
      }
    }
  };
  constexpr std::uint32_t kStep = 16 * Rows::kVectors;
  std::uint32_t at = 0;
  for (; at + kStep <= dim; at += kStep) {
    if (next != nullptr && at * Rows::kBytes % 64 == 0) {
#pragma GCC unroll 16
      for (int k = 0; k < kKeys; ++k) __builtin_prefetch(next[k] + at * Rows::kBytes, 0, 2);
    }
    add.template operator()<Rows::kVectors>(at);
  }
  if constexpr (Rows::kVectors > 1) {
    if (at + 16 <= dim) {
      add.template operator()<1>(at);
      at += 16;
    }
  }
  if (at < dim) {
    for (int k = 0; k < kKeys; ++k) {
      const V16 key = keys.load_rest(first + k, at, dim - at);
      for (int i = 0; i < kQueries; ++i) {
        sums[i * kKeys + k] = fma(load_some(queries[i].q + at, dim - at), key, sums[i * kKeys + k]);
      }
    }
  }
  return sums_of(sums);
}

// Online softmax: turns the scores of a tile into weights, updates the running maximum, and scales the query's sums so
// far to the new maximum. Lane i of vector j is position 16 j + i of the tile.
QUIRE_INLINE void online_softmax(Query& query, V16 (&weights)[4], std::uint32_t begin, std::uint32_t end,
                                 const Heads& heads) {
  const float scale = heads.scale, cap = heads.cap;
  const I16 lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const V16 never = all(-__builtin_inff());
  V16 most = never;
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    V16 s = weights[j] * scale;
    if (cap > 0) s = cap * hyperbolic_tangent(s / cap);
    const I16 at = lane + 16 * j;
    const I16 seen = (at >= static_cast<std::int32_t>(begin)) & (at < static_cast<std::int32_t>(end));
    weights[j] = seen ? s : never;
    most = larger(most, weights[j]);
  }
  const float highest = largest_of(most);
  if (highest > query.highest) {
    const float shrink = query.highest == -__builtin_inff() ? 0.0f : exponential(all(query.highest - highest))[0];
    store16(query.total, load16(query.total) * shrink);
    scale_by(query.sum, shrink, heads.value_dim);
    query.highest = highest;
  }
  V16 total = load16(query.total);
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const I16 at = lane + 16 * j;
    const I16 seen = (at >= static_cast<std::int32_t>(begin)) & (at < static_cast<std::int32_t>(end));
    weights[j] = seen ? exponential(weights[j] - query.highest) : V16{};
    total += weights[j];
  }
  store16(query.total, total);
}

// The weight of position t for query i.
struct ByQuery {
  const float* weights;
  QUIRE_INLINE float operator()(int i, std::uint32_t t) const {
    return weights[static_cast<std::uint32_t>(i) * kContextTile + t];
  }
};
struct ByPosition {
  const float* weights;
  QUIRE_INLINE float operator()(int i, std::uint32_t t) const {
    return weights[t * 16 + static_cast<std::uint32_t>(i)];
  }
};

// Adds values times their weights to the sums of kQueries queries: 16 * kVectors elements from `at` on.
template <typename Rows, int kQueries, int kVectors, typename Weights>
QUIRE_INLINE void add_values(Query* queries, Weights weights, const Rows& values, const std::byte* const* next,
                             std::uint32_t begin, std::uint32_t end, std::uint32_t at) {
  V16 sums[kQueries][kVectors];
#pragma GCC unroll 4
  for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sums[i][v] = load16(queries[i].sum + at + 16 * v);
  }
  for (std::uint32_t t = begin; t < end; ++t) {
    if (next != nullptr) {
#pragma GCC unroll 8
      for (std::uint32_t line = 0; line < 16 * kVectors * Rows::kBytes; line += 64) {
        __builtin_prefetch(next[t] + at * Rows::kBytes + line, 0, 2);
      }
    }
    V16 value[kVectors];
    values.template load<kVectors>(t, at, value);
#pragma GCC unroll 4
    for (int i = 0; i < kQueries; ++i) {
      const V16 weight = all(weights(i, t));
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sums[i][v] = fma(weight, value[v], sums[i][v]);
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) store16(queries[i].sum + at + 16 * v, sums[i][v]);
  }
}

template <int kQueries, typename Rows, typename Weights>
void add_all_values(Query* queries, Weights weights, const Rows& values, const std::byte* const* next,
                    std::uint32_t begin, std::uint32_t end, std::uint32_t dim) {
  if (begin >= end) return;
  std::uint32_t at = 0;
  for (; at + 64 <= dim; at += 64) add_values<Rows, kQueries, 4>(queries, weights, values, next, begin, end, at);
  for (; at + 16 <= dim; at += 16) add_values<Rows, kQueries, 1>(queries, weights, values, next, begin, end, at);
  if (at == dim) return;
  const std::uint32_t count = dim - at;
  for (int i = 0; i < kQueries; ++i) {
    V16 sum = load_some(queries[i].sum + at, count);
    for (std::uint32_t t = begin; t < end; ++t) {
      sum = fma(all(weights(i, t)), values.load_rest(t, at, count), sum);
    }
    store_some(queries[i].sum + at, sum, count);
  }
}

template <int kQueries, typename Rows>
void attend_some(const ContextTile& tile, const Rows& keys, const Rows& values, const ContextTile* next, Query* queries,
                 const Heads& heads) {
  constexpr std::uint32_t kKeys = 16 / kQueries;
  const std::uint32_t dim = heads.value_dim;
  std::uint32_t begin[kQueries], end[kQueries];  // within the tile
  std::uint32_t least_begin = kContextTile, most_begin = 0, least_end = kContextTile, most_end = 0;
  for (int i = 0; i < kQueries; ++i) {
    begin[i] = queries[i].begin > tile.position ? queries[i].begin - tile.position : 0;
    end[i] = queries[i].end - tile.position < kContextTile ? queries[i].end - tile.position : kContextTile;
    if (queries[i].end <= tile.position) end[i] = begin[i] = 0;
    least_begin = begin[i] < least_begin ? begin[i] : least_begin;
    most_begin = begin[i] > most_begin ? begin[i] : most_begin;
    least_end = end[i] < least_end ? end[i] : least_end;
    most_end = end[i] > most_end ? end[i] : most_end;
  }
  alignas(64) float weights[kQueries][kContextTile];
  for (std::uint32_t t = least_begin / kKeys * kKeys; t < most_end; t += kKeys) {
    const std::byte* const* next_keys = next == nullptr ? nullptr : next->keys + t;
    const V16 scores = score<Rows, kQueries>(queries, keys, t, next_keys, heads.dim);
    for (int i = 0; i < kQueries; ++i) {
      __builtin_memcpy(&weights[i][t], reinterpret_cast<const float*>(&scores) + i * kKeys, kKeys * sizeof(float));
    }
  }
  for (int i = 0; i < kQueries; ++i) {
    if (begin[i] >= end[i]) continue;
    V16 vectors[4];
    for (int j = 0; j < 4; ++j) vectors[j] = load16(&weights[i][16 * j]);
    online_softmax(queries[i], vectors, begin[i], end[i], heads);
    for (int j = 0; j < 4; ++j) store16(&weights[i][16 * j], vectors[j]);
  }
  // Positions that all queries see are added together. The others are added before and after, so that each query adds
  // in order.
  if (most_begin >= least_end) {
    for (int i = 0; i < kQueries; ++i) {
      add_all_values<1>(queries + i, ByQuery{weights[i]}, values, nullptr, begin[i], end[i], dim);
    }
    return;
  }
  for (int i = 0; i < kQueries; ++i) {
    add_all_values<1>(queries + i, ByQuery{weights[i]}, values, nullptr, begin[i], most_begin, dim);
  }
  // Values that are parts of keys have been prefetched with them.
  const std::byte* const* next_values = next == nullptr || heads.latent ? nullptr : next->values;
  add_all_values<kQueries>(queries, ByQuery{weights[0]}, values, next_values, most_begin, least_end, dim);
  for (int i = 0; i < kQueries; ++i) {
    add_all_values<1>(queries + i, ByQuery{weights[i]}, values, nullptr, least_end, end[i], dim);
  }
}

#if defined(__AVX512F__)
// Sixteen queries at once, one per lane. All must see the whole tile, and the rows must be floats. Nothing is added up
// across lanes: the sixteen lanes that a single query would have are sixteen sums here, added up in the same order.
constexpr std::uint32_t kWidest = 256;        // elements of a row
constexpr std::uint32_t kWidestLatent = 640;  // of a row that holds key and value

void attend_sixteen(const ContextTile& tile, Query* queries, const Heads& heads) {
  const std::uint32_t dim = heads.dim;
  const float scale = heads.scale, cap = heads.cap;
  alignas(64) float transposed[kWidestLatent][16];
  for (std::uint32_t at = 0; at < dim; at += 16) {
    V16 block[16];
    for (int i = 0; i < 16; ++i) block[i] = load16(queries[i].q + at);
    transpose(block);
    for (std::uint32_t i = 0; i < 16; ++i) store16(transposed[at + i], block[i]);
  }
  alignas(64) float weights[kContextTile][16];
  V16 most = all(-__builtin_inff());
  for (std::uint32_t t = 0; t < kContextTile; t += 4) {
    const float* keys[4];
    for (std::uint32_t k = 0; k < 4; ++k) keys[k] = reinterpret_cast<const float*>(tile.keys[t + k]);
    V16 whole[4], half[4];
#pragma GCC unroll 4
    for (std::uint32_t quarter = 0; quarter < 4; ++quarter) {
      // Lanes 0 and 2 are added first, then 1 and 3.
      const std::uint32_t first = quarter == 1 ? 2 : quarter == 2 ? 1 : quarter;
      V16 sums[4][4] = {};
      for (std::uint32_t at = first; at < dim; at += 16) {
#pragma GCC unroll 4
        for (std::uint32_t l = 0; l < 4; ++l) {
          const V16 q = load16(transposed[at + 4 * l]);
#pragma GCC unroll 4
          for (int k = 0; k < 4; ++k) sums[l][k] = fma(q, all(keys[k][at + 4 * l]), sums[l][k]);
        }
      }
#pragma GCC unroll 4
      for (int k = 0; k < 4; ++k) {
        const V16 four = (sums[0][k] + sums[2][k]) + (sums[1][k] + sums[3][k]);
        if (quarter == 0) whole[k] = four;
        if (quarter == 1) whole[k] = whole[k] + four;
        if (quarter == 2) half[k] = four;
        if (quarter == 3) whole[k] = whole[k] + (half[k] + four);
      }
    }
#pragma GCC unroll 4
    for (std::uint32_t k = 0; k < 4; ++k) {
      V16 s = whole[k] * scale;
      if (cap > 0) s = cap * hyperbolic_tangent(s / cap);
      store16(weights[t + k], s);
      most = larger(most, s);
    }
  }
  V16 totals[16], before;
  for (int i = 0; i < 16; ++i) {
    totals[i] = load16(queries[i].total);
    before[i] = queries[i].highest;
  }
  transpose(totals);
  const V16 highest = larger(most, before);
  // Without a maximum yet, the sums are empty.
  const V16 shrink = before == -__builtin_inff() ? V16{} : exponential(before - highest);
  for (int i = 0; i < 16; ++i) {
    totals[i] = highest > before ? totals[i] * shrink : totals[i];
    if (highest[i] > before[i]) scale_by(queries[i].sum, shrink[i], heads.value_dim);
    queries[i].highest = highest[i];
  }
  for (std::uint32_t t = 0; t < kContextTile; ++t) {
    const V16 weight = exponential(load16(weights[t]) - highest);
    store16(weights[t], weight);
    totals[t % 16] += weight;
  }
  transpose(totals);
  for (int i = 0; i < 16; ++i) store16(queries[i].total, totals[i]);
  const F32Rows values(heads.latent ? tile.keys : tile.values, dim);
  for (int i = 0; i < 16; i += 4) {
    add_all_values<4>(queries + i, ByPosition{weights[0] + i}, values, nullptr, 0, kContextTile, heads.value_dim);
  }
}

// Converts rows to floats, once for all queries.
template <typename Rows>
void widen(const std::byte* const* from, const std::byte* const* next, const std::byte** to, float* rows,
           std::uint32_t dim) {
  const Rows narrow(from, dim);
  for (std::uint32_t t = 0; t < kContextTile; ++t, rows += dim) {
    for (std::uint32_t at = 0; at < dim; at += 16) {
      if (next != nullptr && at * Rows::kBytes % 64 == 0) __builtin_prefetch(next[t] + at * Rows::kBytes, 0, 2);
      V16 sixteen;
      narrow.template load<1>(t, at, &sixteen);
      store16(rows + at, sixteen);
    }
    to[t] = reinterpret_cast<const std::byte*>(rows);
  }
}
#endif

template <typename Rows>
void attend_all(const ContextTile& tile, const Rows& keys, const Rows& values, const ContextTile* next, Query* queries,
                std::uint32_t count, const Heads& heads) {
  std::uint32_t i = 0;
#if defined(__AVX2__)  // without AVX2 registers, several queries at once gain nothing
  for (; i + 4 <= count; i += 4) attend_some<4>(tile, keys, values, i == 0 ? next : nullptr, queries + i, heads);
  for (; i + 2 <= count; i += 2) attend_some<2>(tile, keys, values, i == 0 ? next : nullptr, queries + i, heads);
#endif
  for (; i < count; ++i) attend_some<1>(tile, keys, values, i == 0 ? next : nullptr, queries + i, heads);
}
template <typename Rows>
void attend_all(const ContextTile& tile, const ContextTile* next, Query* queries, std::uint32_t count,
                const Heads& heads) {
  const Rows keys(tile.keys, heads.dim);
  if (heads.latent) return attend_all(tile, keys, keys, next, queries, count, heads);
  attend_all(tile, keys, Rows(tile.values, heads.dim), next, queries, count, heads);
}

#if defined(__AVX512F__)
void attend_many(const ContextTile& tile, Query* queries, std::uint32_t count, const Heads& heads) {
  std::uint32_t i = 0;
  for (; i + 16 <= count; i += 16) {
    bool whole = true;
    for (std::uint32_t k = i; k < i + 16; ++k) {
      whole = whole && queries[k].begin <= tile.position && queries[k].end >= tile.position + kContextTile;
    }
    if (whole) {
      attend_sixteen(tile, queries + i, heads);
    } else {
      attend_all<F32Rows>(tile, nullptr, queries + i, 16, heads);
    }
  }
  attend_all<F32Rows>(tile, nullptr, queries + i, count - i, heads);
}
#endif

void attend(const ContextTile& tile, const ContextTile* next, ElementType type, Query* queries, std::uint32_t count,
            const Heads& heads) {
  const auto attend_rows = [&]<typename Rows>() {
#if defined(__AVX512F__)
    const std::uint32_t dim = heads.dim;
    if (count >= 16 && dim % 16 == 0 && dim <= (heads.latent ? kWidestLatent : kWidest)) {
      if constexpr (Rows::kBytes == 4) return attend_many(tile, queries, count, heads);
      constexpr std::uint32_t kMost = 2 * kWidest > kWidestLatent ? 2 * kWidest : kWidestLatent;
      alignas(64) float rows[kContextTile * kMost];
      ContextTile wide;
      wide.position = tile.position;
      widen<Rows>(tile.keys, next == nullptr ? nullptr : next->keys, wide.keys, rows, dim);
      if (!heads.latent) {
        float* const values = rows + kContextTile * dim;
        widen<Rows>(tile.values, next == nullptr ? nullptr : next->values, wide.values, values, dim);
      }
      return attend_many(wide, queries, count, heads);
    }
#endif
    attend_all<Rows>(tile, next, queries, count, heads);
  };
  switch (type) {
    case ElementType::F32: return attend_rows.template operator()<F32Rows>();
    case ElementType::F16: return attend_rows.template operator()<F16Rows>();
    case ElementType::BF16: return attend_rows.template operator()<BF16Rows>();
    case ElementType::Q8_0: return attend_rows.template operator()<Q8Rows>();
    case ElementType::I8: return;  // stores() refuses it
  }
}

// Joins two sections of the context. The first one is taken over as it is, so that a context of one section has the
// bits that it would have without sections.
void merge(Query& into, const Query& part, std::uint32_t dim) {
  if (part.highest == -__builtin_inff()) return;
  if (into.highest == -__builtin_inff()) {
    into.highest = part.highest;
    store16(into.total, load16(part.total));
    __builtin_memcpy(into.sum, part.sum, std::size_t{dim} * 4);
    return;
  }
  const float highest = part.highest > into.highest ? part.highest : into.highest;
  const V16 shrink = exponential(all(into.highest - highest)), factor = exponential(all(part.highest - highest));
  into.highest = highest;
  store16(into.total, fma(load16(part.total), factor, load16(into.total) * shrink));
  std::uint32_t at = 0;
  for (; at + 16 <= dim; at += 16) {
    store16(into.sum + at, fma(load16(part.sum + at), factor, load16(into.sum + at) * shrink));
  }
  if (at < dim) {
    const std::uint32_t count = dim - at;
    const V16 sum = load_some(into.sum + at, count) * shrink;
    store_some(into.sum + at, fma(load_some(part.sum + at, count), factor, sum), count);
  }
}

// A sink joins at the end, when a query has seen everything: so it does not matter how the context was divided.
void end_attention(Query* queries, std::uint32_t count, std::uint32_t dim, const float* sinks, std::uint32_t per_head) {
  for (std::uint32_t i = 0; i < count; ++i) {
    const float total = sum_of(load16(queries[i].total));
    float factor = 1.0f / total;
    if (sinks != nullptr) {
      const float own = queries[i].highest, sink = sinks[i % per_head], highest = sink > own ? sink : own;
      const V16 shrink = exponential(all(own - highest)), more = exponential(all(sink - highest));
      factor = shrink[0] / (total * shrink[0] + more[0]);
    }
    scale_by(queries[i].sum, factor, dim);
  }
}
