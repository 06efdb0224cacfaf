#include "quire/bench/machine_limits.h"

#include <gtest/gtest.h>

#include "quire/backend/cpu/kernels.h"

namespace quire::bench {
namespace {

// Tests that every instruction set of the machine is measured, not how fast it is.
TEST(MachineLimits, EveryInstructionSetAndNumberOfThreadsIsMeasured) {
  for (const char* variant : cpu::kVariants) {
    if (cpu::kernels_by_name(variant) == nullptr) continue;
    for (const std::uint32_t threads : {1u, 2u, 3u}) {
      const auto limits =
          measure_limits({.threads = threads, .variant = variant, .seconds = 1e-3, .buffer_bytes = 1 << 20});
      ASSERT_TRUE(limits.has_value()) << limits.error().message;
      EXPECT_GT(limits->read, 0) << variant;
      EXPECT_GT(limits->int8, 0) << variant;
      EXPECT_GT(limits->f32, 0) << variant;
      EXPECT_GT(limits->bf16, 0) << variant;
    }
  }
}

TEST(MachineLimits, ABufferOfLessThanALineForEachStreamIsMadeLarger) {
  const auto limits = measure_limits({.threads = 2, .seconds = 0, .buffer_bytes = 1});
  ASSERT_TRUE(limits.has_value()) << limits.error().message;
  EXPECT_GT(limits->read, 0);
}

TEST(MachineLimits, AVariantThatTheMachineDoesNotHaveIsRefused) {
  const auto limits = measure_limits({.variant = "abacus"});
  ASSERT_FALSE(limits.has_value());
  EXPECT_EQ(limits.error().message, "this machine cannot run the abacus variant");
}

TEST(MachineLimits, MemoryThatCannotBeHadIsAnError) {
  const auto limits = measure_limits({.seconds = 0, .buffer_bytes = std::uint64_t{1} << 60});
  ASSERT_FALSE(limits.has_value());
  EXPECT_EQ(limits.error().message, "no memory for a buffer of 1152921504606846976 bytes to measure with");
}

TEST(ReadMeter, LooksWithTheThreadsOfATeam) {
  const auto meter = ReadMeter::create({.threads = 2, .buffer_bytes = 1 << 20});
  ASSERT_TRUE(meter.has_value()) << meter.error().message;
  for (const std::uint32_t threads : {1u, 2u, 3u}) {  // also other numbers than the meter was created for
    ThreadTeam team(threads);
    EXPECT_GT(meter->look(team), 0) << threads;
  }
}

TEST(MachineLimits, TheBestOfTwoIsTakenNumberByNumber) {
  const MachineLimits best =
      best_of({.read = 3, .int8 = 10, .f32 = 5, .bf16 = 1}, {.read = 2, .int8 = 20, .f32 = 5, .bf16 = 2});
  EXPECT_EQ(best.read, 3);
  EXPECT_EQ(best.int8, 20);
  EXPECT_EQ(best.f32, 5);
  EXPECT_EQ(best.bf16, 2);
}

}  // namespace
}  // namespace quire::bench
