#include "quire/cli/sizes.h"

#include <gtest/gtest.h>

namespace quire::cli {
namespace {

TEST(Sizes, BytesMayHaveAUnit) {
  EXPECT_EQ(parse_bytes("1"), 1u);
  EXPECT_EQ(parse_bytes("100000"), 100'000u);
  EXPECT_EQ(parse_bytes("512B"), 512u);
  EXPECT_EQ(parse_bytes("4k"), 4096u);
  EXPECT_EQ(parse_bytes("512M"), 512u << 20);
  EXPECT_EQ(parse_bytes("2G"), std::uint64_t{2} << 30);
  EXPECT_EQ(parse_bytes("2GB"), std::uint64_t{2} << 30);
  EXPECT_EQ(parse_bytes("1.5GiB"), std::uint64_t{3} << 29);
  EXPECT_EQ(parse_bytes("3t"), std::uint64_t{3} << 40);
}

TEST(Sizes, WhatIsNoAmountIsNone) {
  for (const char* text : {"", "0", "0G", "-1", "+1", "G", "2X", "2GG", "2iB", "2 G", "1e9", "inf", "nan", "0x10",
                           "1,5G", "2G ", "99999999999999999999", "99999999T"}) {
    EXPECT_EQ(parse_bytes(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace quire::cli
