// Measures the limits of this machine: how fast it reads memory and how fast it multiplies. The speed of the kernels is
// given as a share of these limits.
//
//   auto limits = bench::measure_limits({.threads = 2});
//
// Who may call: anyone, while nothing else computes. It takes the given time for each limit, and memory for its buffer.
// What holds: a limit is the best of many short measurements, to reduce the influence of other programs. The
//   instructions are those of the named kernels, or of the best kernels. No limit is 0.
// How it fails: with one line, if there is not enough memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "quire/base/error.h"
#include "quire/base/thread_team.h"

namespace quire::cpu {
struct Kernels;
}

namespace quire::bench {

struct MachineLimits {
  double read = 0;  // bytes of memory per second, read sequentially
  double int8 = 0;  // operations per second on bytes with 32-bit sums; a multiplication and an addition are two
  double f32 = 0;   // the same on 32-bit floats
  double bf16 = 0;  // the same on BF16 with 32-bit sums; as f32 without an instruction for it
};

// The larger of each pair of numbers: a speed that was reached once is possible.
MachineLimits best_of(const MachineLimits& a, const MachineLimits& b);

struct LimitOptions {
  std::uint32_t threads = 1;  // at least 1
  std::string variant;        // of the kernels; empty: the best
  double seconds = 1;         // per limit; every measurement runs at least once
  // Much larger than any cache, so that hardly any of it is cached when it is read again.
  std::uint64_t buffer_bytes = std::uint64_t{512} << 20;
};
Result<MachineLimits> measure_limits(const LimitOptions& options);

// Measures repeatedly how fast memory can be read at the moment. On a shared machine that changes by half within
// seconds. The buffer is kept between measurements.
class ReadMeter {
 public:
  static Result<ReadMeter> create(const LimitOptions& options);
  ReadMeter(ReadMeter&&) noexcept;
  ~ReadMeter();

  // Bytes per second in the best `window`. Each way to read is measured for `seconds`.
  double measure(double seconds, double window) const;
  // Reads the buffer once in each way. It uses the threads of the team whose work it is compared with: idle cores of a
  // virtual machine may be moved and become faster or slower.
  double look(ThreadTeam& team) const;

 private:
  struct Memory;
  explicit ReadMeter(std::unique_ptr<Memory> memory);
  std::unique_ptr<Memory> memory_;
};

// Reads whole lines of 64 bytes sequentially, with the width of these kernels, and does nothing with them.
void read_lines(const cpu::Kernels& kernels, const std::byte* data, std::size_t bytes);

}  // namespace quire::bench
