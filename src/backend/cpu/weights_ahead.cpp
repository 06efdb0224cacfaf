#include "quire/backend/cpu/weights_ahead.h"

#include <algorithm>

#include "quire/backend/cpu/for_each.h"
#include "quire/backend/cpu/tiles.h"
#include "quire/base/numbers.h"

namespace quire::cpu {
namespace {

constexpr std::uint32_t kMostCalls = 1024;  // of a step; the rest is not prefetched
constexpr std::uint32_t kMostProducts = 4;  // of a call; the rest is not prefetched
constexpr std::size_t kLine = 64;
// What a thread prefetches at most: a part of a second-level cache. Memory delivers about as much in the longest gap.
constexpr std::size_t kMostBytes = std::size_t{256} << 10;
constexpr std::uint32_t kLinesInATurn = 8;

}  // namespace

struct WeightsAhead::Call {
  struct Matrix {
    std::atomic<const std::byte*> data{nullptr};
    std::atomic<std::uint64_t> tile_bytes{0};
    std::atomic<std::uint32_t> tiles{0};
  };
  Matrix matrices[kMostProducts];
  std::atomic<std::uint32_t> tiles{0};  // of all; 0: nothing is known
};

WeightsAhead::WeightsAhead() : calls_(std::make_unique<Call[]>(kMostCalls)) {}
WeightsAhead::~WeightsAhead() = default;

void WeightsAhead::begin() {
  known_ = noted_;
  noted_ = 0;
}

const WeightsAhead::Call& WeightsAhead::note(std::span<const Product> products) {
  constexpr auto kRelaxed = std::memory_order_relaxed;
  const std::uint32_t now = std::min(noted_++, kMostCalls - 1);
  Call& call = calls_[now];
  std::uint32_t tiles = 0;
  for (std::uint32_t i = 0; i < kMostProducts; ++i) {
    const Weight* weight = i < products.size() && products[i].weight->arranged ? products[i].weight : nullptr;
    const std::byte* data = weight != nullptr ? weight->data : nullptr;
    Call::Matrix& matrix = call.matrices[i];
    const std::uint32_t own = weight != nullptr ? divide_up(weight->rows, kTileRows) : 0;
    tiles += own;
    if (matrix.data.load(kRelaxed) == data) continue;  // a line that is not written stays in all caches
    matrix.data.store(data, kRelaxed);
    matrix.tile_bytes.store(weight != nullptr ? weight->unit_bytes : 0, kRelaxed);
    matrix.tiles.store(own, kRelaxed);
  }
  if (call.tiles.load(kRelaxed) != tiles) call.tiles.store(tiles, kRelaxed);
  return calls_[now + 1 < std::min(known_, kMostCalls) ? now + 1 : 0];
}

bool WeightsAhead::prefetch_share(const void* call, std::uint32_t thread, std::uint32_t threads, std::uint32_t turn) {
  constexpr auto kRelaxed = std::memory_order_relaxed;
  const auto& next = *static_cast<const Call*>(call);
  const std::size_t at = std::size_t{turn} * kLinesInATurn * kLine;
  if (at >= kMostBytes) return false;
  std::uint32_t tile = Shares::begin(next.tiles.load(kRelaxed), thread, threads);
  for (const Call::Matrix& matrix : next.matrices) {
    const std::uint32_t tiles = matrix.tiles.load(kRelaxed);
    if (tile >= tiles) {
      tile -= tiles;
      continue;
    }
    const std::uint64_t tile_bytes = matrix.tile_bytes.load(kRelaxed);
    const std::byte* const data = matrix.data.load(kRelaxed);
    if (data == nullptr || at >= (tiles - tile) * tile_bytes) return false;
    for (std::uint32_t line = 0; line < kLinesInATurn; ++line) {
      __builtin_prefetch(data + tile * tile_bytes + at + line * kLine, 0, 2);
    }
    return true;
  }
  return false;
}

}  // namespace quire::cpu
