// What this machine can do at most, measured: how fast it reads memory and how fast it multiplies. What the kernels
// reach is told as a share of this.
//
//   auto limits = bench::measure_limits({.threads = 2});
//
// Who may call: anyone, while nobody else computes; it takes the time it is given for each limit, and the buffer it
//   reads.
// What holds: the best of many short measurements, so that what else the machine does counts as little as it can. The
//   instructions are those of the kernels of the given name, or of the best there are. No limit is 0.
// How it fails: with one line, where the memory cannot be had.
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
  double read = 0;  // bytes of memory a second, read one after the other
  double int8 = 0;  // operations a second on bytes, summed as 32 bits: a multiplication and an addition are two
  double f32 = 0;   // the same on 32-bit floats
};

// The better of both, number by number: a machine that did it once can do it.
MachineLimits best_of(const MachineLimits& a, const MachineLimits& b);

struct LimitOptions {
  std::uint32_t threads = 1;  // at least 1
  std::string variant;        // of the kernels; empty: the best
  double seconds = 1;         // for each limit; every measurement is made once at least
  // Larger than any cache by so much that hardly any of it is still there when it is read again.
  std::uint64_t buffer_bytes = std::uint64_t{512} << 20;
};
Result<MachineLimits> measure_limits(const LimitOptions& options);

// How fast memory can be read just now, for those who ask again and again: on a machine that shares its memory with
// others that changes by half within seconds. It keeps its buffer.
class ReadMeter {
 public:
  static Result<ReadMeter> create(const LimitOptions& options);
  ReadMeter(ReadMeter&&) noexcept;
  ~ReadMeter();

  // Bytes a second, in the best `window` of `seconds` for each of the ways to read.
  double measure(double seconds, double window) const;
  // The buffer once in each of the ways, by the threads of this team, which are the ones that do what it is compared
  // with: a virtual machine's cores may be moved when they rest, and then be fast or slow.
  double look(ThreadTeam& team) const;

 private:
  struct Memory;
  explicit ReadMeter(std::unique_ptr<Memory> memory);
  std::unique_ptr<Memory> memory_;
};

// Reads whole lines of 64 bytes, one after the other and as wide as these kernels read, and does nothing with them.
void read_lines(const cpu::Kernels& kernels, const std::byte* data, std::size_t bytes);

}  // namespace quire::bench
