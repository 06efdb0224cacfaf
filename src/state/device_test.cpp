// The memory that kernels read: host memory, the owner of a piece of it, and the device that counts.
#include "quire/state/device.h"

#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "quire/state/behaviour_testing.h"
#include "quire/state/counting_device.h"

namespace quire {
namespace {

using testing::all_zero;
using testing::bytes_at;
using testing::Code;
using testing::done;
using testing::pattern;
using testing::refused;

constexpr std::size_t kMapped = std::size_t{1} << 20;  // from here on memory is mapped

TEST(HostDevice, AllocatedMemoryIsZeroAndAligned) {
  HostDevice device;
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{100}, std::size_t{5000}, kMapped, kMapped + 4096}) {
    // Twice, so that memory that was used before is met again.
    for (int round = 0; round < 2; ++round) {
      const auto memory = device.allocate(bytes, 64);
      ASSERT_TRUE(done(memory)) << bytes;
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(*memory) % 64, 0u) << bytes;
      EXPECT_TRUE(all_zero({static_cast<const std::byte*>(*memory), bytes})) << bytes;
      std::memset(*memory, 0xAB, bytes);
      device.deallocate(*memory, bytes);
    }
  }
}

TEST(HostDevice, TheAlignmentThatWasAskedForIsKeptForSmallBlocks) {
  HostDevice device;
  const auto memory = device.allocate(100, 4096);
  ASSERT_TRUE(done(memory));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(*memory) % 4096, 0u);
  device.deallocate(*memory, 100);
}

TEST(HostDevice, MappedBlocksAreAlignedToAPageAndMoreIsRefused) {
  HostDevice device;
  const auto memory = device.allocate(kMapped, 4096);
  ASSERT_TRUE(done(memory));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(*memory) % 4096, 0u);
  device.deallocate(*memory, kMapped);
  EXPECT_TRUE(refused(device.allocate(kMapped, 1 << 16), Code::InvalidArgument));
}

// Or the pages at its ends, all pages of a small one, would be small.
TEST(HostDevice, ABlockThatCanHaveHugePagesBeginsWhereOneCan) {
  HostDevice device;
  constexpr std::size_t kHugePage = std::size_t{2} << 20;
  for (const std::size_t bytes : {kHugePage, kHugePage + 1, 2 * kHugePage - 4096, 3 * kHugePage + 12345}) {
    // Several, so that wherever the kernel puts the next one it cannot be by chance.
    std::vector<void*> blocks;
    for (int i = 0; i < 5; ++i) {
      const auto memory = device.allocate(bytes, 64);
      ASSERT_TRUE(done(memory)) << bytes;
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(*memory) % kHugePage, 0u) << bytes;
      EXPECT_TRUE(all_zero({static_cast<const std::byte*>(*memory), bytes})) << bytes;
      std::memset(*memory, 0xAB, bytes);
      blocks.push_back(*memory);
    }
    for (void* block : blocks) device.deallocate(block, bytes);
  }
}

TEST(HostDevice, AnAllocationOfNoBytesIsRefused) {
  HostDevice device;
  EXPECT_TRUE(refused(device.allocate(0, 64), Code::InvalidArgument));
}

TEST(HostDevice, MemoryThatCannotBeHadIsAnErrorThatSaysHowMuch) {
  HostDevice device;
  const std::size_t bytes = std::size_t{1} << 60;
  const auto memory = device.allocate(bytes, 64);
  ASSERT_TRUE(refused(memory, Code::DeviceFailure));
  EXPECT_EQ(memory.error().wanted, bytes);
}

TEST(HostDevice, UploadDownloadCopyAndZeroTouchTheirBytesAndNoOthers) {
  HostDevice device;
  const auto memory = device.allocate(64, 64);
  ASSERT_TRUE(done(memory));
  auto* bytes = static_cast<std::byte*>(*memory);
  const auto data = pattern(8, 1);

  ASSERT_TRUE(done(device.upload(bytes + 8, data.data(), 8)));
  EXPECT_EQ(bytes_at(bytes + 8, 8), data);
  EXPECT_TRUE(all_zero({bytes, 8}));
  EXPECT_TRUE(all_zero({bytes + 16, 48}));

  ASSERT_TRUE(done(device.copy(bytes + 32, bytes + 8, 8)));
  EXPECT_EQ(bytes_at(bytes + 32, 8), data);
  EXPECT_TRUE(all_zero({bytes + 16, 16}));
  EXPECT_TRUE(all_zero({bytes + 40, 24}));

  std::vector<std::byte> host(10, std::byte{9});
  ASSERT_TRUE(done(device.download(host.data() + 1, bytes + 32, 8)));
  EXPECT_EQ(bytes_at(host.data() + 1, 8), data);
  EXPECT_EQ(host.front(), std::byte{9});
  EXPECT_EQ(host.back(), std::byte{9});

  ASSERT_TRUE(done(device.zero(bytes + 9, 6)));
  EXPECT_EQ(bytes[8], data[0]);
  EXPECT_TRUE(all_zero({bytes + 9, 6}));
  EXPECT_EQ(bytes[15], data[7]);
  device.deallocate(*memory, 64);
}

TEST(DeviceBuffer, GivesItsMemoryBackOnce) {
  CountingDevice device;
  {
    auto buffer = DeviceBuffer::create(device, 100);
    ASSERT_TRUE(done(buffer));
    EXPECT_EQ(buffer->size(), 100u);
    EXPECT_NE(buffer->data(), nullptr);
    EXPECT_EQ(device.counts().live_bytes, 100u);
    DeviceBuffer second = std::move(*buffer);
    EXPECT_EQ(second.size(), 100u);
    EXPECT_EQ(buffer->size(), 0u);
    EXPECT_EQ(buffer->data(), nullptr);
    EXPECT_EQ(device.counts().live_bytes, 100u);
  }
  EXPECT_EQ(device.counts().live_bytes, 0u);
}

TEST(DeviceBuffer, WhatABufferHadBeforeAMoveIntoItGoesBackToo) {
  CountingDevice device;
  {
    auto kept = DeviceBuffer::create(device, 30);
    {
      auto other = DeviceBuffer::create(device, 50);
      std::byte* const address = other->data();
      *kept = std::move(*other);
      EXPECT_EQ(kept->data(), address);
    }
    EXPECT_EQ(device.counts().live_bytes, 50u);
  }
  EXPECT_EQ(device.counts().live_bytes, 0u);
}

TEST(DeviceBuffer, ABufferOfNoBytesAsksTheDeviceForNothing) {
  CountingDevice device;
  const auto buffer = DeviceBuffer::create(device, 0);
  ASSERT_TRUE(done(buffer));
  EXPECT_EQ(buffer->data(), nullptr);
  EXPECT_EQ(buffer->size(), 0u);
  EXPECT_EQ(device.counts().allocations, 0u);
}

TEST(DeviceBuffer, ARefusedAllocationOwnsNothing) {
  CountingDevice device;
  device.fail_after(0);
  EXPECT_TRUE(refused(DeviceBuffer::create(device, 100), Code::DeviceFailure));
  EXPECT_EQ(device.counts().live_bytes, 0u);
}

TEST(CountingDevice, CountsCallsAndBytesOfEachKind) {
  CountingDevice device;
  auto buffer = DeviceBuffer::create(device, 64);
  ASSERT_TRUE(done(buffer));
  const auto data = pattern(16, 1);
  std::vector<std::byte> host(4);
  ASSERT_TRUE(done(device.upload(buffer->data(), data.data(), 16)));
  ASSERT_TRUE(done(device.upload(buffer->data(), data.data(), 4)));
  ASSERT_TRUE(done(device.copy(buffer->data() + 32, buffer->data(), 8)));
  ASSERT_TRUE(done(device.zero(buffer->data(), 2)));
  ASSERT_TRUE(done(device.download(host.data(), buffer->data(), 4)));
  EXPECT_EQ(device.counts().allocations, 1u);
  EXPECT_EQ(device.counts().uploads, 2u);
  EXPECT_EQ(device.counts().uploaded_bytes, 20u);
  EXPECT_EQ(device.counts().copies, 1u);
  EXPECT_EQ(device.counts().copied_bytes, 8u);
  EXPECT_EQ(device.counts().zeroes, 1u);
  EXPECT_EQ(device.counts().zeroed_bytes, 2u);
  EXPECT_EQ(device.counts().downloads, 1u);
  device.reset_counts();
  EXPECT_EQ(device.counts().uploads, 0u);
  EXPECT_EQ(device.counts().live_bytes, 64u);
}

TEST(CountingDevice, RefusesTheCallThatWasChosenOnceAndLeavesItsDestinationAlone) {
  CountingDevice device;
  auto buffer = DeviceBuffer::create(device, 16);
  ASSERT_TRUE(done(buffer));
  const auto first = pattern(16, 1), second = pattern(16, 2);
  device.fail_after(1);
  EXPECT_TRUE(done(device.upload(buffer->data(), first.data(), 16)));
  EXPECT_TRUE(device.armed());
  EXPECT_TRUE(refused(device.upload(buffer->data(), second.data(), 16), Code::DeviceFailure));
  EXPECT_EQ(bytes_at(buffer->data(), 16), first);
  EXPECT_EQ(device.counts().uploads, 1u);
  EXPECT_FALSE(device.armed());
  EXPECT_TRUE(done(device.upload(buffer->data(), second.data(), 16)));
  EXPECT_EQ(bytes_at(buffer->data(), 16), second);
}

}  // namespace
}  // namespace quire
