#include "quire/state/tier_object.h"

#include <vector>

#include <gtest/gtest.h>

#include "quire/state/tier.h"

namespace quire {
namespace {

const std::vector<Token> kTokens = {1, 2, 3, -4};

ObjectKey key_of(std::uint8_t cls = 0) {
  return {.name = block_name(root_name({{1, 2, 3, 4}}, {5, 6}, TenantName{}), kTokens), .cls = cls};
}

std::vector<std::byte> some_bytes(std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * 7);
  return bytes;
}

TEST(ObjectName, DependsOnEverythingThatTheBytesDependOn) {
  const ObjectName root = root_name({{1, 2, 3, 4}}, {5, 6}, TenantName{});
  EXPECT_NE(root, root_name({{1, 2, 3, 5}}, {5, 6}, TenantName{}));
  EXPECT_NE(root, root_name({{1, 2, 3, 4}}, {5, 7}, TenantName{}));
  TenantName tenant{};
  tenant[31] = 1;
  EXPECT_NE(root, root_name({{1, 2, 3, 4}}, {5, 6}, tenant));
  const ObjectName block = block_name(root, kTokens);
  EXPECT_NE(block, block_name(block, kTokens));
  EXPECT_NE(block, block_name(root, std::span(kTokens).first(3)));
}

// Computed once with another program. The names are in files and stores that other versions read: they must not change.
TEST(ObjectName, IsTheSameOnEveryMachineAndInEveryVersion) {
  EXPECT_EQ(to_hex(key_of().name), "0e2b42668df93eecffc82a953eeb78f1261a172b98287ca5120b229bf881f637");
  EXPECT_EQ(to_text(key_of()), to_hex(key_of().name).substr(0, 16) + "/0");
  EXPECT_EQ(to_text(key_of(ObjectKey::kCheckpoint)), to_hex(key_of().name).substr(0, 16) + "/state");
}

TEST(TierObject, IsAcceptedAsItWasWritten) {
  for (const std::size_t count : {0UL, 1UL, 4096UL}) {
    const auto bytes = some_bytes(count);
    const ObjectHeader header = header_of(key_of(), bytes);
    EXPECT_TRUE(check_header(key_of(), header, kObjectHeaderBytes + count, count));
    EXPECT_TRUE(check_bytes(header, bytes));
  }
}

TEST(TierObject, IsRefusedAfterAnyBitHasChanged) {
  const auto bytes = some_bytes(100);
  const ObjectHeader header = header_of(key_of(), bytes);
  for (std::size_t bit = 0; bit < 8 * (kObjectHeaderBytes + bytes.size()); ++bit) {
    ObjectHeader changed = header;
    auto changed_bytes = bytes;
    std::byte& at = bit / 8 < kObjectHeaderBytes ? changed[bit / 8] : changed_bytes[bit / 8 - kObjectHeaderBytes];
    at ^= static_cast<std::byte>(1 << bit % 8);
    const bool accepted = check_header(key_of(), changed, kObjectHeaderBytes + 100, 100).has_value() &&
                          check_bytes(changed, changed_bytes).has_value();
    EXPECT_FALSE(accepted) << "bit " << bit;
  }
}

TEST(TierObject, SaysWhatIsWrong) {
  const auto bytes = some_bytes(100);
  const ObjectHeader header = header_of(key_of(), bytes);
  const auto fault = [&](const ObjectKey& key, std::span<const std::byte> seen, std::uint64_t stored,
                         std::uint64_t expected) {
    const auto checked = check_header(key, seen, stored, expected);
    return checked ? "accepted" : name(checked.error());
  };
  EXPECT_STREQ(fault(key_of(), header, 180, 100), "accepted");
  EXPECT_STREQ(fault(key_of(), std::span(header).first(79), 180, 100), "truncated");
  EXPECT_STREQ(fault(key_of(), header, 179, 100), "truncated");
  EXPECT_STREQ(fault(key_of(), header, 79, 100), "truncated");
  EXPECT_STREQ(fault(key_of(), header, 180, 99), "other length");
  EXPECT_STREQ(fault(key_of(1), header, 180, 100), "other name");
  EXPECT_STREQ(fault(key_of(ObjectKey::kCheckpoint), header, 180, 100), "other name");
  ObjectHeader other = header;
  other[0] = std::byte{'X'};
  EXPECT_STREQ(fault(key_of(), other, 180, 100), "not an object");
  other = header;
  other[8] = std::byte{2};
  EXPECT_STREQ(fault(key_of(), other, 180, 100), "other version");
  EXPECT_STREQ(name(TierKind::Disk), "disk");
}

}  // namespace
}  // namespace quire
