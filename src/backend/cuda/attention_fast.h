// The fast attention kernel: matrix instructions, keys and values copied to shared memory ahead of their use.
//
// A block takes one item and one KV head after the other. Its queries are rows of 16 x 16 x 8 products. There are two
// ways to divide the work of a tile among warps, and both do the same operations for a query:
//   narrow  16 queries. Each of four warps takes 16 of the 64 keys, then a part of the elements of the values.
//   wide    every warp has 16 queries of its own.
// The sum of weights is a product too: with a column of ones.
//
// A tile that a query does not see leaves its sums as they are, to the bit: its weights are 0 and the factor is 1.
#pragma once

#include <atomic>

#include "quire/backend/cuda/attention_math.h"
#include "quire/backend/cuda/attention_shape.h"

namespace quire::cuda {

template <typename Shape>
struct FastBlock {
  using Math = typename Shape::Math;
  static constexpr bool kNarrowItem = Shape::kQueries == 16;

  const AttendCall& call;
  std::byte* const shared;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const int first_row = kNarrowItem ? 0 : warp * 16;  // of the block's queries
  ScoreScale scale = score_scale(call);

  // The item.
  AttentionItem item{};
  std::uint32_t kv_head = 0;
  std::uint32_t tile_begin = 0, tile_end = 0;
  const std::uint32_t* table = nullptr;
  const std::byte* keys = nullptr;
  bool busy = false;                   // this warp has queries
  std::uint32_t begin[2]{}, end[2]{};  // that rows lane / 4 and lane / 4 + 8 see
  std::uint32_t least_begin = 0, most_begin = 0, least_end = 0, most_end = 0;  // of the warp's rows
  float factor[2]{};
  Words4 held[Shape::kHold ? Shape::kElements / 16 : 1]{};

  // Sums of a section, and of all before it.
  float sums[Shape::kSlices][2][4]{}, total[4]{}, highest[2]{};
  float all_total[2]{}, all_highest[2]{}, own_sums[kNarrowItem ? Shape::kSlices * 8 : 1]{};

  __device__ std::uint16_t* queries_at(int term, int row) const {
    return reinterpret_cast<std::uint16_t*>(shared + Shape::kQueriesAt) +
           (term * Shape::kQueries + row) * Shape::kStride;
  }
  __device__ std::uint16_t* weights_at(int term, int row) const {
    return reinterpret_cast<std::uint16_t*>(shared + Shape::kWeightsAt) + (term * 16 + row) * Shape::kWeightStride;
  }
  __device__ std::int64_t* offsets_of(std::uint32_t tile) const {
    return reinterpret_cast<std::int64_t*>(shared + Shape::kOffsetsAt) + tile % (Shape::kStages + 1) * kTile;
  }
  __device__ float* highest_of(int of_warp) const {
    return reinterpret_cast<float*>(shared + Shape::kHighestAt) + of_warp * 16;
  }
  __device__ QueryPlace* places() const { return reinterpret_cast<QueryPlace*>(shared + Shape::kPlacesAt); }
  __device__ float* factors() const { return reinterpret_cast<float*>(shared + Shape::kFactorsAt); }
  __device__ float& all_sums(int i) {
    if constexpr (kNarrowItem) return own_sums[i];
    return reinterpret_cast<float*>(shared + Shape::kTotalsAt)[i * Shape::kThreads + thread];
  }
  // Keys (0) or values (1) of a tile: in the ring, and as the halves that are multiplied.
  __device__ std::byte* in_ring(std::uint32_t tile, int plane) const {
    constexpr int kBytes = Shape::kQ8 ? static_cast<int>(kTile) * Shape::kRawBytes : Shape::kTileBytes;
    return shared + (static_cast<int>(tile % Shape::kStages) * 2 + plane) * kBytes;
  }
  __device__ const std::uint16_t* halves(std::uint32_t tile, int plane) const {
    const std::byte* at = Shape::kQ8 ? shared + Shape::kHalvesAt + plane * Shape::kTileBytes : in_ring(tile, plane);
    return reinterpret_cast<const std::uint16_t*>(at);
  }

  // Elements beyond the head are never written again.
  __device__ void clear() {
    for (int i = thread; i < Shape::kQueriesAt / 16; i += Shape::kThreads) {
      reinterpret_cast<uint4*>(shared)[i] = uint4{};
    }
    __syncthreads();
  }

  // A query is multiplied by a power of two, so that its largest element is in [2^14, 2^15), and its scores are
  // multiplied back: a half has room for every query then.
  __device__ void load_query(int row) {
    const bool valid = static_cast<std::uint32_t>(row) < item.queries;
    QueryPlace place{0, 0, 0, kNone};
    if (valid) place = query_place(call, item, kv_head, static_cast<std::uint32_t>(row));
    const float* const from =
        reinterpret_cast<const float*>(call.q.data) + place.row * call.q.stride + place.head * call.head_dim;
    float x[Shape::kElements / 32];
    std::uint32_t largest = 0;  // as bits, whose order is that of the numbers; a NaN is above all
#pragma unroll
    for (int i = 0; i < Shape::kElements / 32; ++i) {
      const std::uint32_t d = static_cast<std::uint32_t>(lane + 32 * i);
      x[i] = valid && d < call.head_dim ? from[d] : 0.0f;
      largest = max(largest, __float_as_uint(x[i]) & 0x7FFFFFFFu);
    }
    largest = __reduce_max_sync(0xFFFFFFFF, largest);
    const std::uint32_t exponent = min(max(largest >> 23, 15u), 254u);
    const float up = __uint_as_float((268 - exponent) << 23), down = __uint_as_float((exponent - 14) << 23);
#pragma unroll
    for (int i = 0; i < Shape::kElements / 32; ++i) {
      std::uint16_t rounded[Math::kTerms];
      Math::round(__fmul_rn(x[i], up), rounded);
      for (int term = 0; term < Math::kTerms; ++term) queries_at(term, row)[lane + 32 * i] = rounded[term];
    }
    if (lane == 0) {
      places()[row] = place;
      factors()[row] = __fmul_rn(scale.scale, down);
    }
  }

  __device__ void find_rows(std::uint32_t tile) {
    if (tile >= tile_end || thread >= static_cast<int>(kTile)) return;
    const std::uint32_t position = tile * kTile + static_cast<std::uint32_t>(thread);
    std::int64_t offset = -1;
    if (position >= item.begin && position < item.end) {
      offset = static_cast<std::int64_t>(table[position / call.kv.block_size] * call.kv.page_unit +
                                         position % call.kv.block_size * call.kv.token_stride);
    }
    offsets_of(tile)[thread] = offset;
  }

  template <int kBytes>
  __device__ void copy_raw(std::uint32_t tile) {
    const int chunks = static_cast<int>(row_bytes(ElementType::Q8_0, call.head_dim)) / kBytes;
    for (int row = warp; row < static_cast<int>(kTile); row += Shape::kWarps) {
      const std::int64_t offset = offsets_of(tile)[row];
      const std::byte* const from = keys + (offset < 0 ? 0 : offset);
      for (int plane = 0; plane < 2; ++plane) {
        std::byte* const to = in_ring(tile, plane) + row * Shape::kRawBytes;
        const std::byte* const source = from + (plane == 0 ? 0 : call.kv.v_offset);
        for (int c = lane; c < chunks; c += 32) {
          if constexpr (kBytes == 2) {
            reinterpret_cast<std::uint16_t*>(to)[c] =
                offset < 0 ? 0 : reinterpret_cast<const std::uint16_t*>(source)[c];
          } else {
            copy_async<kBytes>(to + c * kBytes, offset < 0 ? call.kv.base : source + c * kBytes, offset >= 0);
          }
        }
      }
    }
  }
  __device__ void copy_halves(std::uint32_t tile) {
    constexpr int kChunks = Shape::kElements / 8;
    const int chunks = static_cast<int>(call.head_dim) / 8;
#pragma unroll
    for (int plane = 0; plane < 2; ++plane) {
      std::byte* const to = in_ring(tile, plane);
#pragma unroll Shape::kCopies
      for (int i = thread; i < static_cast<int>(kTile) * kChunks; i += Shape::kThreads) {
        const int row = i / kChunks, c = i % kChunks;
        if (c >= chunks) continue;
        const std::int64_t offset = offsets_of(tile)[row];
        const std::byte* from = keys + (plane == 0 ? 0 : call.kv.v_offset) + offset + c * 16;
        copy_async<16>(to + row * Shape::kStride * 2 + c * 16, offset < 0 ? call.kv.base : from, offset >= 0);
      }
    }
  }
  __device__ void start_copy(std::uint32_t tile) {
    if (tile < tile_end) {
      if constexpr (!Shape::kQ8) {
        copy_halves(tile);
      } else {
        switch (call.copy_bytes) {
          case 16: copy_raw<16>(tile); break;
          case 8: copy_raw<8>(tile); break;
          case 4: copy_raw<4>(tile); break;
          default: copy_raw<2>(tile); break;
        }
      }
    }
    end_copies();
  }

  // Q8_0 to halves.
  __device__ void widen(std::uint32_t tile) {
    constexpr int kChunks = Shape::kElements / 8;
    const int chunks = static_cast<int>(call.head_dim) / 8;
    for (int i = thread; i < 2 * static_cast<int>(kTile) * kChunks; i += Shape::kThreads) {
      const int plane = i / (static_cast<int>(kTile) * kChunks), row = i / kChunks % static_cast<int>(kTile);
      const int c = i % kChunks;
      if (c >= chunks) continue;
      const std::byte* const from = in_ring(tile, plane) + row * Shape::kRawBytes;
      const std::uint16_t factor_bits = *reinterpret_cast<const std::uint16_t*>(from + call.head_dim + c / 4 * 2);
      std::byte* const to = shared + Shape::kHalvesAt + plane * Shape::kTileBytes + row * Shape::kStride * 2 + c * 16;
      *reinterpret_cast<uint4*>(to) = scaled_halves(*reinterpret_cast<const uint2*>(from + c * 8), factor_bits);
    }
    __syncthreads();
  }

  __device__ void start(const AttentionItem& next, std::uint32_t head) {
    item = next;
    kv_head = head;
    tile_begin = item.begin / kTile;
    tile_end = (item.end + kTile - 1) / kTile;
    table = call.kv.table(item.table);
    keys = call.kv.base + call.layer * call.kv.layer_stride + kv_head * call.kv.head_stride;
    for (int i = 0; i < Shape::kStages; ++i) find_rows(tile_begin + static_cast<std::uint32_t>(i));
    __syncthreads();
    for (int i = 0; i < Shape::kStages - 1; ++i) start_copy(tile_begin + static_cast<std::uint32_t>(i));
    for (int row = warp; row < Shape::kQueries; row += Shape::kWarps) load_query(row);
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
      all_highest[half] = -INFINITY;
      all_total[half] = 0;
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
    start_section();
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

  // Elements 16 k to + 15 of the warp's queries.
  __device__ void load_queries(Words4& to, int term, int k) {
    if constexpr (Shape::kHold) {
#pragma unroll
      for (int i = 0; i < 4; ++i) to[i] = held[k][i];
    } else {
      load_matrices(to, queries_at(term, first_row + lane % 16) + k * 16 + lane / 16 * 8);
    }
  }

  // Scores of the warp's keys: group g has keys 16 (first_group + g) to + 15.
  __device__ void score(std::uint32_t tile, float (&scores)[Shape::kGroups][2][4]) {
    const int first_group = kNarrowItem ? warp : 0;
#pragma unroll
    for (int g = 0; g < Shape::kGroups; ++g) {
#pragma unroll
      for (int i = 0; i < 8; ++i) scores[g][i / 4][i % 4] = 0;
    }
    const std::uint16_t* const rows =
        halves(tile, 0) + (first_group * 16 + lane / 16 * 8 + lane % 8) * Shape::kStride + lane / 8 % 2 * 8;
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
    const bool masked = most_begin > tile * kTile || least_end < (tile + 1) * kTile;
#pragma unroll
    for (int g = 0; g < Shape::kGroups; ++g) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int half = i % 4 / 2;
        float s = score_of(scores[g][i / 4][i % 4], factor[half], scale.cap);
        if (masked) {
          const std::uint32_t position =
              tile * kTile + static_cast<std::uint32_t>((first_group + g) * 16 + i / 4 * 8 + lane % 4 * 2 + i % 2);
          if (position < begin[half] || position >= end[half]) s = -INFINITY;
        }
        scores[g][i / 4][i % 4] = s;
      }
    }
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
    float shrink[2], reference[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float now = fmaxf(highest[half], most[half]);
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
      for (int i = 0; i < 8; ++i) scores[g][i / 4][i % 4] = weight_of(scores[g][i / 4][i % 4], reference[i % 4 / 2]);
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

  __device__ void add_values(std::uint32_t tile, const Words4 (&weights)[Math::kTerms], int group) {
    const std::uint16_t* const rows =
        halves(tile, 1) + (group * 16 + lane / 8 % 2 * 8 + lane % 8) * Shape::kStride + lane / 16 * 8;
#pragma unroll
    for (int s = 0; s < Shape::kSlices; ++s) {
      Words4 value;
      load_transposed(value, rows + (kNarrowItem ? warp + 4 * s : s) * 16);
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
      add_values(tile, weights, group);
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
      const std::uint64_t part = std::uint64_t{place.part + section - item.section_begin} * call.heads + place.head;
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
    if (!busy || item.member != kNone) return;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first_row + lane / 4 + 8 * half;
      if (static_cast<std::uint32_t>(row) >= item.queries) continue;
      const QueryPlace place = places()[row];
      float* const to =
          reinterpret_cast<float*>(call.out.data) + place.row * call.out.stride + place.head * call.head_dim;
      const float factor_of_all = __fdiv_rn(1.0f, all_total[half]);
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

  __device__ void run(const AttentionItem& next, std::uint32_t head) {
    start(next, head);
    for (std::uint32_t tile = tile_begin; tile < tile_end; ++tile) {
      if constexpr (Shape::kStages == 1) {
        start_copy(tile);
        wait_copies<0>();
      } else {
        wait_copies<Shape::kStages - 2>();
      }
      __syncthreads();
      if constexpr (Shape::kStages > 1) start_copy(tile + Shape::kStages - 1);
      find_rows(tile + Shape::kStages);
      if constexpr (Shape::kQ8) widen(tile);
      attend(tile);
      if ((tile + 1) % kSectionTiles == 0 || tile + 1 == tile_end) end_section(tile / kSectionTiles);
      if constexpr (Shape::kStages == 1) __syncthreads();
    }
    write_result();
    wait_copies<0>();
    __syncthreads();
  }
};

template <ElementType kType, int kHead, bool kSplit>
__global__ void __launch_bounds__(FastShape<kType, kHead, kSplit>::kThreads, FastShape<kType, kHead, kSplit>::kBlocks)
    attend_fast(const __grid_constant__ AttendCall call) {
  extern __shared__ __align__(128) std::byte shared_memory[];
  const std::uint32_t count = (kSplit ? call.plan.counts->narrow : call.plan.counts->wide) * call.kv_heads;
  if (blockIdx.x >= count) return;
  FastBlock<FastShape<kType, kHead, kSplit>> block{call, shared_memory};
  if (call.head_dim < kHead) block.clear();
  const AttentionItem* const items = kSplit ? call.plan.narrow : call.plan.wide;
  // Long items come first. Every second round goes backwards, so that no block gets the longest of every round.
  for (std::uint32_t round = 0; round * gridDim.x < count; ++round) {
    const std::uint32_t i = round * gridDim.x + (round % 2 == 0 ? blockIdx.x : gridDim.x - 1 - blockIdx.x);
    if (i < count) block.run(items[i / call.kv_heads], i % call.kv_heads);
  }
}

template <ElementType kType, int kHead, bool kSplit>
void launch_fast_kernel(cudaStream_t stream, const AttendCall& call, std::uint32_t multiprocessors) {
  using Shape = FastShape<kType, kHead, kSplit>;
  static std::atomic<std::uint64_t> ready{0};  // devices that know how much shared memory it takes
  int device = 0;
  cudaGetDevice(&device);
  const std::uint64_t bit = std::uint64_t{1} << (device % 64);
  if ((ready.load() & bit) == 0) {
    cudaFuncSetAttribute(attend_fast<kType, kHead, kSplit>, cudaFuncAttributeMaxDynamicSharedMemorySize, Shape::kBytes);
    ready |= bit;
  }
  attend_fast<kType, kHead, kSplit><<<multiprocessors * Shape::kBlocks, Shape::kThreads, Shape::kBytes, stream>>>(call);
}

template <ElementType kType>
void launch_fast(cudaStream_t stream, const AttendCall& call, std::uint32_t multiprocessors, bool wide) {
  const auto launch = [&]<int kHead>() {
    if (wide) {
      launch_fast_kernel<kType, kHead, false>(stream, call, multiprocessors);
    } else {
      launch_fast_kernel<kType, kHead, true>(stream, call, multiprocessors);
    }
  };
  if (call.head_dim <= 64) {
    launch.template operator()<64>();
  } else if (call.head_dim <= 128) {
    launch.template operator()<128>();
  } else {
    launch.template operator()<256>();
  }
}

}  // namespace quire::cuda
