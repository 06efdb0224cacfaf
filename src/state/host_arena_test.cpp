// Tests of HostArena: cells, lists, and what comes back.
#include "quire/state/host_arena.h"

#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "quire/state/behaviour_testing.h"
#include "quire/state/counting_device_testing.h"

namespace quire::testing {
namespace {

using Object = HostArena::Object;

std::vector<std::byte> bytes_from(int first, std::size_t count) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < count; ++i) bytes.push_back(static_cast<std::byte>(first + static_cast<int>(i)));
  return bytes;
}

TEST(HostArena, GivesBackEveryByteOfObjectsOfDifferentSizes) {
  CountingDevice device;
  const auto arena = HostArena::create(device, 10 * 16 + 15, 16).value();
  EXPECT_EQ(arena->total_bytes(), 160u);
  HostArena::List list(*arena);
  const auto page = bytes_from(1, 16), state = bytes_from(100, 40);
  ASSERT_TRUE(done(list.store({0, 7}, page.data(), page.size())));
  ASSERT_TRUE(done(list.store({1, 0}, state.data(), state.size())));
  ASSERT_TRUE(done(device.fence()));
  EXPECT_EQ(list.size(), 4u);
  EXPECT_EQ(arena->used_bytes(), 64u);

  std::vector<std::pair<Object, std::uint32_t>> stored;
  list.for_each([&](Object object, std::uint32_t cell) { stored.emplace_back(object, cell); });
  ASSERT_EQ(stored.size(), 2u);
  EXPECT_EQ(stored[0].first, (Object{0, 7}));
  EXPECT_EQ(stored[1].first, (Object{1, 0}));
  std::vector<std::byte> page_back(page.size()), state_back(state.size());
  ASSERT_TRUE(done(list.load(stored[0].second, page_back.data(), page.size())));
  ASSERT_TRUE(done(list.load(stored[1].second, state_back.data(), state.size())));
  ASSERT_TRUE(done(device.fence()));
  EXPECT_EQ(page_back, page);
  EXPECT_EQ(state_back, state);
}

// Lists of different lengths come and go. Whatever is free can be used.
TEST(HostArena, IsNeverFragmented) {
  CountingDevice device;
  const auto arena = HostArena::create(device, 12 * 8, 8).value();
  const auto bytes = bytes_from(0, 64);
  const auto list_of = [&](std::uint64_t cells) {
    HostArena::List list(*arena);
    EXPECT_TRUE(done(list.store({}, bytes.data(), 8 * cells)));
    EXPECT_TRUE(done(device.fence()));
    return list;
  };
  std::vector<HostArena::List> lists;
  for (int i = 0; i < 6; ++i) lists.push_back(list_of(2));
  EXPECT_EQ(arena->free_cells(), 0u);
  for (const std::size_t i : {4u, 2u, 0u}) lists.erase(lists.begin() + static_cast<long>(i));
  EXPECT_EQ(arena->free_cells(), 6u);
  HostArena::List large = list_of(6);
  EXPECT_EQ(arena->free_cells(), 0u);
  large = HostArena::List();
  lists.clear();
  EXPECT_EQ(arena->used_bytes(), 0u);
}

TEST(HostArena, OfNoBytesIsAlwaysFullAndCellsOfNoBytesAreRefused) {
  CountingDevice device;
  EXPECT_EQ(HostArena::create(device, 0, 64).value()->free_cells(), 0u);
  EXPECT_EQ(HostArena::create(device, 63, 64).value()->total_bytes(), 0u);
  EXPECT_TRUE(refused(HostArena::create(device, 64, 0), Code::InvalidArgument));
}

TEST(HostArena, ThatIsTooLargeForTheMachineIsAnError) {
  HostDevice device;
  EXPECT_TRUE(refused(HostArena::create(device, std::uint64_t{1} << 60, std::uint64_t{1} << 40), Code::OutOfMemory));
}

}  // namespace
}  // namespace quire::testing
