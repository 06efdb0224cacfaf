// The fast attention kernel's sizes: warps, stages of its pipeline, and what is where in shared memory.
#pragma once

#include <type_traits>

#include "quire/backend/cuda/attention_math.h"
#include "quire/backend/cuda/attention_mma.h"

namespace quire::cuda {

// kHead: elements of a head, rounded up to 64, 128 or 256. The rest is zeros.
template <ElementType kType, int kHead, bool kSplit>
struct FastShape {
  using Math = std::conditional_t<kType == ElementType::BF16, BF16Math, F16Math>;
  static constexpr bool kQ8 = kType == ElementType::Q8_0;
  static constexpr int kWarps = kSplit || kHead > 128 ? 4 : 8;
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kQueries = kSplit ? 16 : kWarps * 16;
  static constexpr int kStages = !kSplit ? (kHead > 128 ? 1 : 2) : kHead > 128 || Math::kTerms > 1 ? 2 : 3;
  // Of a multiprocessor.
  static constexpr int kBlocks = kSplit ? (kHead == 64    ? 3
                                           : kHead == 128 ? 2
                                                          : 1)
                                        : (kHead == 64 && Math::kTerms == 1 ? 2 : 1);
  static constexpr int kElements = kHead;
  static constexpr int kStride = kHead + 8;  // halves; rows of a matrix are in different banks then
  static constexpr int kRawBytes = (kHead + kHead / 16 + 15) / 16 * 16;    // of a Q8_0 row
  static constexpr int kGroups = kSplit ? 1 : 4;                           // of 16 keys, for a warp
  static constexpr int kSlices = kSplit ? (kHead + 63) / 64 : kHead / 16;  // of 16 elements of the values, for a warp
  static constexpr int kCopies = !kSplit && kHead > 128 ? 1 : 4;
  static constexpr int kUnroll = !kSplit && kHead > 128 ? 2 : 16;  // more takes too many registers
  static constexpr bool kHold = Math::kTerms == 1 && kHead <= 128 && (kSplit || kBlocks == 1);  // queries in registers
  static constexpr int kWeightStride = kTile + 8;

  static constexpr int kTileBytes = static_cast<int>(kTile) * kStride * 2;  // of keys, or values
  static constexpr int kRing = kQ8 ? kStages * 2 * static_cast<int>(kTile) * kRawBytes : kStages * 2 * kTileBytes;
  static constexpr int kHalvesAt = kRing;  // Q8_0 as halves
  static constexpr int kQueriesAt = kHalvesAt + (kQ8 ? 2 * kTileBytes : 0);
  static constexpr int kQueryBytes = Math::kTerms * kQueries * kStride * 2;
  // The sums of all sections so far: narrow ones in registers, wide ones in shared memory. Queries that are held are
  // gone from there when the first section ends.
  static constexpr int kTotalBytes = kSplit ? 0 : kSlices * 8 * kThreads * 4;
  static constexpr bool kInPlace = kHold && kQueryBytes <= kTotalBytes;
  static constexpr int kTotalsAt = kQueriesAt + (kInPlace ? 0 : kQueryBytes);
  static constexpr int kWeightsAt = kTotalsAt + kTotalBytes;
  static constexpr int kOffsetsAt = kWeightsAt + (kSplit ? Math::kTerms * 16 * kWeightStride * 2 : 0);
  static constexpr int kHighestAt = kOffsetsAt + (kStages + 1) * static_cast<int>(kTile) * 8;
  static constexpr int kFactorsAt = kHighestAt + 4 * 16 * 4;
  static constexpr int kPlacesAt = kFactorsAt + kQueries * 4;
  static constexpr int kBytes = kPlacesAt + kQueries * static_cast<int>(sizeof(QueryPlace));
};

// Shared memory that a block takes, of either kind.
template <ElementType kType>
constexpr std::uint32_t fast_shared_bytes(std::uint32_t head_dim) {
  const auto larger = [](int a, int b) { return static_cast<std::uint32_t>(a > b ? a : b); };
  if (head_dim <= 64) return larger(FastShape<kType, 64, true>::kBytes, FastShape<kType, 64, false>::kBytes);
  if (head_dim <= 128) return larger(FastShape<kType, 128, true>::kBytes, FastShape<kType, 128, false>::kBytes);
  return larger(FastShape<kType, 256, true>::kBytes, FastShape<kType, 256, false>::kBytes);
}

}  // namespace quire::cuda
