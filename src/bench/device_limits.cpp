#include "quire/bench/device_limits.h"

#include <algorithm>
#include <chrono>
#include <limits>

namespace quire::bench {
namespace {

constexpr int kRounds = 5, kCopies = 4;

PoolResult<double> seconds_of_a_copy(Device& device, DeviceBuffer& to, const DeviceBuffer& from, std::size_t bytes) {
  using Clock = std::chrono::steady_clock;
  if (auto ok = device.fence(); !ok) return std::unexpected(ok.error());
  const auto start = Clock::now();
  for (int i = 0; i < kCopies; ++i) {
    if (auto ok = device.copy(to.data(), from.data(), bytes); !ok) return std::unexpected(ok.error());
  }
  if (auto ok = device.fence(); !ok) return std::unexpected(ok.error());
  return std::chrono::duration<double>(Clock::now() - start).count() / kCopies;
}

}  // namespace

Result<MachineLimits> measure_device(Device& device, std::size_t bytes) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  auto from = DeviceBuffer::create(device, bytes), to = DeviceBuffer::create(device, bytes);
  if (!from || !to)
    return fail("not enough memory on the device to measure its speed: " + (from ? to : from).error().message());
  double best = kInfinite;
  for (int round = 0; round < kRounds; ++round) {
    const auto seconds = seconds_of_a_copy(device, *to, *from, bytes);
    if (!seconds) return fail(seconds.error().message());
    best = std::min(best, *seconds);
  }
  return MachineLimits{
      .read = 2 * static_cast<double>(bytes) / best, .int8 = kInfinite, .f32 = kInfinite, .bf16 = kInfinite};
}

}  // namespace quire::bench
