// The arithmetic of the fast attention kernel: matrix instructions over tiles of keys and values in shared memory.
//
// A block takes one item and one KV head after the other. Its queries are rows of 16 x 16 x 8 products. There are two
// ways to divide the work of a tile among warps, and both do the same operations for a query:
//   narrow  16 queries. Each of four warps takes 16 of the 64 keys, then a part of the elements of the values.
//   wide    every warp has 16 queries of its own.
// The sum of weights is a product too: with a column of ones.
//
// A tile that a query does not see leaves its sums as they are, to the bit: its weights are 0 and the factor is 1.
#pragma once

#include "quire/backend/cuda/attention_join.h"
#include "quire/backend/cuda/attention_scores.h"

namespace quire::cuda {

// Whether values of a tile, without positions [begin, end), have a NaN or an infinity. One warp. Seldom needed, and not
// inlined: it would take registers from the rest.
template <typename Shape>
__device__ __noinline__ bool has_nonfinite(const std::uint16_t* values, std::uint32_t first, std::uint32_t begin,
                                           std::uint32_t end) {
  constexpr int kChunks = Shape::kElements / 8;
  std::uint32_t found = 0;
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x % 32); i < static_cast<int>(kTile) * kChunks; i += 32) {
    const int row = i / kChunks;
    const std::uint32_t position = first + static_cast<std::uint32_t>(row);
    if (position >= begin && position < end) continue;
    const uint4 x = *reinterpret_cast<const uint4*>(values + row * Shape::kStride + i % kChunks * 8);
    found |= Shape::Math::nonfinite(x.x) | Shape::Math::nonfinite(x.y) | Shape::Math::nonfinite(x.z) |
             Shape::Math::nonfinite(x.w);
  }
  return __any_sync(0xFFFFFFFF, found != 0);
}

template <typename Shape>
struct FastBlock : FastScores<Shape> {
  using Math = typename Shape::Math;
  using Base = FastScores<Shape>;
  using Base::call, Base::shared, Base::thread, Base::warp, Base::lane, Base::item, Base::kv_head;
  using Base::least_begin, Base::most_begin, Base::least_end, Base::most_end, Base::kNarrowItem;
  using Base::places, Base::is_masked, Base::score;
  using Base::tile_begin, Base::tile_end, Base::first_row, Base::scale, Base::busy, Base::begin, Base::end;

  // Sums of a section, and of all before it.
  float sums[Shape::kSlices][2][4]{}, total[4]{}, highest[2]{};
  float all_total[2]{}, all_highest[2]{}, own_sums[kNarrowItem ? Shape::kSlices * 8 : 1]{};

  __device__ std::uint16_t* weights_at(int term, int row) const {
    return reinterpret_cast<std::uint16_t*>(shared + Shape::kWeightsAt) + (term * 16 + row) * Shape::kWeightStride;
  }
  __device__ float* highest_of(int of_warp) const {
    return reinterpret_cast<float*>(shared + Shape::kHighestAt) + of_warp * 16;
  }
  __device__ float& all_sums(int i) {
    if constexpr (kNarrowItem) return own_sums[i];
    return reinterpret_cast<float*>(shared + Shape::kTotalsAt)[i * Shape::kThreads + thread];
  }

  __device__ void start_section() {
#pragma unroll
    for (int s = 0; s < Shape::kSlices; ++s) {
#pragma unroll
      for (int i = 0; i < 8; ++i) sums[s][i / 4][i % 4] = 0;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) total[i] = 0;
    highest[0] = highest[1] = -INFINITY;
  }

  // Turns scores into weights, and scales the sums so far to the new maximum.
  __device__ void weigh(float (&scores)[Shape::kGroups][2][4]) {
    float most[2] = {-INFINITY, -INFINITY};
#pragma unroll
    for (int g = 0; g < Shape::kGroups; ++g) {
#pragma unroll
      for (int i = 0; i < 8; ++i) most[i % 4 / 2] = fmaxf(most[i % 4 / 2], scores[g][i / 4][i % 4]);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      most[half] = fmaxf(most[half], __shfl_xor_sync(0xFFFFFFFF, most[half], 1));
      most[half] = fmaxf(most[half], __shfl_xor_sync(0xFFFFFFFF, most[half], 2));
    }
    if constexpr (kNarrowItem) {
      if (lane % 4 == 0) {
        highest_of(warp)[lane / 4] = most[0];
        highest_of(warp)[lane / 4 + 8] = most[1];
      }
      __syncthreads();
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        most[0] = fmaxf(most[0], highest_of(w)[lane / 4]);
        most[1] = fmaxf(most[1], highest_of(w)[lane / 4 + 8]);
      }
    }
    float shrink[2], reference[2], slopes[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      slopes[half] = this->slope(half);
      const float now = fmaxf(highest[half], __fmul_rn(most[half], slopes[half]));
      reference[half] = reference_of(now);
      shrink[half] = weight_of(highest[half], reference[half]);
      highest[half] = now;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) total[i] = __fmul_rn(total[i], shrink[i / 2]);
    // A factor of 1 changes nothing.
    if (__any_sync(0xFFFFFFFF, shrink[0] != 1.0f || shrink[1] != 1.0f)) {
#pragma unroll
      for (int s = 0; s < Shape::kSlices; ++s) {
#pragma unroll
        for (int i = 0; i < 8; ++i) sums[s][i / 4][i % 4] = __fmul_rn(sums[s][i / 4][i % 4], shrink[i % 4 / 2]);
      }
    }
#pragma unroll
    for (int g = 0; g < Shape::kGroups; ++g) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int half = i % 4 / 2;
        scores[g][i / 4][i % 4] = power_of_two(__fmaf_rn(scores[g][i / 4][i % 4], slopes[half], -reference[half]));
      }
    }
  }

  // The weights of 16 keys, as the left side of a product.
  __device__ void left_side(const float (&weights)[2][4], Words4 (&to)[Math::kTerms]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      std::uint32_t pair[Math::kTerms];
      Math::round(weights[i / 2][i % 2 * 2], weights[i / 2][i % 2 * 2 + 1], pair);
#pragma unroll
      for (int term = 0; term < Math::kTerms; ++term) to[term][i] = pair[term];
    }
  }

  // kCareful: without numbers that are not finite, in rows that not all queries see.
  template <bool kCareful>
  __device__ void add_values(std::uint32_t tile, const Words4 (&weights)[Math::kTerms], int group) {
    const std::uint16_t* const rows =
        this->halves(tile, 1) + (group * 16 + lane / 8 % 2 * 8 + lane % 8) * Shape::kStride + lane / 16 * 8;
#pragma unroll
    for (int s = 0; s < Shape::kSlices; ++s) {
      Words4 value;
      load_transposed(value, rows + (kNarrowItem ? warp + 4 * s : s) * 16);
      if constexpr (kCareful) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          value[i] = finite_or_seen(value[i],
                                    tile * kTile + static_cast<std::uint32_t>(group * 16 + i % 2 * 8 + lane % 4 * 2));
        }
      }
#pragma unroll
      for (int term = 0; term < Math::kTerms; ++term) {
        Math::multiply(sums[s][0], weights[term], value[0], value[1]);
        Math::multiply(sums[s][1], weights[term], value[2], value[3]);
      }
    }
#pragma unroll
    for (int term = 0; term < Math::kTerms; ++term) {
      Math::multiply(total, weights[term], Math::kOnes, Math::kOnes);
    }
  }
  // Two values, of positions `position` and the next one.
  __device__ std::uint32_t finite_or_seen(std::uint32_t pair, std::uint32_t position) const {
    const auto seen = [&](std::uint32_t p) { return p >= most_begin && p < least_end; };
    const std::uint32_t bad = Math::nonfinite(pair);
    if ((bad & 0x8000u) != 0 && !seen(position)) pair &= 0xFFFF0000u;
    if ((bad & 0x80000000u) != 0 && !seen(position + 1)) pair &= 0xFFFFu;
    return pair;
  }

  // Whether values that not all of the warp's queries see have a NaN or an infinity. Its product with a weight of 0
  // would be a NaN.
  __device__ bool hides_nonfinite(std::uint32_t tile) const {
    const std::uint32_t first = tile * kTile;
    if (at_least(first, item.begin) >= most_begin && at_most(first + kTile, item.end) <= least_end) return false;
    return has_nonfinite<Shape>(this->halves(tile, 1), first, most_begin, least_end);
  }

  // What add_values<true>() left out: the products with such numbers, for the queries that see them. The sums become
  // infinite or NaN, so their order is of no importance.
  __device__ void add_nonfinite(std::uint32_t tile, const float (&scores)[Shape::kGroups][2][4]) {
    // A copy that may be in memory: the scores themselves stay in registers.
    float kept[Shape::kGroups * 8];
#pragma unroll
    for (int i = 0; i < Shape::kGroups * 8; ++i) kept[i] = scores[i / 8][i / 4 % 2][i % 4];
#pragma unroll 1
    for (int p = 0; p < static_cast<int>(kTile); ++p) {
      const std::uint32_t position = tile * kTile + static_cast<std::uint32_t>(p);
      if (position >= most_begin && position < least_end) continue;
      std::uint16_t weights[2][Math::kTerms];
      load_weights(kept, p, weights);
#pragma unroll 1
      for (int at = 0; at < Shape::kSlices * 4; ++at) {
        const std::uint16_t value = (this->halves(tile, 1) + p * Shape::kStride)[element(at / 4, at / 2 % 2) + at % 2];
        if (Math::nonfinite(value) == 0) continue;
        float product[2] = {};
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          if (position < begin[half] || position >= end[half]) continue;
#pragma unroll
          for (int term = 0; term < Math::kTerms; ++term) {
            product[half] = __fmaf_rn(Math::value(weights[half][term]), Math::value(value), product[half]);
          }
        }
#pragma unroll
        for (int i = 0; i < Shape::kSlices * 4; ++i) {  // registers have no index
          if (i != at) continue;
          float(&both)[4] = sums[i / 4][i / 2 % 2];
          both[i % 2] = __fadd_rn(both[i % 2], product[0]);
          both[2 + i % 2] = __fadd_rn(both[2 + i % 2], product[1]);
        }
      }
    }
  }
  // The rounded weights of key p for rows lane / 4 and lane / 4 + 8.
  __device__ void load_weights(const float (&kept)[Shape::kGroups * 8], int p, std::uint16_t (&to)[2][Math::kTerms]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if constexpr (kNarrowItem) {
#pragma unroll
        for (int term = 0; term < Math::kTerms; ++term) to[half][term] = weights_at(term, lane / 4 + 8 * half)[p];
      } else {
        const float own = kept[p / 8 * 4 + 2 * half + p % 2];
        Math::round(__shfl_sync(0xFFFFFFFF, own, lane / 4 * 4 + p % 8 / 2), to[half]);
      }
    }
  }

  __device__ void attend(std::uint32_t tile) {
    if constexpr (!kNarrowItem) {
      if (!busy || tile * kTile >= most_end || (tile + 1) * kTile <= least_begin) return;
    }
    float scores[Shape::kGroups][2][4];
    score(tile, scores);
    weigh(scores);
    if constexpr (kNarrowItem) {
      Words4 mine[Math::kTerms];
      left_side(scores[0], mine);
#pragma unroll
      for (int term = 0; term < Math::kTerms; ++term) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          std::uint16_t* const to = weights_at(term, lane / 4 + i % 2 * 8) + warp * 16 + i / 2 * 8 + lane % 4 * 2;
          *reinterpret_cast<std::uint32_t*>(to) = mine[term][i];
        }
      }
      __syncthreads();
    }
    if (is_masked(tile) && hides_nonfinite(tile)) {
      add_all_values<true>(tile, scores);
      add_nonfinite(tile, scores);
    } else {
      add_all_values<false>(tile, scores);
    }
  }
  template <bool kCareful>
  __device__ void add_all_values(std::uint32_t tile, const float (&scores)[Shape::kGroups][2][4]) {
#pragma unroll
    for (int group = 0; group < 4; ++group) {
      Words4 weights[Math::kTerms];
      if constexpr (kNarrowItem) {
#pragma unroll
        for (int term = 0; term < Math::kTerms; ++term) {
          load_matrices(weights[term], weights_at(term, lane % 16) + group * 16 + lane / 16 * 8);
        }
      } else {
        left_side(scores[group], weights);
      }
      add_values<kCareful>(tile, weights, group);
    }
  }

  // Which element of its head sums[s][n][i] is, for even i.
  __device__ std::uint32_t element(int s, int n) const {
    return static_cast<std::uint32_t>((kNarrowItem ? warp + 4 * s : s) * 16 + n * 8 + lane % 4 * 2);
  }

  __device__ void end_section(std::uint32_t section) {
    if (!busy) return;
    if (item.member == kNone) {
      const Joint joints[2] = {joint_of(all_highest[0], highest[0]), joint_of(all_highest[1], highest[1])};
#pragma unroll
      for (int s = 0; s < Shape::kSlices; ++s) {
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          float& before = all_sums(s * 8 + i);
          before = join(joints[i % 4 / 2], before, sums[s][i / 4][i % 4]);
        }
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        all_total[half] = join(joints[half], all_total[half], total[2 * half]);
        all_highest[half] = fmaxf(all_highest[half], highest[half]);
      }
    } else {
      write_part(section);
    }
    start_section();
  }

  __device__ void write_part(std::uint32_t section) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first_row + lane / 4 + 8 * half;
      if (static_cast<std::uint32_t>(row) >= item.queries) continue;
      const QueryPlace place = places()[row];
      const std::uint64_t part = std::uint64_t{place.part + section - item.part_section} * call.heads + place.head;
      if (lane % 4 == 0 && (!kNarrowItem || warp == 0)) {
        call.part_totals[part] = float2{highest[half], total[2 * half]};
      }
      float* const to = call.part_sums + part * call.head_dim;
#pragma unroll
      for (int i = 0; i < Shape::kSlices * 2; ++i) {
        const std::uint32_t d = element(i / 2, i % 2);
        if (d >= call.head_dim) continue;
        *reinterpret_cast<float2*>(to + d) = float2{sums[i / 2][i % 2][2 * half], sums[i / 2][i % 2][2 * half + 1]};
      }
    }
  }

  __device__ void write_result() {
    if (!busy) return;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first_row + lane / 4 + 8 * half;
      if (static_cast<std::uint32_t>(row) >= item.queries) continue;
      const QueryPlace place = places()[row];
      float* const to =
          reinterpret_cast<float*>(call.out.data) + place.row * call.out.stride + place.head * call.head_dim;
      const float factor_of_all = factor_of(call, place.head, all_highest[half], all_total[half]);
#pragma unroll
      for (int i = 0; i < Shape::kSlices * 2; ++i) {
        const std::uint32_t d = element(i / 2, i % 2);
        if (d >= call.head_dim) continue;
        const int at = i * 4 + 2 * half;
        to[d] = __fmul_rn(all_sums(at), factor_of_all);
        to[d + 1] = __fmul_rn(all_sums(at + 1), factor_of_all);
      }
    }
  }

  __device__ void run(const AttentionItem& next, std::uint32_t head, bool wait) {
    this->start_item(next, head, wait);
    all_highest[0] = all_highest[1] = -INFINITY;
    all_total[0] = all_total[1] = 0;
    if constexpr (kNarrowItem) {
#pragma unroll
      for (float& sum : own_sums) sum = 0;  // so that they take no registers between items
    }
    start_section();
    for (std::uint32_t tile = tile_begin; tile < tile_end; ++tile) {
      if constexpr (Shape::kStages == 1) {
        this->start_copy(tile);
        wait_copies<0>();
      } else {
        wait_copies<Shape::kStages - 2>();
      }
      __syncthreads();
      if constexpr (Shape::kStages > 1) this->start_copy(tile + Shape::kStages - 1);
      const std::uint32_t page = this->find_page(tile + Shape::kStages);
      if constexpr (Shape::kQ8) this->widen(tile);
      attend(tile);
      this->put_row(tile + Shape::kStages, page);
      if ((tile + 1) % kSectionTiles == 0 || tile + 1 == tile_end) end_section(tile / kSectionTiles);
      if constexpr (Shape::kStages == 1) __syncthreads();
    }
    if (item.member == kNone) {
      write_result();
    } else {
      __threadfence();
      __syncthreads();
      const std::uint32_t before = static_cast<std::uint32_t>(warp);
      if (item.queries > before) {
        join_complete<Shape::kQueries / Shape::kWarps>(call, places() + warp, Shape::kWarps, item.queries - before,
                                                       item.section_end - item.section_begin);
      }
    }
    wait_copies<0>();
    __syncthreads();
  }
};

}  // namespace quire::cuda
