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

TEST(Machine, HasAProcessorWithANameOfOneLine) {
  const std::string name = processor_name();
  ASSERT_FALSE(name.empty());
  EXPECT_EQ(name.find('\n'), std::string::npos);
  EXPECT_NE(name.front(), ' ');
  EXPECT_NE(name.back(), ' ');
}

TEST(RandomSeed, IsAnotherOneEachTime) {
  const auto first = random_seed(), second = random_seed();
  ASSERT_TRUE(first && second);
  EXPECT_NE(*first, *second);
}

}  // namespace
}  // namespace quire
