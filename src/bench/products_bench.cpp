// Measures matrix products with one row, and how fast the same bytes can be read, in turn. On a shared machine the
// bandwidth changes within seconds, so a ratio of separate measurements would mean little. Then products with many
// rows, beside how fast the machine multiplies.
#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "quire/backend/cpu/kernels.h"
#include "quire/backend/cpu/quant_rows.h"
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
  std::vector<std::uint16_t> bf16 = std::vector<std::uint16_t>(kCols);
  std::vector<std::int32_t> starts = std::vector<std::int32_t>(kCols / 32),
                            half_starts = std::vector<std::int32_t>(kCols / 16);
  QuantInput input{q.data(), scales.data(), starts.data(), sums.data(), half_starts.data(), half_sums.data()};
};

// Any bytes are valid weights. Exponents are small enough to keep all scales finite, and so large that no float is
// denormal: some processors are slow with those.
void fill(LargeVector<std::byte>& weights) {
  for (std::uint64_t at = 0; at + 8 <= weights.size(); at += 8) {
    const std::uint64_t some = (at * 0x9e3779b97f4a7c15 & 0x3b3b3b3b3b3b3b3b) | 0x2020202020202020;
    std::memcpy(weights.data() + at, &some, 8);
  }
}

void measure(gguf::Type type, const Kernels& kernels, std::uint32_t threads) {
  const std::uint64_t bytes = tile_bytes(type, kCols);
  const auto tiles = static_cast<std::uint32_t>(kBytes / bytes / threads * threads);
  LargeVector<std::byte> weights(tiles * bytes);
  fill(weights);
  Quantized in;
  kernels.quantize(in.x.data(), kCols, in.input);
  kernels.round_to_bf16(in.x.data(), kCols, in.bf16.data());
  std::vector<float> result(std::size_t{tiles} * kTileRows);
  const WeightTiles matrix{type, tiles * kTileRows, kCols, weights.data(), bytes, 0, 0, 0};
  const ProductOut out{result.data(), result.size(), nullptr, false, 1};
  const bool plain = type == gguf::Type::F16 || type == gguf::Type::F32;

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
      if (type == gguf::Type::BF16) {
        kernels.multiply_bf16(matrix, tile, last, in.bf16.data(), kCols, 1, out, scratch);
      } else if (plain) {
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

// Many rows through products: operations a second, beside those of the multipliers alone.
void measure_many(gguf::Type type, const Kernels& kernels, std::uint32_t threads, std::uint32_t rows, double limit) {
  constexpr std::uint32_t kTilesEach = 48;
  const std::uint64_t bytes = tile_bytes(type, kCols);
  LargeVector<std::byte> weights(std::uint64_t{threads} * kTilesEach * bytes);
  fill(weights);
  const std::vector<float> x(std::size_t{rows} * kCols, 0.5f);
  QuantRows quants;
  quants.resize(rows, kCols);
  std::vector<std::uint16_t> bf16(x.size());
  for (std::uint32_t i = 0; i < rows; ++i) {
    kernels.quantize(x.data() + std::size_t{i} * kCols, kCols, quants.row(i));
    kernels.round_to_bf16(x.data() + std::size_t{i} * kCols, kCols, bf16.data() + std::size_t{i} * kCols);
  }
  const std::uint32_t outputs = threads * kTilesEach * kTileRows;
  std::vector<float> result(std::size_t{rows} * outputs);
  const WeightTiles matrix{type, outputs, kCols, weights.data(), bytes, 0, 0, 0};
  const ProductOut out{result.data(), outputs, nullptr, false, 1};
  const auto multiply = [&](std::uint32_t thread, const ProductScratch& scratch) {
    for (std::uint32_t tile = thread * kTilesEach; tile < (thread + 1) * kTilesEach; tile += kMostTiles) {
      const std::uint32_t end = tile + kMostTiles;
      if (type == gguf::Type::BF16) {
        kernels.multiply_bf16(matrix, tile, end, bf16.data(), kCols, rows, out, scratch);
      } else if (type == gguf::Type::F32 || type == gguf::Type::F16) {
        kernels.multiply_float(matrix, tile, end, x.data(), kCols, rows, out, scratch);
      } else {
        kernels.multiply_quant(matrix, tile, end, quants.row(0), quants.stride(), rows, out, scratch);
      }
    }
  };
  double best = 1e9;  // seconds
  std::barrier together(static_cast<std::ptrdiff_t>(threads) + 1);
  std::vector<std::thread> team;
  for (std::uint32_t thread = 0; thread < threads; ++thread) {
    team.emplace_back([&, thread] {
      LargeVector<std::byte> unpacked(std::size_t{kMostTiles} * kMostChunkCols * kTileRows);
      LargeVector<float> scales(kMostChunkCols * kMostTiles), offsets(scales.size()),
          sums(std::size_t{rows} * kMostTiles * kTileRows);
      for (std::uint32_t turn = 0; turn < kTurns; ++turn) {
        together.arrive_and_wait();
        multiply(thread, {unpacked.data(), scales.data(), offsets.data(), sums.data()});
        together.arrive_and_wait();
      }
    });
  }
  for (std::uint32_t turn = 0; turn < kTurns; ++turn) {
    const auto start = Clock::now();  // before they begin: this thread may be the last to wake up
    together.arrive_and_wait();
    together.arrive_and_wait();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count());
  }
  for (std::thread& one : team) one.join();
  const double rate = 2.0 * rows * outputs * kCols / best;
  fmt::print("{:<6} {:>6} {:>9.0f} {:>9.0f} {:>7.2f}\n", gguf::type_name(type), rows, rate / 1e9, limit / 1e9,
             rate / limit);
}

}  // namespace
}  // namespace quire::bench

// products_bench [VARIANT [THREADS]]
int main(int count, char** arguments) {
  using quire::gguf::Type;
  const quire::cpu::Kernels* named = count > 1 ? quire::cpu::kernels_by_name(arguments[1]) : nullptr;
  if (count > 1 && named == nullptr) {
    fmt::print(stderr, "products_bench: this machine cannot run the {} variant\n", arguments[1]);
    return 1;
  }
  const quire::cpu::Kernels& kernels = named != nullptr ? *named : quire::cpu::best_kernels();
  const std::uint32_t cores = quire::available_cores();
  const std::uint32_t threads = count > 2 ? static_cast<std::uint32_t>(std::strtoul(arguments[2], nullptr, 10)) : cores;
  if (threads == 0) {
    fmt::print(stderr, "products_bench: '{}' is not a number of threads\n", arguments[2]);
    return 1;
  }
  constexpr Type kTypes[] = {Type::Q8_0, Type::Q4_0, Type::Q4_K, Type::Q5_K,
                             Type::Q6_K, Type::F16,  Type::BF16, Type::F32};
  fmt::print("One row through products, and reading the same bytes, in turn: GB/s, the best of {}; {} threads, {}\n",
             quire::bench::kTurns, threads, kernels.name);
  fmt::print("{:<6} {:>9} {:>9} {:>7}\n", "type", "products", "reading", "ratio");
  for (const Type type : kTypes) quire::bench::measure(type, kernels, threads);
  const auto limits = quire::bench::measure_limits(
      {.threads = threads, .variant = kernels.name, .seconds = 0.2, .buffer_bytes = 64 << 20});
  if (!limits) {
    fmt::print(stderr, "products_bench: {}\n", limits.error().message);
    return 1;
  }
  fmt::print("\nMany rows, and multiplying in registers: G operations a second, the best of {}\n",
             quire::bench::kTurns);
  fmt::print("{:<6} {:>6} {:>9} {:>9} {:>7}\n", "type", "rows", "products", "limit", "ratio");
  for (const Type type : kTypes) {
    const double limit = type == Type::BF16                       ? limits->bf16
                         : type == Type::F16 || type == Type::F32 ? limits->f32
                                                                  : limits->int8;
    for (const std::uint32_t rows : {32u, 512u}) quire::bench::measure_many(type, kernels, threads, rows, limit);
  }
}
