#include "quire/base/machine.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

TEST(Machine, HasACoreAndSomeMemory) {
  EXPECT_GE(available_cores(), 1u);
  EXPECT_LT(available_cores(), 100'000u);
  const MachineMemory memory = machine_memory();
  EXPECT_GT(memory.available, 0u);
  EXPECT_GE(memory.total, memory.available);
}

}  // namespace
}  // namespace quire
