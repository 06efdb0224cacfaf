// Tests of HostDevice, DeviceBuffer and CountingDevice.
#include "quire/state/device.h"

#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "quire/state/behaviour_testing.h"
#include "quire/state/counting_device_testing.h"
#include "quire/state/staging.h"

namespace quire {
namespace {

using testing::all_zero;
using testing::bytes_at;
using testing::Code;
using testing::done;
using testing::pattern;
using testing::refused;

constexpr std::size_t kMapped = std::size_t{1} << 20;  // allocations from this size on are mapped

TEST(HostDevice, AllocatedMemoryIsZeroAndAligned) {
  HostDevice device;
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{100}, std::size_t{5000}, kMapped, kMapped + 4096}) {
    // Twice, so that the second allocation may reuse memory.
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

// Otherwise its first and last bytes (or all of a small block) would be in small pages.
TEST(HostDevice, ABlockThatCanHaveHugePagesBeginsWhereOneCan) {
  HostDevice device;
  constexpr std::size_t kHugePage = std::size_t{2} << 20;
  for (const std::size_t bytes : {kHugePage, kHugePage + 1, 2 * kHugePage - 4096, 3 * kHugePage + 12345}) {
    // Several blocks, so that one is not aligned by chance.
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

// A buffer of no bytes has no address. (The sanitizers see it if memcpy() gets one.)
TEST(HostDevice, WorkOnNoBytesNeedsNoAddress) {
  HostDevice device;
  EXPECT_TRUE(device.upload(nullptr, nullptr, 0));
  EXPECT_TRUE(device.download(nullptr, nullptr, 0));
  EXPECT_TRUE(device.copy(nullptr, nullptr, 0));
  EXPECT_TRUE(device.zero(nullptr, 0));
}

TEST(HostDevice, SaysItsNameAndHowMuchMemoryThereIs) {
  HostDevice device;
  EXPECT_STREQ(device.name(), "host");
  const DeviceMemory memory = device.memory();
  EXPECT_GT(memory.free, std::uint64_t{1} << 20);
  EXPECT_GE(memory.total, memory.free);
  EXPECT_LT(memory.total, std::uint64_t{1} << 60) << "this machine says how much it has";
}

TEST(HostDevice, WorkIsDoneWhenACallReturnsSoAFenceHasNothingToWaitFor) {
  HostDevice device;
  auto buffer = DeviceBuffer::create(device, 16);
  auto host = pattern(16, 1);
  ASSERT_TRUE(done(device.upload(buffer->data(), host.data(), 16)));
  host = pattern(16, 2);
  ASSERT_TRUE(done(device.fence()));
  EXPECT_EQ(bytes_at(buffer->data(), 16), pattern(16, 1));
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

TEST(HostBuffer, GivesItsMemoryBackOnceAndARefusalOwnsNothing) {
  CountingDevice device;
  {
    HostBuffer first = *HostBuffer::create(device, 5000), second = *HostBuffer::create(device, 3 << 20);
    std::memset(second.data(), 0xAB, second.size());
    EXPECT_EQ(device.counts().live_host_bytes, 5000u + (3u << 20));
    HostBuffer moved = std::move(first);
    moved = std::move(second);
    EXPECT_EQ(moved.size(), std::size_t{3} << 20);
  }
  EXPECT_EQ(device.counts().live_host_bytes, 0u);
  EXPECT_EQ(device.counts().host_allocations, 2u);
  EXPECT_TRUE(refused(HostBuffer::create(device, 0), Code::InvalidArgument));
  EXPECT_TRUE(refused(HostBuffer::create(device, SIZE_MAX / 2), Code::OutOfMemory));
  device.fail_after(0);
  EXPECT_TRUE(refused(HostBuffer::create(device, 64), Code::DeviceFailure));
  EXPECT_EQ(device.counts().live_host_bytes, 0u);
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
  ASSERT_TRUE(done(device.fence()));
  EXPECT_EQ(device.counts().allocations, 1u);
  EXPECT_EQ(device.counts().fences, 1u);
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
  device.settle();
  EXPECT_EQ(bytes_at(buffer->data(), 16), first);
  EXPECT_EQ(device.counts().uploads, 1u);
  EXPECT_FALSE(device.armed());
  EXPECT_TRUE(done(device.upload(buffer->data(), second.data(), 16)));
  EXPECT_TRUE(done(device.fence()));
  EXPECT_EQ(bytes_at(buffer->data(), 16), second);
}

TEST(CountingDevice, DoesNothingBeforeTheFenceAndThenAllInOrder) {
  CountingDevice device;
  auto buffer = DeviceBuffer::create(device, 32);
  ASSERT_TRUE(done(buffer));
  const auto data = pattern(8, 1);
  auto host = pattern(8, 9);
  ASSERT_TRUE(done(device.upload(buffer->data(), data.data(), 8)));
  ASSERT_TRUE(done(device.copy(buffer->data() + 8, buffer->data(), 8)));
  ASSERT_TRUE(done(device.download(host.data(), buffer->data() + 8, 8)));
  ASSERT_TRUE(done(device.zero(buffer->data(), 16)));
  EXPECT_TRUE(all_zero({buffer->data(), 32}));
  EXPECT_NE(host, data);
  EXPECT_NE(host, pattern(8, 9)) << "what is in the buffer of a download means nothing";
  device.settle();
  EXPECT_NE(host, data) << "a kernel that runs gives no host buffer back";
  ASSERT_TRUE(done(device.fence()));
  EXPECT_EQ(host, data);
  EXPECT_TRUE(all_zero({buffer->data(), 32}));
  EXPECT_EQ(device.counts().fences, 1u);
}

TEST(CountingDeviceDeathTest, AHostBufferThatIsChangedBeforeTheFenceStopsTheProgram) {
  for (const bool settled : {false, true}) {
    CountingDevice device;
    auto buffer = DeviceBuffer::create(device, 8);
    auto host = pattern(8, 1);
    ASSERT_TRUE(done(device.upload(buffer->data(), host.data(), 8)));
    if (settled) device.settle();
    host[3] = std::byte{0};
    EXPECT_DEATH((void)device.fence(), "belongs to the device until the next fence");
    host[3] = pattern(8, 1)[3];
    EXPECT_TRUE(done(device.fence()));
    host[3] = std::byte{0};  // now it belongs to us
    EXPECT_TRUE(done(device.fence()));
  }
}

TEST(CountingDevice, WorkThatFailsShowsAtTheNextFenceOnce) {
  CountingDevice device;
  auto buffer = DeviceBuffer::create(device, 16);
  ASSERT_TRUE(done(buffer));
  const auto data = pattern(16, 1);
  for (const bool waited : {false, true}) {
    device.fail_work_after(1);
    ASSERT_TRUE(done(device.upload(buffer->data(), data.data(), 16)));
    ASSERT_TRUE(done(device.zero(buffer->data(), 8)));
    if (waited) DeviceBuffer::create(device, 8)->size();  // deallocation waits and reports nothing
    const auto fenced = device.fence();
    ASSERT_TRUE(refused(fenced, Code::WorkFailed));
    EXPECT_EQ(fenced.error().message(), "the device failed at work that was submitted before the fence");
    EXPECT_FALSE(all_zero({buffer->data(), 8}));
    EXPECT_TRUE(done(device.fence()));
  }
}

TEST(Staging, ThePieceIsTheCallersAgainAtOnceAndAFullRingFences) {
  CountingDevice device;
  auto buffer = DeviceBuffer::create(device, 64);
  auto staging = Staging::create(device, 16);
  ASSERT_TRUE(done(staging));
  for (unsigned i = 0; i < 8; ++i) {
    auto piece = pattern(8, i);
    ASSERT_TRUE(done(staging->upload(buffer->data() + 8 * i, piece.data(), 8)));
    piece.assign(8, std::byte{0});
  }
  EXPECT_EQ(device.counts().fences, 3u) << "two pieces fit";
  auto all = pattern(64, 50);  // more than fits into the ring
  device.settle();
  for (unsigned i = 0; i < 8; ++i) EXPECT_EQ(bytes_at(buffer->data() + 8 * i, 8), pattern(8, i));
  ASSERT_TRUE(done(staging->upload(buffer->data(), all.data(), 64)));
  all.assign(64, std::byte{0});
  EXPECT_EQ(bytes_at(buffer->data(), 64), pattern(64, 50));
  ASSERT_TRUE(done(device.fence()));
}

TEST(Staging, WhatFailedBeforeAFenceOfTheRingIsPassedOn) {
  CountingDevice device;
  auto buffer = DeviceBuffer::create(device, 64);
  auto staging = Staging::create(device, 16);
  const auto piece = pattern(12, 1);
  device.fail_work_after(0);
  ASSERT_TRUE(done(staging->upload(buffer->data(), piece.data(), 12)));
  EXPECT_TRUE(refused(staging->upload(buffer->data(), piece.data(), 12), Code::WorkFailed));
  ASSERT_TRUE(done(staging->upload(buffer->data(), piece.data(), 12)));
  ASSERT_TRUE(done(device.fence()));
  EXPECT_EQ(bytes_at(buffer->data(), 12), piece);
}

}  // namespace
}  // namespace quire
