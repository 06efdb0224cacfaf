#include "quire/backend/cpu/for_each.h"

#include <chrono>
#include <optional>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace quire::cpu {
namespace {

TEST(ForEach, EveryItemIsDoneOnceByAThreadOfTheTeam) {
  for (const std::uint32_t threads : {1u, 2u, 3u, 20u}) {  // also more threads than ranges
    ThreadTeam team(threads);
    for (const std::uint32_t count : {0u, 1u, 2u, 3u, 19u, 200u}) {
      for (const std::uint32_t few : {0u, 2u}) {
        std::vector<std::atomic<int>> done(count);
        std::atomic<std::uint32_t> highest{0};
        for_each_by_thread(team, count, few, [&](std::uint32_t item, std::uint32_t thread) {
          ++done[item];
          if (thread >= threads) highest = thread;
        });
        for (const auto& times : done) ASSERT_EQ(times.load(), 1) << threads << " threads, " << count << " items";
        EXPECT_EQ(highest.load(), 0u);
      }
      std::vector<std::atomic<int>> done(count);
      for_each_in_order(team, count, [&](std::uint32_t item) { ++done[item]; });
      for (const auto& times : done) ASSERT_EQ(times.load(), 1) << threads << " threads, " << count << " items";
    }
  }
}

TEST(ForEach, RangesCoverEveryItemOnceAndAreNeverLongerThanAsked) {
  for (const std::uint32_t threads : {1u, 2u, 3u, 16u, 70u}) {  // also more threads than ranges
    ThreadTeam team(threads);
    for (const std::uint32_t count : {0u, 1u, 5u, 64u, 1000u}) {
      for (const std::uint32_t most : {1u, 3u, 7u}) {
        std::vector<std::atomic<int>> done(count);
        std::atomic<bool> wrong{false};
        for_each_range(team, count, most, [&](std::uint32_t begin, std::uint32_t end, std::uint32_t thread) {
          if (begin >= end || end > count || end - begin > most || thread >= threads) wrong = true;
          for (std::uint32_t i = begin; i < std::min(end, count); ++i) ++done[i];
        });
        EXPECT_FALSE(wrong.load());
        for (const auto& times : done) ASSERT_EQ(times.load(), 1) << threads << " threads, " << count << " items";
      }
    }
  }
}

// Memory is placed and prefetched by Shares::begin(). Where a thread began elsewhere, both would be for another thread.
TEST(ForEach, EveryThreadBeginsWithTheShareThatIsPlacedForIt) {
  constexpr std::uint32_t kItems = 5000;
  for (const std::uint32_t threads : {2u, 64u, 65u, 200u, 1024u}) {
    for (std::uint32_t thread = 0; thread < threads; ++thread) {
      Shares shares(kItems, threads);
      std::optional<std::uint32_t> first;
      shares.take(thread, 1, [&](std::uint32_t begin, std::uint32_t) { first = first.value_or(begin); });
      ASSERT_EQ(first, Shares::begin(kItems, thread, threads)) << threads << " threads";
    }
  }
}

TEST(ForEach, SmallItemsAreDoneOnceAfterTheOthersAreTaken) {
  for (const std::uint32_t threads : {1u, 2u, 5u}) {
    ThreadTeam team(threads);
    std::vector<std::atomic<int>> large(12), small(31);
    std::atomic<std::uint32_t> taken{0};
    std::atomic<bool> early{false};
    for_each_then(
        team, 12, [&](std::uint32_t i, std::uint32_t) { ++taken, ++large[i]; }, 31,
        [&](std::uint32_t i, std::uint32_t) {
          if (taken.load() + threads <= 12) early = true;  // others may still be at their last large one
          ++small[i];
        });
    for (const auto& times : large) EXPECT_EQ(times.load(), 1);
    for (const auto& times : small) EXPECT_EQ(times.load(), 1);
    EXPECT_FALSE(early.load());
  }
}

TEST(ForEach, AFewItemsAreDoneByTheCallingThread) {
  ThreadTeam team(3);
  const std::thread::id here = std::this_thread::get_id();
  for_each(team, 4, 4, [&](std::uint32_t) { EXPECT_EQ(std::this_thread::get_id(), here); });
}

// If a thread is held up in its first item, the others do the rest of its range.
TEST(ForEach, AThreadThatIsDoneHelpsTheOthers) {
  constexpr std::uint32_t kItems = 100;
  ThreadTeam team(2);
  std::atomic<std::uint32_t> others{0};
  std::atomic<bool> held{false};
  for_each(team, kItems, [&](std::uint32_t) {
    if (held.exchange(true)) {
      ++others;
      return;
    }
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (others.load() + 1 < kItems && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    EXPECT_EQ(others.load() + 1, kItems);
  });
}

}  // namespace
}  // namespace quire::cpu
