#include "quire/base/numbers.h"

#include <cstdint>

#include <gtest/gtest.h>

namespace quire {
namespace {

TEST(Numbers, CheckedAdditionNoticesAnOverflow) {
  EXPECT_EQ(checked_add<std::uint8_t>(200, 55), 255);
  EXPECT_EQ(checked_add<std::uint8_t>(200, 56), std::nullopt);
  EXPECT_EQ(checked_add<std::uint64_t>(UINT64_MAX, 1), std::nullopt);
}

TEST(Numbers, CheckedMultiplicationNoticesAnOverflow) {
  EXPECT_EQ(checked_mul<std::uint64_t>(UINT64_MAX, 0), 0u);
  EXPECT_EQ(checked_mul<std::uint64_t>(0, UINT64_MAX), 0u);
  EXPECT_EQ(checked_mul<std::uint64_t>(1ULL << 32, 1ULL << 31), 1ULL << 63);
  EXPECT_EQ(checked_mul<std::uint64_t>(1ULL << 32, 1ULL << 32), std::nullopt);
}

TEST(Numbers, RoundingUpWorksForAnyAlignment) {
  EXPECT_EQ(divide_up(7u, 3u), 3u);
  EXPECT_EQ(divide_up(6u, 3u), 2u);
  EXPECT_EQ(round_up(13u, 12u), 24u);
  EXPECT_EQ(round_up(0u, 12u), 0u);
}

}  // namespace
}  // namespace quire
