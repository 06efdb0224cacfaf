// Random operations from libFuzzer: the first four bytes choose the pool, every further four bytes are one operation.
// The checks are those of the property tests. A difference from the reference model is a crash.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "quire/state/random_ops_testing.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto word = [&](std::size_t i) {
    std::uint32_t value = 0;
    std::memcpy(&value, data + 4 * i, 4);
    return value;
  };
  if (size < 8) return 0;
  quire::testing::RandomOps ops(word(0));
  bool same = true;
  for (std::size_t i = 1; same && i < size / 4; ++i) same = ops.run(word(i));
  if (!same || !ops.finish()) {
    std::fprintf(stderr, "DIFFERENCE: %s\n", ops.difference().c_str());
    std::abort();
  }
  return 0;
}
