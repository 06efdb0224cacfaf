#include "quire/base/readable.h"

#include <cstdint>

#include <gtest/gtest.h>

namespace quire {
namespace {

TEST(NumbersForPeople, ThousandsAreGrouped) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(1000), "1,000");
  EXPECT_EQ(grouped(8735104), "8,735,104");
  EXPECT_EQ(grouped(UINT64_MAX), "18,446,744,073,709,551,615");
}

TEST(NumbersForPeople, BytesAreInTheUnitThatFits) {
  EXPECT_EQ(in_units(0), "0 bytes");
  EXPECT_EQ(in_units(1023), "1023 bytes");
  EXPECT_EQ(in_units(1024), "1.0 KiB");
  EXPECT_EQ(in_units((1 << 20) - 1), "1.0 MiB");
  EXPECT_EQ(in_units(8735104), "8.3 MiB");
  EXPECT_EQ(in_units(UINT64_MAX), "16.0 EiB");
}

TEST(NumbersForPeople, ParametersAreInMillions) {
  EXPECT_EQ(in_millions(12), "12");
  EXPECT_EQ(in_millions(8099984), "8.1 M");
  EXPECT_EQ(in_millions(999960000), "1.0 B");
  EXPECT_EQ(in_millions(70553706496), "70.6 B");
}

}  // namespace
}  // namespace quire
