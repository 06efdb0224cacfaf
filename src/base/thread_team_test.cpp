#include "quire/base/thread_team.h"

#include <atomic>
#include <chrono>
#include <vector>

#include <gtest/gtest.h>
#include <sched.h>

#include "quire/base/machine.h"

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

// The caller sleeps then, and is woken. Part 1 is held until its own thread has begun it.
TEST(ThreadTeam, TheCallerWaitsForALongPart) {
  for (const bool crowded : {false, true}) {
    ThreadTeam team(TeamOptions{.threads = 3, .cpus = {}, .crowded = crowded});
    for (int round = 0; round < 5; ++round) {
      std::atomic<int> begun{0}, done{0};
      team.run([&](std::uint32_t part, std::uint32_t) {
        ++begun;
        while (begun.load() < 3) std::this_thread::yield();  // each part has a thread of its own
        if (part != 0) std::this_thread::sleep_for(std::chrono::milliseconds(part * 4));
        ++done;
      });
      ASSERT_EQ(done.load(), 3);
    }
  }
}

TEST(ThreadTeam, WithMoreThreadsThanCoresJobsGoOn) {
  constexpr std::uint32_t kThreads = 32;
  ThreadTeam team(kThreads);
  std::vector<int> counts(kThreads, 0);
  const auto start = std::chrono::steady_clock::now();
  for (int round = 0; round < 300; ++round) {
    team.run([&](std::uint32_t part, std::uint32_t) { ++counts[part]; });
  }
  for (const int count : counts) EXPECT_EQ(count, 300);
  // A thread that spins until its time slice ends would take seconds. This is far more than is needed.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST(ThreadTeam, WaitingThreadsDoWhatTheyAreGivenUntilThereIsWork) {
  struct Waits {
    std::atomic<std::uint32_t> turns{0}, most{0};
    std::atomic<bool> wrong{false};
  };
  static Waits waits;  // threads may look at it until the team ends
  ThreadTeam team(3);
  team.while_waiting(
      [](const void*, std::uint32_t thread, std::uint32_t threads, std::uint32_t turn) {
        ++waits.turns;
        if (thread >= threads || threads != 3) waits.wrong = true;
        return turn < 10;  // then it looks for work, and sleeps
      },
      nullptr);
  std::atomic<int> done{0};
  // On a busy machine a thread may lose its core before it has waited for the first time.
  int rounds = 0;
  for (; rounds < 50 || (waits.turns.load() == 0 && rounds < 5000); ++rounds) {
    team.run([&](std::uint32_t, std::uint32_t) { ++done; });
    if (rounds >= 50) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(done.load(), 3 * rounds);
  EXPECT_GT(waits.turns.load(), 0u);
  EXPECT_FALSE(waits.wrong.load());
  team.while_waiting(nullptr, nullptr);
  team.run([&](std::uint32_t, std::uint32_t) { ++done; });
}

TEST(ThreadTeam, TwoTeamsOfOneCallerWorkInTurn) {
  ThreadTeam first(3), second(4);
  std::vector<int> counts(7, 0);
  for (int round = 0; round < 200; ++round) {
    first.run([&](std::uint32_t part, std::uint32_t) { ++counts[part]; });
    second.run([&](std::uint32_t part, std::uint32_t) { ++counts[3 + part]; });
  }
  for (const int count : counts) EXPECT_EQ(count, 200);
}

// One worker, and at least two cores: it need not give way to anybody, though its own affinity has one CPU only.
TEST(ThreadTeam, AWorkerThatStaysOnOneCpuKnowsOfTheOtherCores) {
  if (available_cores() < 2) GTEST_SKIP() << "there is one core";
  const ThreadTeam team(TeamOptions{.threads = 2, .cpus = {{}, {static_cast<std::uint32_t>(sched_getcpu())}}});
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the worker has waited for work
  EXPECT_FALSE(team.gives_way());
}

TEST(ThreadTeam, EndsWithoutEverHavingWorked) { const ThreadTeam team(4); }

}  // namespace
}  // namespace quire
