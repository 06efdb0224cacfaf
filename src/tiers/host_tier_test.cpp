#include "quire/tiers/host_tier.h"

#include <cstring>
#include <memory>
#include <utility>

#include <gtest/gtest.h>

#include "quire/state/counting_device_testing.h"

namespace quire::tiers {
namespace {

constexpr std::uint64_t kCell = 64, kCells = 8;

ObjectKey key_of(Token number) { return {.name = block_name({}, std::span(&number, 1)), .cls = 0}; }

struct Fixture {
  Fixture()
      : memory(*DeviceBuffer::create(device, 3 * kCell)),
        arena(*HostArena::create(device, kCells * kCell, kCell)),
        tier(*arena, kCells * kCell) {}

  bool put(Token number, std::uint64_t bytes = kCell) { return tier.put(key_of(number), 0, 0, memory.data(), bytes); }
  void fence() {
    EXPECT_TRUE(device.fence().has_value());
    tier.fenced();
  }
  bool has(Token number) { return tier.find(key_of(number)) != UINT32_MAX; }

  CountingDevice device;
  DeviceBuffer memory;
  std::unique_ptr<HostArena> arena;
  HostTier tier;
};

TEST(HostTier, TheLeastRecentlyUsedGiveWay) {
  Fixture fixture;
  for (Token i = 0; i < 8; ++i) ASSERT_TRUE(fixture.put(i));
  fixture.fence();
  EXPECT_TRUE(fixture.has(0));
  ASSERT_TRUE(fixture.put(8, 2 * kCell));
  EXPECT_TRUE(fixture.has(0));
  EXPECT_FALSE(fixture.has(1));
  EXPECT_FALSE(fixture.has(2));
  EXPECT_TRUE(fixture.has(3));
  EXPECT_EQ(fixture.tier.usage().evicted, 2u);
}

TEST(HostTier, WhatIsPinnedOrNotYetCopiedStays) {
  Fixture fixture;
  for (Token i = 0; i < 4; ++i) ASSERT_TRUE(fixture.put(i));
  fixture.fence();
  for (Token i = 4; i < 8; ++i) ASSERT_TRUE(fixture.put(i));
  for (Token i = 0; i < 4; ++i) fixture.tier.pin(fixture.tier.find(key_of(i)));
  EXPECT_EQ(fixture.tier.cells_to_give(), 4u);
  EXPECT_FALSE(fixture.put(8)) << "four are pinned, four are being copied";
  EXPECT_EQ(fixture.tier.usage().refused, 1u);
  fixture.fence();
  EXPECT_TRUE(fixture.put(8));
  EXPECT_FALSE(fixture.has(4));
  for (Token i = 0; i < 4; ++i) fixture.tier.unpin(fixture.tier.find(key_of(i)));
  EXPECT_EQ(fixture.tier.cells_to_give(), 8u);
}

TEST(HostTier, AnObjectThatTheDeviceRefusesGivesItsCellsBackAtTheFence) {
  for (std::uint64_t calls = 0; calls < 3; ++calls) {
    Fixture fixture;
    fixture.device.fail_after(calls);
    EXPECT_FALSE(fixture.put(0, 3 * kCell));
    fixture.device.never_fail();
    EXPECT_FALSE(fixture.has(0));
    EXPECT_GT(fixture.arena->used_bytes(), 0u) << "the device may still write to them";
    // Meanwhile the object comes again.
    ASSERT_TRUE(fixture.put(0, 3 * kCell));
    fixture.fence();
    EXPECT_EQ(fixture.arena->used_bytes(), 3 * kCell);
    EXPECT_TRUE(fixture.has(0));
    EXPECT_EQ(fixture.tier.usage().objects, 1u);
    EXPECT_EQ(fixture.tier.usage().bytes, 3 * kCell);
  }
}

TEST(HostTier, WhatWasCopiedSinceTheLastFenceCanBeForgotten) {
  Fixture fixture;
  ASSERT_TRUE(fixture.put(0));
  fixture.fence();
  ASSERT_TRUE(fixture.put(1));
  fixture.device.fail_after(0);
  EXPECT_FALSE(fixture.put(2));
  fixture.device.never_fail();
  EXPECT_TRUE(fixture.device.fence().has_value());
  fixture.tier.distrust();
  EXPECT_TRUE(fixture.has(0));
  EXPECT_FALSE(fixture.has(1));
  EXPECT_EQ(fixture.arena->used_bytes(), kCell);
  EXPECT_TRUE(fixture.put(1));
}

}  // namespace
}  // namespace quire::tiers
