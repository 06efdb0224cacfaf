// The first half of the fast attention kernel's arithmetic: the queries of an item, and their scores for a tile of
// keys.
#pragma once

#include "quire/backend/cuda/attention_copies.h"
#include "quire/backend/cuda/overlap.cuh"

namespace quire::cuda {

template <typename Shape>
struct FastScores : FastCopies<Shape> {
  using Math = typename Shape::Math;
  using Base = FastCopies<Shape>;
  using Base::call, Base::shared, Base::thread, Base::warp, Base::lane, Base::item, Base::kv_head;
  using Base::tile_begin, Base::tile_end;
  static constexpr bool kNarrowItem = Shape::kQueries == 16;

  const int first_row = kNarrowItem ? 0 : warp * 16;  // of the block's queries
  ScoreScale scale = score_scale(call);

  bool busy = false;                   // this warp has queries
  std::uint32_t begin[2]{}, end[2]{};  // that rows lane / 4 and lane / 4 + 8 see
  std::uint32_t least_begin = 0, most_begin = 0, least_end = 0, most_end = 0;  // of the warp's rows
  float factor[2]{};
  Words4 held[Shape::kHold ? Shape::kElements / 16 : 1]{};

  __device__ std::uint16_t* queries_at(int term, int row) const {
    return reinterpret_cast<std::uint16_t*>(shared + Shape::kQueriesAt) +
           (term * Shape::kQueries + row) * Shape::kStride;
  }
  __device__ QueryPlace* places() const { return reinterpret_cast<QueryPlace*>(shared + Shape::kPlacesAt); }
  __device__ float* factors() const { return reinterpret_cast<float*>(shared + Shape::kFactorsAt); }

  // A query is multiplied by a power of two, so that its largest element is in [2^14, 2^15), and its scores are
  // multiplied back: a half has room for every query then.
  __device__ void load_query(int row, float (&x)[Shape::kElements / 32]) {
    const bool valid = static_cast<std::uint32_t>(row) < item.queries;
    QueryPlace place{0, 0, 0, kNone, 0, 0};
    if (valid) place = query_place(call, item, kv_head, static_cast<std::uint32_t>(row));
    if (lane == 0) places()[row] = place;
    const float* const from =
        reinterpret_cast<const float*>(call.q.data) + place.row * call.q.stride + place.head * call.head_dim;
#pragma unroll
    for (int i = 0; i < Shape::kElements / 32; ++i) {
      const std::uint32_t d = static_cast<std::uint32_t>(lane + 32 * i);
      x[i] = valid && d < call.head_dim ? from[d] : 0.0f;
    }
  }
  __device__ void round_query(int row, const float (&x)[Shape::kElements / 32]) {
    std::uint32_t largest = 0;  // as bits, whose order is that of the numbers; a NaN is above all
#pragma unroll
    for (int i = 0; i < Shape::kElements / 32; ++i) largest = max(largest, __float_as_uint(x[i]) & 0x7FFFFFFFu);
    largest = __reduce_max_sync(0xFFFFFFFF, largest);
    const std::uint32_t exponent = min(max(largest >> 23, 15u), 254u);
    const float up = copysignf(__uint_as_float((268 - exponent) << 23), scale.scale);
    const float down = __uint_as_float((exponent - 14) << 23);
#pragma unroll
    for (int i = 0; i < Shape::kElements / 32; ++i) {
      std::uint16_t rounded[Math::kTerms];
      Math::round(__fmul_rn(x[i], up), rounded);
      for (int term = 0; term < Math::kTerms; ++term) queries_at(term, row)[lane + 32 * i] = rounded[term];
    }
    // Above 0, so that the largest product is the largest score and -infinity stays what it is.
    if (lane == 0) factors()[row] = fmaxf(__fmul_rn(fabsf(scale.scale), down), 1.4e-45f);
  }
  // Several rows at a time: their loads overlap.
  __device__ void load_all_queries() {
    constexpr int kAtOnce = 4, kRows = Shape::kQueries / Shape::kWarps;
    static_assert(kRows % kAtOnce == 0);
#pragma unroll 1
    for (int first = 0; first < kRows; first += kAtOnce) {
      float x[kAtOnce][Shape::kElements / 32];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) load_query(warp + (first + i) * Shape::kWarps, x[i]);
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) round_query(warp + (first + i) * Shape::kWarps, x[i]);
    }
  }

  // `wait`: the first item of a block. The kernels before this one may still be at work, so there is no query yet, but
  // old tiles can be on their way.
  __device__ void start_item(const AttentionItem& next, std::uint32_t head, bool wait) {
    this->set_item(next, head);
    std::uint32_t pages[Shape::kStages];
#pragma unroll
    for (int i = 0; i < Shape::kStages; ++i) pages[i] = this->find_page(tile_begin + static_cast<std::uint32_t>(i));
#pragma unroll
    for (int i = 0; i < Shape::kStages; ++i) this->put_row(tile_begin + static_cast<std::uint32_t>(i), pages[i]);
    __syncthreads();
    const auto wait_once = [&] {
      if (!wait) return;
      wait_for_previous();
      let_next_start();
      wait = false;
    };
    for (int i = 0; i < Shape::kStages - 1; ++i) {
      if (!this->is_old(tile_begin + static_cast<std::uint32_t>(i))) wait_once();
      this->start_copy(tile_begin + static_cast<std::uint32_t>(i));
    }
    wait_once();
    load_all_queries();
    __syncthreads();
    busy = static_cast<std::uint32_t>(first_row) < item.queries;
    // Rows without a query compute something that nobody reads. They need no mask.
    least_begin = least_end = kNone;
    most_begin = most_end = 0;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first_row + lane / 4 + 8 * half;
      const bool valid = static_cast<std::uint32_t>(row) < item.queries;
      const std::uint32_t position = places()[row].position;
      begin[half] = valid ? first_seen(position, call.window) : 0;
      end[half] = valid ? position + 1 : kNone;
      factor[half] = factors()[row];
      most_begin = max(most_begin, begin[half]);
      least_end = min(least_end, end[half]);
      if (valid) least_begin = min(least_begin, begin[half]), most_end = max(most_end, end[half]);
    }
    most_begin = __reduce_max_sync(0xFFFFFFFF, most_begin);
    least_end = __reduce_min_sync(0xFFFFFFFF, least_end);
    least_begin = __reduce_min_sync(0xFFFFFFFF, least_begin);
    most_end = __reduce_max_sync(0xFFFFFFFF, most_end);
    if constexpr (Shape::kHold) {
#pragma unroll
      for (int k = 0; k < Shape::kElements / 16; ++k) {
        load_matrices(held[k], queries_at(0, first_row + lane % 16) + k * 16 + lane / 16 * 8);
      }
    }
  }

  // Elements 16 k to + 15 of the warp's queries.
  __device__ void load_queries(Words4& to, int term, int k) {
    if constexpr (Shape::kHold) {
#pragma unroll
      for (int i = 0; i < 4; ++i) to[i] = held[k][i];
    } else {
      load_matrices(to, queries_at(term, first_row + lane % 16) + k * 16 + lane / 16 * 8);
    }
  }

  // Whether some of the warp's queries do not see all of a tile.
  __device__ bool is_masked(std::uint32_t tile) const {
    return most_begin > tile * kTile || least_end < (tile + 1) * kTile;
  }

  // Scores of the warp's keys: group g has keys 16 (first_group + g) to + 15. Without a cap they are still products,
  // which weigh() multiplies by slope().
  __device__ void score(std::uint32_t tile, float (&scores)[Shape::kGroups][2][4]) {
    const int first_group = kNarrowItem ? warp : 0;
#pragma unroll
    for (int g = 0; g < Shape::kGroups; ++g) {
#pragma unroll
      for (int i = 0; i < 8; ++i) scores[g][i / 4][i % 4] = 0;
    }
    const std::uint16_t* const rows =
        this->halves(tile, 0) + (first_group * 16 + lane / 16 * 8 + lane % 8) * Shape::kStride + lane / 8 % 2 * 8;
#pragma unroll Shape::kUnroll
    for (int k = 0; k < Shape::kElements / 16; ++k) {
      Words4 q[Math::kTerms];
#pragma unroll
      for (int term = 0; term < Math::kTerms; ++term) load_queries(q[term], term, k);
#pragma unroll
      for (int g = 0; g < Shape::kGroups; ++g) {
        Words4 key;
        load_matrices(key, rows + g * 16 * Shape::kStride + k * 16);
#pragma unroll
        for (int term = 0; term < Math::kTerms; ++term) {
          Math::multiply(scores[g][0], q[term], key[0], key[1]);
          Math::multiply(scores[g][1], q[term], key[2], key[3]);
        }
      }
    }
    // Each of these is seldom needed, so it is a branch around all numbers, not one for each.
    if (scale.cap != 0) {
#pragma unroll
      for (int g = 0; g < Shape::kGroups; ++g) {
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          scores[g][i / 4][i % 4] = capped(__fmul_rn(scores[g][i / 4][i % 4], factor[i % 4 / 2]), scale.cap);
        }
      }
    }
    if (is_masked(tile)) {
#pragma unroll
      for (int g = 0; g < Shape::kGroups; ++g) {
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          const int half = i % 4 / 2;
          const std::uint32_t position =
              tile * kTile + static_cast<std::uint32_t>((first_group + g) * 16 + i / 4 * 8 + lane % 4 * 2 + i % 2);
          const bool seen = position >= begin[half] && position < end[half];
          scores[g][i / 4][i % 4] = seen ? scores[g][i / 4][i % 4] : -INFINITY;
        }
      }
    }
  }
  __device__ float slope(int half) const { return scale.cap != 0 ? 1.0f : factor[half]; }
};

}  // namespace quire::cuda
