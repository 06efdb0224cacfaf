// Demoting to and promoting from the host tier, beside one large transfer of the same device from and to the same kind
// of host memory, in turns.
//
//   host_tier_bench [DEVICE] [MIB] [BYTES]...     "cuda" or "cpu" (auto); how much a turn moves (1024); sizes of
//                                                 objects (131072 360448 2097152)
//
// "evicting": the tier is full, so every object that comes pushes out another. The best of five turns.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "quire/backend/backend.h"
#include "quire/backend/factory.h"
#include "quire/tiers/host_tier.h"

namespace quire::tiers {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kTurns = 5;

ObjectKey key_of(std::uint64_t number) {
  const Token token = static_cast<Token>(number);
  return {.name = block_name({}, std::span(&token, 1)), .cls = 0};
}

template <typename T>
T must(PoolResult<T> result) {
  if (result) return std::move(*result);
  fmt::print(stderr, "host_tier_bench: {}\n", result.error().message());
  std::exit(1);
}
void must(PoolResult<void> result) {
  if (result) return;
  fmt::print(stderr, "host_tier_bench: {}\n", result.error().message());
  std::exit(1);
}

// GB per second of `work`, which ends with a fence.
template <typename Work>
double speed(Device& device, std::uint64_t bytes, const Work& work) {
  must(device.fence());
  const auto began = Clock::now();
  work();
  must(device.fence());
  return static_cast<double>(bytes) / std::chrono::duration<double>(Clock::now() - began).count() / 1e9;
}

void measure(Device& device, std::uint64_t bytes, std::uint64_t object) {
  const std::uint64_t count = bytes / object;
  bytes = count * object;
  const DeviceBuffer memory = must(DeviceBuffer::create(device, bytes));
  const HostBuffer plain = must(HostBuffer::create(device, bytes));
  device.prepare_host(plain.data(), plain.size());
  auto arena = must(HostArena::create(device, bytes, object));
  arena->prepare();
  std::vector<ObjectKey> keys(2 * count);
  for (std::uint64_t i = 0; i < keys.size(); ++i) keys[i] = key_of(i);

  double down = 0, up = 0, demote = 0, evicting = 0, promote = 0;
  for (int turn = 0; turn < kTurns; ++turn) {
    down = std::max(down, speed(device, bytes, [&] { must(device.download(plain.data(), memory.data(), bytes)); }));
    up = std::max(up, speed(device, bytes, [&] { must(device.upload(memory.data(), plain.data(), bytes)); }));
    HostTier tier(*arena, bytes);
    const auto put_all = [&](std::uint64_t first) {
      for (std::uint64_t i = 0; i < count; ++i) {
        if (!tier.put(keys[first + i], 0, 0, memory.data() + i * object, object)) std::abort();
      }
    };
    demote = std::max(demote, speed(device, bytes, [&] { put_all(0); }));
    tier.fenced();
    evicting = std::max(evicting, speed(device, bytes, [&] { put_all(count); }));
    tier.fenced();
    promote = std::max(promote, speed(device, bytes, [&] {
                         for (std::uint64_t i = 0; i < count; ++i) {
                           const std::uint32_t place = tier.find(keys[count + i]);
                           if (place == UINT32_MAX) std::abort();
                           must(tier.cells(place).load(tier.first_cell(place), memory.data() + i * object, object));
                         }
                       }));
  }
  fmt::print(
      "objects of {:>8} bytes: one transfer {:5.1f} down, {:5.1f} up; demote {:5.1f} ({:.2f}), evicting {:5.1f} "
      "({:.2f}), promote {:5.1f} ({:.2f}) GB/s\n",
      object, down, up, demote, demote / down, evicting, evicting / down, promote, promote / up);
}

}  // namespace
}  // namespace quire::tiers

int main(int argc, char** argv) {
  const auto backend = quire::make_backend({.device = argc > 1 ? argv[1] : "auto", .threads = 1, .variant = {}});
  if (!backend) {
    fmt::print(stderr, "host_tier_bench: {}\n", backend.error().message);
    return 1;
  }
  const std::uint64_t bytes = (argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1024) << 20;
  std::vector<std::uint64_t> sizes{131072, 360448, 2097152};
  if (argc > 3) sizes.clear();
  for (int i = 3; i < argc; ++i) sizes.push_back(std::strtoull(argv[i], nullptr, 10));
  for (const std::uint64_t size : sizes) quire::tiers::measure((*backend)->device(), bytes, size);
  return 0;
}
