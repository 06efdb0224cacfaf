// Keys and values of an item on their way to shared memory: where the rows of a tile are, copies that go on while
// another tile is multiplied, and Q8_0 turned into halves.
#pragma once

#include "quire/backend/cuda/attention_math.h"
#include "quire/backend/cuda/attention_shape.h"

namespace quire::cuda {

template <typename Shape>
struct FastCopies {
  const AttendCall& call;
  std::byte* const shared;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;

  // The item.
  AttentionItem item{};
  std::uint32_t kv_head = 0;
  std::uint32_t tile_begin = 0, tile_end = 0;
  const std::uint32_t* table = nullptr;
  const std::byte* keys = nullptr;

  __device__ std::int64_t* offsets_of(std::uint32_t tile) const {
    return reinterpret_cast<std::int64_t*>(shared + Shape::kOffsetsAt) + tile % (Shape::kStages + 1) * kTile;
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

  __device__ void set_item(const AttentionItem& next, std::uint32_t head) {
    item = next;
    kv_head = head;
    tile_begin = item.begin / kTile;
    tile_end = (item.end + kTile - 1) / kTile;
    table = call.kv.table(item.table);
    keys = call.kv.base + call.layer * call.kv.layer_stride + kv_head * call.kv.head_stride;
  }
  // Whether no kernel of this step writes to a tile: all of its positions were stored in earlier steps.
  __device__ bool is_old(std::uint32_t tile) const {
    return tile < tile_end && at_most((tile + 1) * kTile, item.end) <= item.position;
  }

  // Where the rows of a tile are, in two steps: the load of a page's number takes long, so other work goes between.
  __device__ bool has_row(std::uint32_t tile) const {
    const std::uint32_t position = tile * kTile + static_cast<std::uint32_t>(thread);
    return thread < static_cast<int>(kTile) && position >= item.begin && position < item.end;
  }
  __device__ std::uint32_t find_page(std::uint32_t tile) const {
    return has_row(tile) ? table[(tile * kTile + static_cast<std::uint32_t>(thread)) / call.kv.block_size] : 0;
  }
  __device__ void put_row(std::uint32_t tile, std::uint32_t page) {
    if (tile >= tile_end || thread >= static_cast<int>(kTile)) return;
    const std::uint32_t position = tile * kTile + static_cast<std::uint32_t>(thread);
    const std::uint64_t offset = page * call.kv.page_unit + position % call.kv.block_size * call.kv.token_stride;
    offsets_of(tile)[thread] = has_row(tile) ? static_cast<std::int64_t>(offset) : -1;
  }

  template <int kBytes>
  __device__ void copy_raw(std::uint32_t tile) {
    constexpr int kPasses = (Shape::kRawBytes / kBytes + 31) / 32;
    const int chunks = static_cast<int>(row_bytes(ElementType::Q8_0, call.head_dim)) / kBytes;
#pragma unroll 4
    for (int row = warp; row < static_cast<int>(kTile); row += Shape::kWarps) {
      const std::int64_t offset = offsets_of(tile)[row];
      const std::byte* const from = offset < 0 ? call.kv.base : keys + offset;
#pragma unroll
      for (int plane = 0; plane < 2; ++plane) {
        std::byte* const to = in_ring(tile, plane) + row * Shape::kRawBytes;
        const std::byte* const source = from + (plane == 0 ? 0 : call.kv.v_offset);
#pragma unroll
        for (int pass = 0; pass < kPasses; ++pass) {
          const int c = lane + 32 * pass;
          if (c >= chunks) continue;
          if constexpr (kBytes == 2) {
            reinterpret_cast<std::uint16_t*>(to)[c] =
                offset < 0 ? 0 : reinterpret_cast<const std::uint16_t*>(source)[c];
          } else {
            copy_async<kBytes>(to + c * kBytes, source + c * kBytes, offset >= 0);
          }
        }
      }
    }
  }
  // A thread has the same 8 elements of several rows.
  static constexpr int kChunks = Shape::kElements / 8, kRowsAtOnce = Shape::kThreads / kChunks;
  __device__ void copy_halves(std::uint32_t tile) {
    const int c = thread % kChunks, first = thread / kChunks;
    if (c * 8 >= static_cast<int>(call.head_dim)) return;
    const std::byte* const from = keys + c * 16;
    std::byte* const to = in_ring(tile, 0) + first * Shape::kStride * 2 + c * 16;
    const std::int64_t* const offsets = offsets_of(tile) + first;
#pragma unroll Shape::kCopies
    for (int row = 0; row < static_cast<int>(kTile); row += kRowsAtOnce) {
      const std::int64_t offset = offsets[row];
      const std::byte* const key = offset < 0 ? call.kv.base : from + offset;
      copy_async<16>(to + row * Shape::kStride * 2, key, offset >= 0);
      copy_async<16>(to + Shape::kTileBytes + row * Shape::kStride * 2, key + call.kv.v_offset, offset >= 0);
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
    const int c = thread % kChunks, first = thread / kChunks;
    if (c * 8 < static_cast<int>(call.head_dim)) {
#pragma unroll
      for (int plane = 0; plane < 2; ++plane) {
        const std::byte* const from = in_ring(tile, plane) + first * Shape::kRawBytes;
        const std::byte* const factors = from + call.head_dim + c / 4 * 2;
        std::byte* const to =
            shared + Shape::kHalvesAt + plane * Shape::kTileBytes + first * Shape::kStride * 2 + c * 16;
#pragma unroll Shape::kCopies
        for (int row = 0; row < static_cast<int>(kTile); row += kRowsAtOnce) {
          const uint2 numbers = *reinterpret_cast<const uint2*>(from + row * Shape::kRawBytes + c * 8);
          const auto factor = *reinterpret_cast<const std::uint16_t*>(factors + row * Shape::kRawBytes);
          *reinterpret_cast<uint4*>(to + row * Shape::kStride * 2) = scaled_halves(numbers, factor);
        }
      }
    }
    __syncthreads();
  }
};

}  // namespace quire::cuda
