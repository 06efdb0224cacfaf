#include "quire/bench/device_limits.h"

#include <cmath>

#include <gtest/gtest.h>

namespace quire::bench {
namespace {

TEST(DeviceLimits, ACopyHasASpeedAndArithmeticNoLimit) {
  HostDevice device;
  const auto limits = measure_device(device, 1 << 20);
  ASSERT_TRUE(limits) << limits.error().message;
  EXPECT_GT(limits->read, 0);
  EXPECT_TRUE(std::isfinite(limits->read));
  EXPECT_TRUE(std::isinf(limits->int8) && std::isinf(limits->f32));
}

TEST(DeviceLimits, TooLittleMemoryIsSaid) {
  HostDevice device;
  const auto limits = measure_device(device, std::size_t{1} << 60);
  ASSERT_FALSE(limits);
  EXPECT_TRUE(limits.error().message.starts_with("not enough memory on the device to measure its speed: "))
      << limits.error().message;
}

}  // namespace
}  // namespace quire::bench
