// Measures matrix products with one row, and how fast the same bytes can be read, in turn. On a shared machine the
// bandwidth changes within seconds, so a ratio of separate measurements would mean little.
#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "quire/backend/cpu/kernels.h"
#include "quire/backend/cpu/tiles.h"
#include "quire/base/large_vector.h"
#include "quire/base/machine.h"
#include "quire/bench/machine_limits.h"

namespace quire::bench {
namespace {

using namespace cpu;

constexpr std::uint32_t kCols = 2048, kTurns = 16, kTilesAtOnce = 30;
constexpr std::uint64_t kBytes = std::uint64_t{600} << 20;

using Clock = std::chrono::steady_clock;

// The input of a product, quantised.
struct Quantized {
  std::vector<float> x = std::vector<float>(kCols, 0.5f), scales = std::vector<float>(kCols / 32), sums = scales,
                     half_sums = std::vector<float>(kCols / 16);
  std::vector<std::int8_t> q = std::vector<std::int8_t>(kCols);
  std::vector<std::int32_t> starts = std::vector<std::int32_t>(kCols / 32),
                            half_starts = std::vector<std::int32_t>(kCols / 16);
  QuantInput input{q.data(), scales.data(), starts.data(), sums.data(), half_starts.data(), half_sums.data()};
};

void measure(gguf::Type type, const Kernels& kernels, std::uint32_t threads) {
  const std::uint64_t bytes = tile_bytes(type, kCols);
  const auto tiles = static_cast<std::uint32_t>(kBytes / bytes / threads * threads);
  LargeVector<std::byte> weights(tiles * bytes);
  // Any bytes are valid weights. Small exponents keep all scales finite.
  for (std::uint64_t at = 0; at + 8 <= weights.size(); at += 8) {
    const std::uint64_t some = at * 0x9e3779b97f4a7c15 & 0x3b3b3b3b3b3b3b3b;
    std::memcpy(weights.data() + at, &some, 8);
  }
  Quantized in;
  kernels.quantize(in.x.data(), kCols, in.input);
  std::vector<float> result(std::size_t{tiles} * kTileRows);
  const WeightTiles matrix{type, tiles * kTileRows, kCols, weights.data(), bytes, 0, 0, 0};
  const ProductOut out{result.data(), result.size(), nullptr, false, 1};
  const bool plain = type == gguf::Type::F16 || type == gguf::Type::BF16 || type == gguf::Type::F32;

  const auto read = [&](std::uint32_t thread) {
    const std::uint64_t own = tiles / threads * bytes;
    read_lines(kernels, weights.data() + thread * own, own);
  };
  const auto multiply = [&](std::uint32_t thread) {
    LargeVector<std::byte> quants(std::size_t{kMostTiles} * kMostChunkCols * kTileRows);
    LargeVector<float> scales(kMostChunkCols * kMostTiles), offsets(scales.size()), sums(kMostTiles * kTileRows);
    const ProductScratch scratch{quants.data(), scales.data(), offsets.data(), sums.data()};
    const std::uint32_t own = tiles / threads, end = (thread + 1) * own;
    for (std::uint32_t tile = thread * own; tile < end; tile += kTilesAtOnce) {
      const std::uint32_t last = std::min(tile + kTilesAtOnce, end);
      if (plain) {
        kernels.multiply_float(matrix, tile, last, in.x.data(), kCols, 1, out, scratch);
      } else {
        kernels.multiply_quant(matrix, tile, last, in.input, kCols, 1, out, scratch);
      }
    }
  };

  double best[2] = {};  // bytes per second: multiplied, read
  std::barrier together(static_cast<std::ptrdiff_t>(threads) + 1);
  std::vector<std::thread> team;
  for (std::uint32_t thread = 0; thread < threads; ++thread) {
    team.emplace_back([&, thread] {
      for (std::uint32_t turn = 0; turn < 2 * kTurns; ++turn) {
        together.arrive_and_wait();
        if (turn % 2 == 0) {
          multiply(thread);
        } else {
          read(thread);
        }
        together.arrive_and_wait();
      }
    });
  }
  for (std::uint32_t turn = 0; turn < 2 * kTurns; ++turn) {
    const auto start = Clock::now();
    together.arrive_and_wait();
    together.arrive_and_wait();
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    best[turn % 2] = std::max(best[turn % 2], static_cast<double>(weights.size()) / seconds);
  }
  for (std::thread& one : team) one.join();
  fmt::print("{:<6} {:>9.1f} {:>9.1f} {:>7.2f}\n", gguf::type_name(type), best[0] / 1e9, best[1] / 1e9,
             best[0] / best[1]);
}

}  // namespace
}  // namespace quire::bench

int main() {
  using quire::gguf::Type;
  const quire::cpu::Kernels& kernels = quire::cpu::best_kernels();
  const std::uint32_t threads = quire::available_cores();
  fmt::print("One row through products, and reading the same bytes, in turn: GB/s, the best of {}; {} threads, {}\n",
             quire::bench::kTurns, threads, kernels.name);
  fmt::print("{:<6} {:>9} {:>9} {:>7}\n", "type", "products", "reading", "ratio");
  for (const Type type :
       {Type::Q8_0, Type::Q4_0, Type::Q4_K, Type::Q5_K, Type::Q6_K, Type::F16, Type::BF16, Type::F32}) {
    quire::bench::measure(type, kernels, threads);
  }
}
