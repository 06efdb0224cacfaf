#include "quire/base/thread_team.h"

#include <atomic>
#include <chrono>
#include <vector>

#include <gtest/gtest.h>

namespace quire {
namespace {

TEST(ThreadTeam, EveryPartIsDoneOncePerRoundAndRunReturnsWhenAllAre) {
  for (const std::uint32_t threads : {1u, 2u, 3u, 5u}) {
    ThreadTeam team(threads);
    ASSERT_EQ(team.size(), threads);
    std::vector<int> counts(threads, 0);  // plain ints: the team's own synchronisation must be enough
    for (int round = 0; round < 500; ++round) {
      team.run([&](std::uint32_t thread, std::uint32_t all) {
        EXPECT_EQ(all, threads);
        ++counts[thread];
      });
      for (const int count : counts) ASSERT_EQ(count, round + 1);
    }
  }
}

TEST(ThreadTeam, WakesAfterASleep) {
  ThreadTeam team(3);
  std::atomic<int> done{0};
  for (int round = 0; round < 3; ++round) {
    team.run([&](std::uint32_t, std::uint32_t) { ++done; });
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
  }
  EXPECT_EQ(done.load(), 9);
}

// One thread sleeps in its part; meanwhile the other threads do all other parts.
TEST(ThreadTeam, NobodyWaitsForAThreadThatHasNotBegun) {
  ThreadTeam team(4);
  std::atomic<int> others{0};
  for (int round = 0; round < 20; ++round) {
    others = 0;
    team.run([&](std::uint32_t part, std::uint32_t) {
      if (part != 0) {
        ++others;
        return;
      }
      while (others.load() < 3) std::this_thread::yield();
    });
    EXPECT_EQ(others.load(), 3);
  }
}

TEST(ThreadTeam, EndsWithoutEverHavingWorked) { const ThreadTeam team(4); }

}  // namespace
}  // namespace quire
