// Measures how fast attention reads keys and values of decode steps, for sizes of pages and orders within a page, and
// how fast the same bytes could be read. The measurements take turns, because on a shared machine the bandwidth changes
// within seconds. docs/performance.md has the table and what follows from it.
//
//   pages_bench                                      the table of docs/performance.md
//   pages_bench KV_HEADS QUERIES HEAD_DIM [TYPE]     for another shape: queries per KV head; f16, bf16, f32 or q8_0
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "quire/backend/cpu/cpu_backend.h"
#include "quire/base/large_vector.h"
#include "quire/base/machine.h"
#include "quire/bench/machine_limits.h"
#include "quire/state/batch.h"

namespace quire::bench {
namespace {

using Clock = std::chrono::steady_clock;

struct Shape {
  std::uint32_t kv_heads = 8, per_head = 2, dim = 128;
  ElementType type = ElementType::F16;
};

// How a layer of a page is ordered.
struct Order {
  const char* name;
  bool tokens_outermost, together;
};
constexpr Order kOrders[] = {{"K,V head token", false, false},
                             {"head K,V token", false, true},
                             {"K,V token head", true, false},
                             {"token K,V head", true, true}};

constexpr std::uint64_t kMemory = std::uint64_t{5} << 30;
constexpr std::uint64_t kTurnBytes = std::uint64_t{3} << 29;  // read in a turn, in as many layers as that takes
constexpr std::uint32_t kTurns = 5;

KvGroupView view_of(const Shape& shape, std::uint32_t block_size, const Order& order) {
  const std::uint64_t row = row_bytes(shape.type, shape.dim), plane = row * shape.kv_heads * block_size;
  KvGroupView view;
  view.block_size = block_size;
  view.num_kv_heads = shape.kv_heads;
  view.head_dim = shape.dim;
  view.type = shape.type;
  view.layer_stride = 2 * plane;
  view.page_unit = 64;
  if (order.tokens_outermost) {
    view.head_stride = row;
    view.token_stride = row * shape.kv_heads * (order.together ? 2 : 1);
    view.v_offset = order.together ? row * shape.kv_heads : plane;
  } else {
    view.token_stride = row;
    view.head_stride = row * block_size * (order.together ? 2 : 1);
    view.v_offset = order.together ? row * block_size : plane;
  }
  return view;
}

// Memory with finite numbers in every type.
void fill(std::span<std::byte> memory) {
  for (std::uint64_t at = 0; at + 8 <= memory.size(); at += 8) {
    const std::uint64_t some = (at * 0x9e3779b97f4a7c15 & 0x8787878787878787) | 0x2020202020202020;
    std::memcpy(memory.data() + at, &some, 8);
  }
}

struct Measured {
  double attention = 0, reading = 0;  // bytes per second
};

Measured measure(CpuBackend& backend, const cpu::Kernels& kernels, std::span<std::byte> memory, const Shape& shape,
                 KvGroupView kv, std::uint32_t sequences, std::uint32_t context) {
  const std::uint32_t blocks = context / kv.block_size;
  const std::uint64_t of_layer = std::uint64_t{sequences} * blocks * kv.layer_stride;
  const auto layers = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(kTurnBytes / of_layer, 1, 28));
  // Pages are scattered as in a pool that has been in use for a while.
  std::vector<std::uint32_t> tables(std::size_t{sequences} * blocks);
  std::iota(tables.begin(), tables.end(), 0u);
  std::ranges::shuffle(tables, std::mt19937(1));
  for (std::uint32_t& page : tables) page = static_cast<std::uint32_t>(page * (kv.layer_stride * layers / 64));
  kv.base = memory.data();
  kv.tables = tables.data();
  kv.table_stride = blocks;

  Batch batch(sequences, sequences, 1);
  const Token token = 0;
  for (std::uint32_t i = 0; i < sequences; ++i) batch.add({}, {&token, 1});
  std::uint32_t row = 0;
  for (BatchEntry& entry : batch.bind(std::span(&kv, 1), {})) {
    entry.position = context - 1;
    entry.table = row++;
  }
  batch.set_positions();
  const std::uint32_t heads = shape.kv_heads * shape.per_head, cols = heads * shape.dim;
  LargeVector<float> q(std::size_t{sequences} * cols), out(q.size());
  for (std::size_t i = 0; i < q.size(); ++i) q[i] = static_cast<float>(i % 7) * 0.01f;
  const auto tensor = [&](LargeVector<float>& x) {
    return Tensor{reinterpret_cast<std::byte*>(x.data()), sequences, cols, cols, ElementType::F32};
  };
  const std::uint64_t bytes = of_layer * layers;
  Measured best;
  for (std::uint32_t turn = 0; turn < kTurns; ++turn) {
    auto start = Clock::now();
    backend.begin(batch);
    for (std::uint32_t layer = 0; layer < layers; ++layer) {
      backend.attention(tensor(out), tensor(q),
                        {.group = 0,
                         .layer = layer,
                         .heads = heads,
                         .kv_heads = shape.kv_heads,
                         .head_dim = shape.dim,
                         .scale = 0.1f});
    }
    (void)backend.finish();
    double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    best.attention = std::max(best.attention, static_cast<double>(bytes) / seconds);

    start = Clock::now();
    backend.team().run([&](std::uint32_t part, std::uint32_t parts) {
      const std::uint64_t own = bytes / parts / 64 * 64;
      read_lines(kernels, memory.data() + part * own, own);
    });
    seconds = std::chrono::duration<double>(Clock::now() - start).count();
    best.reading = std::max(best.reading, static_cast<double>(bytes) / seconds);
  }
  return best;
}

void table(const Shape& shape) {
  const cpu::Kernels& kernels = cpu::best_kernels();
  const std::uint32_t threads = available_cores();
  CpuBackend backend(threads, kernels);
  const std::uint32_t cols = shape.kv_heads * shape.per_head * shape.dim;
  const auto prepared = backend.prepare(
      {.rows = 64, .cols = cols, .heads = shape.kv_heads * shape.per_head, .attention_cols = cols, .groups = 1});
  if (!prepared) {
    fmt::print("{}\n", prepared.error().message());
    return;
  }
  LargeVector<std::byte> memory(kMemory);
  fill({memory.data(), memory.size()});
  fmt::print(
      "{} KV heads, {} queries each, head size {}, {}; {} threads, {}. GB/s of attention, as a share of reading\n",
      shape.kv_heads, shape.per_head, shape.dim, name(shape.type), threads, kernels.name);
  constexpr std::uint32_t kSequences[] = {1, 8, 32}, kContexts[] = {512, 8192, 32768};
  fmt::print("{:<16} {:>5}", "order", "page");
  for (const std::uint32_t context : kContexts) {
    for (const std::uint32_t sequences : kSequences) {
      fmt::print(" {:>12}", fmt::format("{} x {}", sequences, context));
    }
  }
  fmt::print("\n");
  for (const Order& order : kOrders) {
    for (const std::uint32_t block : {16u, 32u, 64u, 128u}) {
      fmt::print("{:<16} {:>5}", order.name, block);
      for (const std::uint32_t context : kContexts) {
        for (const std::uint32_t sequences : kSequences) {
          const KvGroupView kv = view_of(shape, block, order);
          if (std::uint64_t{sequences} * context / block * kv.layer_stride > kMemory) {
            fmt::print(" {:>12}", "-");
            continue;
          }
          const Measured m = measure(backend, kernels, {memory.data(), memory.size()}, shape, kv, sequences, context);
          fmt::print(" {:>12}", fmt::format("{:.1f} {:.2f}", m.attention / 1e9, m.attention / m.reading));
          std::fflush(stdout);
        }
      }
      fmt::print("\n");
    }
  }
}

}  // namespace
}  // namespace quire::bench

int main(int count, char** arguments) {
  quire::bench::Shape shape;
  if (count >= 4) {
    shape.kv_heads = static_cast<std::uint32_t>(std::atoi(arguments[1]));
    shape.per_head = static_cast<std::uint32_t>(std::atoi(arguments[2]));
    shape.dim = static_cast<std::uint32_t>(std::atoi(arguments[3]));
  }
  for (const auto type : {quire::ElementType::F32, quire::ElementType::BF16, quire::ElementType::Q8_0}) {
    if (count >= 5 && std::string_view(arguments[4]) == name(type)) shape.type = type;
  }
  quire::bench::table(shape);
}
