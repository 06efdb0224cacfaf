// Counts the work of compiling a constraint. A limit in steps and bytes, not in time: what is accepted must not depend
// on how busy the machine is.
//
// Who may call: whoever owns it; not thread-safe.
// What holds: once exhausted, it stays so. Builders then return cheap valid ids, so that callers need to check only at
//   the end.
#pragma once

#include <cstdint>

namespace quire::grammar {

struct Limits {
  // Steps are of about 10 ns: a node made or looked up, a schema keyword looked at, an item of the parser.
  std::uint64_t steps = 4'000'000;
  std::uint64_t bytes = std::uint64_t{64} << 20;
};

class Budget {
 public:
  Budget() = default;
  explicit Budget(const Limits& limits) : limits_(limits) {}

  // False: used up, now or before.
  bool take(std::uint64_t steps, std::uint64_t bytes = 0) {
    steps_ += steps;
    bytes_ += bytes;
    if (steps_ > limits_.steps || bytes_ > limits_.bytes) exhausted_ = true;
    return !exhausted_;
  }
  bool exhausted() const { return exhausted_; }
  std::uint64_t steps() const { return steps_; }
  std::uint64_t bytes() const { return bytes_; }

 private:
  Limits limits_;
  std::uint64_t steps_ = 0, bytes_ = 0;
  bool exhausted_ = false;
};

}  // namespace quire::grammar
