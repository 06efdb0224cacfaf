// Attention over one tile of the context: 64 positions, whose keys and values are in pages, for some queries that see
// all of them or a part. A key is loaded once for several queries. The result of a query is the same as if it were
// alone.
//
//   score = sum over the elements of the head, sixteen lanes wide; the lanes are added up as in sums_of()
//   sum = sum * shrink + weight of t * value of t, position by position

struct F32Row {
  static constexpr std::uint32_t kBytes = 4;
  static QUIRE_INLINE V16 load(const std::byte* p) { return load16(reinterpret_cast<const float*>(p)); }
};
struct F16Row {
  static constexpr std::uint32_t kBytes = 2;
  static QUIRE_INLINE V16 load(const std::byte* p) { return load_halves(p); }
};
struct BF16Row {
  static constexpr std::uint32_t kBytes = 2;
  static QUIRE_INLINE V16 load(const std::byte* p) { return load_brain_halves(p); }
};
template <typename Row>
QUIRE_INLINE V16 load_rest(const std::byte* p, std::uint32_t count) {
  alignas(64) std::byte some[64] = {};
  __builtin_memcpy(some, p, std::size_t{count} * Row::kBytes);
  return Row::load(some);
}

// Scores of kQueries queries with 16 / kQueries keys.
template <typename Row, int kQueries>
QUIRE_INLINE V16 score(const Query* queries, const std::byte* const* keys, const std::byte* const* next,
                       std::uint32_t dim) {
  constexpr int kKeys = 16 / kQueries;
  V16 sums[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) sums[i] = V16{};
  std::uint32_t at = 0;
  for (; at + 16 <= dim; at += 16) {
    if (next != nullptr && at * Row::kBytes % 64 == 0) {
#pragma GCC unroll 16
      for (int k = 0; k < kKeys; ++k) __builtin_prefetch(next[k] + at * Row::kBytes, 0, 2);
    }
    V16 q[kQueries];
#pragma GCC unroll 4
    for (int i = 0; i < kQueries; ++i) q[i] = load16(queries[i].q + at);
#pragma GCC unroll 16
    for (int k = 0; k < kKeys; ++k) {
      const V16 key = Row::load(keys[k] + at * Row::kBytes);
#pragma GCC unroll 4
      for (int i = 0; i < kQueries; ++i) sums[i * kKeys + k] = fma(q[i], key, sums[i * kKeys + k]);
    }
  }
  if (at < dim) {
    for (int k = 0; k < kKeys; ++k) {
      const V16 key = load_rest<Row>(keys[k] + at * Row::kBytes, dim - at);
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
                                 std::uint32_t dim, float scale, float cap) {
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
    scale_by(query.sum, shrink, dim);
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
template <typename Row, int kQueries, int kVectors, typename Weights>
QUIRE_INLINE void add_values(Query* queries, Weights weights, const std::byte* const* values,
                             const std::byte* const* next, std::uint32_t begin, std::uint32_t end, std::uint32_t at) {
  V16 sums[kQueries][kVectors];
#pragma GCC unroll 4
  for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sums[i][v] = load16(queries[i].sum + at + 16 * v);
  }
  for (std::uint32_t t = begin; t < end; ++t) {
    if (next != nullptr) {
#pragma GCC unroll 8
      for (std::uint32_t line = 0; line < 16 * kVectors * Row::kBytes; line += 64) {
        __builtin_prefetch(next[t] + at * Row::kBytes + line, 0, 2);
      }
    }
    V16 value[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) value[v] = Row::load(values[t] + (at + 16 * v) * Row::kBytes);
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

template <typename Row, int kQueries, typename Weights>
void add_all_values(Query* queries, Weights weights, const std::byte* const* values, const std::byte* const* next,
                    std::uint32_t begin, std::uint32_t end, std::uint32_t dim) {
  if (begin >= end) return;
  std::uint32_t at = 0;
  for (; at + 64 <= dim; at += 64) add_values<Row, kQueries, 4>(queries, weights, values, next, begin, end, at);
  for (; at + 16 <= dim; at += 16) add_values<Row, kQueries, 1>(queries, weights, values, next, begin, end, at);
  if (at == dim) return;
  const std::uint32_t count = dim - at;
  for (int i = 0; i < kQueries; ++i) {
    V16 sum = load_some(queries[i].sum + at, count);
    for (std::uint32_t t = begin; t < end; ++t) {
      sum = fma(all(weights(i, t)), load_rest<Row>(values[t] + at * Row::kBytes, count), sum);
    }
    store_some(queries[i].sum + at, sum, count);
  }
}

template <typename Row, int kQueries>
void attend_some(const ContextTile& tile, const ContextTile* next, Query* queries, std::uint32_t dim, float scale,
                 float cap) {
  constexpr std::uint32_t kKeys = 16 / kQueries;
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
    const V16 scores = score<Row, kQueries>(queries, tile.keys + t, next_keys, dim);
    for (int i = 0; i < kQueries; ++i) {
      __builtin_memcpy(&weights[i][t], reinterpret_cast<const float*>(&scores) + i * kKeys, kKeys * sizeof(float));
    }
  }
  for (int i = 0; i < kQueries; ++i) {
    if (begin[i] >= end[i]) continue;
    V16 vectors[4];
    for (int j = 0; j < 4; ++j) vectors[j] = load16(&weights[i][16 * j]);
    online_softmax(queries[i], vectors, begin[i], end[i], dim, scale, cap);
    for (int j = 0; j < 4; ++j) store16(&weights[i][16 * j], vectors[j]);
  }
  // Positions that all queries see are added together. The others are added before and after, so that each query adds
  // in order.
  if (most_begin >= least_end) {
    for (int i = 0; i < kQueries; ++i) {
      add_all_values<Row, 1>(queries + i, ByQuery{weights[i]}, tile.values, nullptr, begin[i], end[i], dim);
    }
    return;
  }
  for (int i = 0; i < kQueries; ++i) {
    add_all_values<Row, 1>(queries + i, ByQuery{weights[i]}, tile.values, nullptr, begin[i], most_begin, dim);
  }
  add_all_values<Row, kQueries>(queries, ByQuery{weights[0]}, tile.values, next == nullptr ? nullptr : next->values,
                                most_begin, least_end, dim);
  for (int i = 0; i < kQueries; ++i) {
    add_all_values<Row, 1>(queries + i, ByQuery{weights[i]}, tile.values, nullptr, least_end, end[i], dim);
  }
}

#if defined(__AVX512F__)
// Sixteen queries at once, one per lane. All must see the whole tile, and the rows must be floats. Nothing is added up
// across lanes: the sixteen lanes that a single query would have are sixteen sums here, added up in the same order.
constexpr std::uint32_t kWidest = 256;  // elements of a row

void attend_sixteen(const ContextTile& tile, Query* queries, std::uint32_t dim, float scale, float cap) {
  alignas(64) float transposed[kWidest][16];
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
    if (highest[i] > before[i]) scale_by(queries[i].sum, shrink[i], dim);
    queries[i].highest = highest[i];
  }
  for (std::uint32_t t = 0; t < kContextTile; ++t) {
    const V16 weight = exponential(load16(weights[t]) - highest);
    store16(weights[t], weight);
    totals[t % 16] += weight;
  }
  transpose(totals);
  for (int i = 0; i < 16; ++i) store16(queries[i].total, totals[i]);
  for (int i = 0; i < 16; i += 4) {
    add_all_values<F32Row, 4>(queries + i, ByPosition{weights[0] + i}, tile.values, nullptr, 0, kContextTile, dim);
  }
}

// Converts f16 or bf16 rows to floats, once for all queries.
template <typename Row>
void widen(const ContextTile& tile, const ContextTile* next, ContextTile& wide, float* rows, std::uint32_t dim) {
  wide.position = tile.position;
  for (std::uint32_t t = 0; t < kContextTile; ++t, rows += 2 * dim) {
    for (std::uint32_t at = 0; at < dim; at += 16) {
      if (next != nullptr && at % 32 == 0) {
        __builtin_prefetch(next->keys[t] + at * 2, 0, 2);
        __builtin_prefetch(next->values[t] + at * 2, 0, 2);
      }
      store16(rows + at, Row::load(tile.keys[t] + at * 2));
      store16(rows + dim + at, Row::load(tile.values[t] + at * 2));
    }
    wide.keys[t] = reinterpret_cast<const std::byte*>(rows);
    wide.values[t] = reinterpret_cast<const std::byte*>(rows + dim);
  }
}
#endif

template <typename Row>
void attend_all(const ContextTile& tile, const ContextTile* next, Query* queries, std::uint32_t count,
                std::uint32_t dim, float scale, float cap) {
  std::uint32_t i = 0;
#if defined(__AVX2__)  // without AVX2 registers, several queries at once gain nothing
  for (; i + 4 <= count; i += 4) attend_some<Row, 4>(tile, i == 0 ? next : nullptr, queries + i, dim, scale, cap);
  for (; i + 2 <= count; i += 2) attend_some<Row, 2>(tile, i == 0 ? next : nullptr, queries + i, dim, scale, cap);
#endif
  for (; i < count; ++i) attend_some<Row, 1>(tile, i == 0 ? next : nullptr, queries + i, dim, scale, cap);
}

#if defined(__AVX512F__)
void attend_many(const ContextTile& tile, Query* queries, std::uint32_t count, std::uint32_t dim, float scale,
                 float cap) {
  std::uint32_t i = 0;
  for (; i + 16 <= count; i += 16) {
    bool whole = true;
    for (std::uint32_t k = i; k < i + 16; ++k) {
      whole = whole && queries[k].begin <= tile.position && queries[k].end >= tile.position + kContextTile;
    }
    if (whole) {
      attend_sixteen(tile, queries + i, dim, scale, cap);
    } else {
      attend_all<F32Row>(tile, nullptr, queries + i, 16, dim, scale, cap);
    }
  }
  attend_all<F32Row>(tile, nullptr, queries + i, count - i, dim, scale, cap);
}
#endif

void attend(const ContextTile& tile, const ContextTile* next, ElementType type, Query* queries, std::uint32_t count,
            std::uint32_t dim, float scale, float cap) {
#if defined(__AVX512F__)
  if (count >= 16 && dim % 16 == 0 && dim <= kWidest) {
    if (type == ElementType::F32) return attend_many(tile, queries, count, dim, scale, cap);
    alignas(64) float rows[2 * kContextTile * kWidest];
    ContextTile wide;
    (type == ElementType::F16 ? widen<F16Row> : widen<BF16Row>)(tile, next, wide, rows, dim);
    return attend_many(wide, queries, count, dim, scale, cap);
  }
#endif
  if (type == ElementType::F32) {
    attend_all<F32Row>(tile, next, queries, count, dim, scale, cap);
  } else if (type == ElementType::BF16) {
    attend_all<BF16Row>(tile, next, queries, count, dim, scale, cap);
  } else {
    attend_all<F16Row>(tile, next, queries, count, dim, scale, cap);
  }
}

void end_attention(Query* queries, std::uint32_t count, std::uint32_t dim) {
  for (std::uint32_t i = 0; i < count; ++i) scale_by(queries[i].sum, 1.0f / sum_of(load16(queries[i].total)), dim);
}
