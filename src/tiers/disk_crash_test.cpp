// `kill -9` at random moments while objects are put and evicted: afterwards every object that is found is right, and
// the limit holds. A few dozen rounds here; more with QUIRE_CRASH_ROUNDS=500.
//
// The program starts itself as the process that is killed: disk_crash_test --demote DIRECTORY SEED
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <random>
#include <string>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "quire/tiers/disk_tier_testing.h"

namespace quire::tiers {
namespace {

using namespace testing;

constexpr std::uint64_t kObjects = 600;  // about twice the limit
std::size_t size_of(std::uint64_t number) { return 1'000 + number * 7919 % 400'000; }

DiskTierOptions crash_options(const std::filesystem::path& path) {
  DiskTierOptions options = small_options(path);
  options.flush_interval = std::chrono::milliseconds(10);
  return options;
}

// For a failure: what is in the directory.
std::string listing(const std::filesystem::path& path) {
  std::string text;
  std::error_code error;
  for (std::filesystem::recursive_directory_iterator entry(path, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code vanished;
    text += entry->path().filename().string() + " " + std::to_string(entry->file_size(vanished)) + "\n";
  }
  return text;
}

// Puts and gets until it is killed.
int demote(const char* path, std::uint64_t seed) {
  WaitingListener listener;
  auto tier = open_disk_tier(crash_options(path), listener);
  if (!tier) {
    std::fprintf(stderr, "%s\n", tier.error().message.c_str());
    return 1;
  }
  std::vector<std::thread> clients;
  for (std::uint64_t thread = 0; thread < 3; ++thread) {
    clients.emplace_back([&, thread] {
      std::mt19937_64 random(seed * 3 + thread);
      Client client(**tier, listener);
      for (;;) {
        const std::uint64_t number = random() % kObjects;
        if (random() % 4 == 0) {
          client.get(number, size_of(number));
        } else {
          client.put(number, size_of(number));
        }
      }
    });
  }
  for (std::thread& client : clients) client.join();
  return 0;
}

TEST(DiskCrash, LeavesOnlyWholeObjectsAndTheLimit) {
  const char* wanted = std::getenv("QUIRE_CRASH_ROUNDS");
  const int rounds = wanted ? std::atoi(wanted) : 24;
  TemporaryDirectory directory;
  const auto path = directory.path() / "cache";
  std::mt19937_64 random(rounds);
  std::uint64_t found = 0, most = 0;
  std::string files;
  const auto count = [&] {
    const std::uint64_t bytes = bytes_below(path);
    if (bytes > kSmallestDiskLimit && bytes > most) files = listing(path);
    most = std::max(most, bytes);
  };
  {
    // The cache is full when the rounds begin, so that each of them evicts.
    WaitingListener listener;
    auto tier = open_disk_tier(crash_options(path), listener);
    ASSERT_TRUE(tier) << tier.error().message;
    Client client(**tier, listener);
    for (std::uint64_t number = 0; number < kObjects; ++number) {
      ASSERT_EQ(client.put(number, size_of(number)), TierOutcome::Done);
    }
    ASSERT_GT((*tier)->usage().evicted, 0);
  }
  for (int round = 0; round < rounds; ++round) {
    const std::string seed = std::to_string(round);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      ::execl("/proc/self/exe", "disk_crash_test", "--demote", path.c_str(), seed.c_str(), nullptr);
      ::_exit(2);
    }
    // Some are killed while they open, most while they work.
    const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(random() % 700'000);
    while (std::chrono::steady_clock::now() < end) {
      ::kill(child, SIGSTOP);  // so that the files do not change while they are counted
      count();
      ::kill(child, SIGCONT);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "it ended by itself with " << WEXITSTATUS(status) << " in round " << round;
    count();

    WaitingListener listener;
    DiskTierOptions options = crash_options(path);
    std::string lines;
    options.log = [&](const std::string& line) { lines += line + "\n"; };
    auto tier = open_disk_tier(options, listener);
    ASSERT_TRUE(tier) << tier.error().message << " in round " << round;
    Client client(**tier, listener);
    for (std::uint64_t number = 0; number < kObjects; ++number) {
      const TierOutcome outcome = client.get(number, size_of(number));  // compares the bytes
      ASSERT_TRUE(outcome == TierOutcome::Done || outcome == TierOutcome::Missing)
          << number << " in round " << round << ": " << (*tier)->usage().problem;
      found += outcome == TierOutcome::Done;
    }
    EXPECT_EQ((*tier)->usage().damaged, (std::array<std::uint64_t, 6>{}));
    EXPECT_EQ(lines, "") << "in round " << round;
    // One may be of the tier that is open. Those of killed processes must not add up.
    const std::string now = listing(path);
    EXPECT_EQ(now.find(".dbtmp"), now.rfind(".dbtmp")) << now;
    count();
    ASSERT_LE(most, options.limit_bytes) << "in round " << round << "\n" << files;
  }
  std::printf("%d rounds, %llu objects found and right, at most %llu of %llu bytes\n", rounds,
              static_cast<unsigned long long>(found), static_cast<unsigned long long>(most),
              static_cast<unsigned long long>(kSmallestDiskLimit));
  EXPECT_GT(found, 100 * static_cast<std::uint64_t>(rounds));
}

}  // namespace
}  // namespace quire::tiers

int main(int argc, char** argv) {
  if (argc == 4 && std::string(argv[1]) == "--demote") return quire::tiers::demote(argv[2], std::stoull(argv[3]));
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
