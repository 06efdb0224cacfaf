// The disk tier keeps what it is given, over restarts, within its limit.
#include "quire/tiers/disk_tier.h"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <random>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>

#include "quire/tiers/disk_index.h"
#include "quire/tiers/disk_slot.h"
#include "quire/tiers/disk_tier_testing.h"

namespace quire::tiers {
namespace {

namespace fs = std::filesystem;
using namespace testing;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr std::size_t kBytes = 200'000;

std::optional<std::uint64_t> megabytes(std::string_view text) {
  if (text != "100M" && text != "1M") return std::nullopt;
  return text == "100M" ? 100 << 20 : 1 << 20;
}

TEST(DiskTierOptions, AreADirectoryAndASize) {
  const auto options = parse_disk_tier("/a:b/c:100M", megabytes);
  ASSERT_TRUE(options);
  EXPECT_EQ(options->path, "/a:b/c");
  EXPECT_EQ(options->limit_bytes, 100 << 20);
}

TEST(DiskTierOptions, SayWhatIsWrongWithThem) {
  EXPECT_THAT(parse_disk_tier("/a", megabytes).error().message, HasSubstr("'/a' has no size"));
  EXPECT_THAT(parse_disk_tier(":100M", megabytes).error().message, HasSubstr("no directory"));
  EXPECT_THAT(parse_disk_tier("/a:lots", megabytes).error().message, HasSubstr("'lots' is not a size"));
  EXPECT_THAT(parse_disk_tier("/a:1M", megabytes).error().message, HasSubstr("1.0 MiB are too few"));
}

class DiskTierTest : public ::testing::Test {
 protected:
  void open() {
    auto tier = open_disk_tier(options_, listener_);
    if (!tier && tier.error().message.find("this build has no disk cache") != std::string::npos) {
      GTEST_SKIP() << tier.error().message;
    }
    ASSERT_TRUE(tier) << tier.error().message;
    tier_ = std::move(*tier);
  }
  std::string error_of(const std::filesystem::path& path) {
    DiskTierOptions options = options_;
    options.path = path;
    const auto tier = open_disk_tier(options, listener_);
    return tier ? "opened" : tier.error().message;
  }
  Client client() { return {*tier_, listener_}; }

  TemporaryDirectory directory_;
  DiskTierOptions options_ = small_options(directory_.path() / "cache");
  WaitingListener listener_;
  std::unique_ptr<Tier> tier_;
};

TEST_F(DiskTierTest, ReturnsWhatWasPut) {
  ASSERT_NO_FATAL_FAILURE(open());
  for (const std::size_t count : {0UL, 1UL, 4095UL, 100'000UL, 2'000'000UL}) {
    EXPECT_EQ(client().find(count), TierOutcome::Missing);
    EXPECT_EQ(client().get(count, count), TierOutcome::Missing);
    EXPECT_EQ(client().put(count, count), TierOutcome::Done);
    EXPECT_EQ(client().find(count), TierOutcome::Done);
    EXPECT_EQ(client().get(count, count), TierOutcome::Done);
  }
  const TierUsage usage = tier_->usage();
  EXPECT_EQ(usage.puts, 5);
  EXPECT_EQ(usage.gets, 10);
  EXPECT_EQ(usage.hits, 5);
  EXPECT_EQ(usage.objects, 5);
  EXPECT_TRUE(usage.working) << usage.problem;
  EXPECT_EQ(tier_->kind(), TierKind::Disk);
}

// Bytes that this process has read from files, whether or not they were in the page cache.
std::uint64_t bytes_read_so_far() {
  std::ifstream io("/proc/self/io");
  std::string name;
  std::uint64_t value = 0;
  while (io >> name >> value) {
    if (name == "rchar:") return value;
  }
  return 0;
}

// Files that were written later have large checkpoints in front. A page of an earlier file is not in them.
TEST_F(DiskTierTest, ReadsAPageWithoutTheCheckpointsOfOtherFiles) {
  constexpr std::size_t kPage = 16 << 10, kCheckpoint = 1 << 20;
  constexpr std::uint64_t kPages = 40, kCheckpoints = 16;
  ASSERT_NO_FATAL_FAILURE(open());
  for (std::uint64_t i = 0; i < kPages; ++i) EXPECT_EQ(client().put(i, kPage), TierOutcome::Done);
  for (std::uint64_t i = 0; i < kCheckpoints; ++i) {
    std::this_thread::sleep_for(3 * options_.flush_interval);  // the next one goes to another file
    EXPECT_EQ(client().put(kPages + i, kCheckpoint), TierOutcome::Done);
  }
  tier_.reset();
  ASSERT_NO_FATAL_FAILURE(open());
  const std::uint64_t before = bytes_read_so_far();
  for (std::uint64_t i = 0; i < kPages; ++i) EXPECT_EQ(client().get(i, kPage), TierOutcome::Done);
  EXPECT_LT(bytes_read_so_far() - before, 4 * kPages * kPage);
}

TEST_F(DiskTierTest, WritesAnObjectOnce) {
  ASSERT_NO_FATAL_FAILURE(open());
  for (int i = 0; i < 5; ++i) EXPECT_EQ(client().put(1, kBytes), TierOutcome::Done);
  EXPECT_EQ(tier_->usage().bytes_written, kBytes);
  EXPECT_EQ(tier_->usage().puts, 5);
}

TEST_F(DiskTierTest, RefusesAnObjectOfAnotherLengthAndForgetsIt) {
  ASSERT_NO_FATAL_FAILURE(open());
  ASSERT_EQ(client().put(1, kBytes), TierOutcome::Done);
  EXPECT_EQ(client().get(1, kBytes - 1), TierOutcome::Damaged);
  EXPECT_EQ(tier_->usage().damaged[static_cast<std::size_t>(ObjectFault::OtherLength)], 1);
  EXPECT_EQ(client().get(1, kBytes), TierOutcome::Missing);
}

TEST_F(DiskTierTest, FailsAnObjectThatIsTooLargeAndGoesOn) {
  std::mutex mutex;
  std::string log;
  options_.log = [&](const std::string& line) {
    const std::lock_guard lock(mutex);
    log += line + "\n";
  };
  ASSERT_NO_FATAL_FAILURE(open());
  EXPECT_EQ(client().put(1, options_.limit_bytes / 16), TierOutcome::Done);
  EXPECT_TRUE(tier_->usage().working);
  // Told once, and in the figures as long as the tier is there.
  for (std::uint64_t i = 2; i < 5; ++i) {
    EXPECT_EQ(client().put(i, options_.limit_bytes / 8), TierOutcome::Failed);
    EXPECT_EQ(client().put(10 + i, kBytes), TierOutcome::Done);
  }
  EXPECT_EQ(tier_->usage().failed, 3);
  EXPECT_FALSE(tier_->usage().working);
  const std::string problem = options_.path.string() +
                              ": pages or states of 8.0 MiB are not kept: with this limit no object may have more than "
                              "4.0 MiB. It needs 128.0 MiB";
  EXPECT_EQ(tier_->usage().problem, problem);
  tier_.reset();
  EXPECT_EQ(log, "disk cache " + problem + "\n");
}

TEST_F(DiskTierTest, HasItsObjectsAfterARestart) {
  ASSERT_NO_FATAL_FAILURE(open());
  for (std::uint64_t i = 0; i < 50; ++i) ASSERT_EQ(client().put(i, kBytes + i), TierOutcome::Done);
  for (int restart = 0; restart < 3; ++restart) {
    tier_.reset();
    ASSERT_NO_FATAL_FAILURE(open());
    EXPECT_EQ(tier_->usage().objects, 50);
    for (std::uint64_t i = 0; i < 50; ++i) EXPECT_EQ(client().get(i, kBytes + i), TierOutcome::Done) << i;
  }
}

// More at once than the write buffers hold, while they are flushed all the time.
TEST_F(DiskTierTest, LosesNothingOfABurstOfLargeObjects) {
  options_.limit_bytes = std::uint64_t{8} << 30;
  options_.flush_interval = milliseconds(1);
  options_.write_buffer_bytes = 16 << 20;
  ASSERT_NO_FATAL_FAILURE(open());
  constexpr std::size_t kState = 12 << 20;
  constexpr std::uint64_t kMany = 24;
  std::vector<std::vector<std::byte>> objects;
  for (std::uint64_t i = 0; i < kMany; ++i) objects.push_back(bytes_of_object(i, kState));
  std::vector<TierJob> jobs;
  for (std::uint64_t i = 0; i < kMany; ++i) {
    jobs.push_back({TierJob::Kind::Put, key_of(i), objects[i].data(), kState, 1'000'000 + i});
  }
  ASSERT_EQ(tier_->submit(jobs), kMany);
  for (const TierJob& job : jobs) EXPECT_EQ(listener_.wait(job.ticket), TierOutcome::Done);
  EXPECT_TRUE(tier_->usage().working) << tier_->usage().problem;
  tier_.reset();
  ASSERT_NO_FATAL_FAILURE(open());
  for (std::uint64_t i = 0; i < kMany; ++i) EXPECT_EQ(client().get(i, kState), TierOutcome::Done) << i;
}

TEST_F(DiskTierTest, AnswersEveryJobOnceAndTheRestWithFailedWhenItEnds) {
  ASSERT_NO_FATAL_FAILURE(open());
  std::vector<std::vector<std::byte>> memory;
  std::vector<TierJob> jobs;
  for (std::uint64_t i = 0; i < 300; ++i) {
    memory.push_back(bytes_of_object(i, kBytes));
    jobs.push_back({i % 3 == 2 ? TierJob::Kind::Get : TierJob::Kind::Put, key_of(i), memory.back().data(), kBytes, i});
  }
  const std::size_t taken = tier_->submit(jobs);
  EXPECT_EQ(taken, 300);
  tier_.reset();
  EXPECT_EQ(listener_.answered(), taken);
  EXPECT_FALSE(listener_.any_twice());
}

TEST_F(DiskTierTest, TakesNoMoreJobsThanItsQueueHas) {
  options_.queue = 8;
  ASSERT_NO_FATAL_FAILURE(open());
  std::vector<std::byte> memory(2'000'000);
  std::vector<TierJob> jobs;
  for (std::uint64_t i = 0; i < 100; ++i) {
    jobs.push_back({TierJob::Kind::Put, key_of(i), memory.data(), memory.size(), i});
  }
  const std::size_t taken = tier_->submit(jobs);
  EXPECT_LT(taken, 100);
  EXPECT_GE(taken, 8);
  EXPECT_EQ(tier_->usage().refused, 100 - taken);
  tier_.reset();  // the memory is the tier's until its jobs have ended
}

// The limit holds at any moment: another thread counts the files all the time. Sizes, hits and restarts are random.
TEST_F(DiskTierTest, StaysWithinItsLimitUnderRandomPuts) {
  std::atomic<bool> stop = false;
  std::atomic<std::uint64_t> most = 0;
  std::thread counter([&] {
    while (!stop) most = std::max<std::uint64_t>(most, bytes_below(options_.path));
  });
  std::mt19937_64 random(1);
  std::map<std::uint64_t, std::size_t> sizes;
  std::uint64_t next = 0;
  std::size_t hits = 0;
  for (int round = 0; round < 4; ++round) {
    open();
    if (!tier_) break;
    for (int i = 0; i < 250; ++i) {
      sizes[next] = 1 + random() % (round == 1 ? 20'000 : 400'000);
      ASSERT_EQ(client().put(next, sizes[next]), TierOutcome::Done) << tier_->usage().problem;
      ++next;
      const std::uint64_t asked = random() % next;
      hits += client().get(asked, sizes[asked]) == TierOutcome::Done;
    }
    EXPECT_LE(bytes_below(options_.path), options_.limit_bytes);
    if (round > 2) {
      EXPECT_GT(tier_->usage().evicted, 0);
    }
    EXPECT_EQ(tier_->usage().damaged, (std::array<std::uint64_t, 6>{}));
    tier_.reset();
  }
  stop = true;
  counter.join();
  EXPECT_LE(most, options_.limit_bytes);
  EXPECT_GT(most, options_.limit_bytes * 3 / 4);  // and the room is used
  EXPECT_GT(hits, 100);
}

TEST_F(DiskTierTest, KeepsWhatIsHitAgainAndEvictsTheOldest) {
  ASSERT_NO_FATAL_FAILURE(open());
  // Three times the limit passes through. Ten objects are asked for all the time.
  const std::uint64_t count = 3 * options_.limit_bytes / kBytes;
  for (std::uint64_t i = 0; i < count; ++i) {
    ASSERT_EQ(client().put(i, kBytes), TierOutcome::Done);
    if (i >= 100 && i % 4 == 0) client().get(i / 4 % 10 * 10, kBytes);
  }
  std::size_t hot = 0, old = 0, recent = 0;
  for (std::uint64_t i = 0; i < 100; ++i) (i % 10 == 0 ? hot : old) += client().find(i) == TierOutcome::Done;
  for (std::uint64_t i = count - 100; i < count; ++i) recent += client().find(i) == TierOutcome::Done;
  EXPECT_EQ(hot, 10);
  EXPECT_EQ(old, 0);
  EXPECT_EQ(recent, 100);
}

TEST_F(DiskTierTest, KnowsWhatItHasEvicted) {
  ASSERT_NO_FATAL_FAILURE(open());
  const std::uint64_t count = 2 * options_.limit_bytes / kBytes;
  for (std::uint64_t i = 0; i < count; ++i) ASSERT_EQ(client().put(i, kBytes), TierOutcome::Done);
  const auto says_lost = [&](std::uint64_t i) {  // false also if the index is locked at that moment
    for (int attempt = 0; attempt < 100; ++attempt) {
      if (tier_->has_lost(key_of(i))) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  };
  EXPECT_TRUE(says_lost(0));
  EXPECT_FALSE(tier_->has_lost(key_of(count - 1)));
}

TEST_F(DiskTierTest, RemembersHitsOverARestart) {
  ASSERT_NO_FATAL_FAILURE(open());
  for (std::uint64_t i = 0; i < 20; ++i) ASSERT_EQ(client().put(i, kBytes), TierOutcome::Done);
  for (std::uint64_t i = 0; i < 3; ++i) ASSERT_EQ(client().get(i, kBytes), TierOutcome::Done);
  tier_.reset();
  ASSERT_NO_FATAL_FAILURE(open());
  // A bit more than the limit passes through: one generation after the other is dropped once.
  const std::uint64_t count = options_.limit_bytes / kBytes + 20;
  for (std::uint64_t i = 100; i < 100 + count; ++i) ASSERT_EQ(client().put(i, kBytes), TierOutcome::Done);
  for (std::uint64_t i = 0; i < 3; ++i) EXPECT_EQ(client().find(i), TierOutcome::Done) << i;
  EXPECT_EQ(client().find(3), TierOutcome::Missing);
}

TEST_F(DiskTierTest, HasNoMoreObjectsThanItsIndexMay) {
  options_.max_objects = 640;
  ASSERT_NO_FATAL_FAILURE(open());
  for (std::uint64_t i = 0; i < 3000; ++i) ASSERT_NE(client().put(i, 20'000), TierOutcome::Missing);
  EXPECT_LE(tier_->usage().objects, 640);
  EXPECT_EQ(client().find(2999), TierOutcome::Done);
}

TEST_F(DiskTierTest, NamesADirectoryThatItCannotUse) {
  ASSERT_NO_FATAL_FAILURE(open());
  EXPECT_EQ(error_of(options_.path), options_.path.string() + ": is in use by another server");

  const auto file = directory_.path() / "file";
  std::ofstream(file) << "text";
  EXPECT_EQ(error_of(file), file.string() + ": is not a directory");

  const auto other = directory_.path() / "other";
  std::filesystem::create_directory(other);
  std::ofstream(other / "thesis.txt") << "text";
  EXPECT_THAT(error_of(other),
              HasSubstr(other.string() + ": is not empty and no cache of quire ('thesis.txt' is in it)"));
  EXPECT_TRUE(std::filesystem::exists(other / "thesis.txt"));

  const auto nowhere = directory_.path() / "no" / "where";
  EXPECT_EQ(error_of(nowhere), nowhere.string() + ": cannot be made: No such file or directory");
}

TEST_F(DiskTierTest, NamesADirectoryThatItMayNotWrite) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may write everywhere";
  const auto closed = directory_.path() / "closed";
  std::filesystem::create_directory(closed);
  std::filesystem::permissions(closed, std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
  EXPECT_EQ(error_of(closed), closed.string() + ": cannot be written: Permission denied");
}

TEST(DiskIndex, IgnoresADamagedListOfHits) {
  DiskIndex index;
  index.put(7, {.number = 1, .bytes = 10, .hits = 3, .accessed = 9});
  auto saved = index.save_accesses();
  for (std::size_t i = 0; i < saved.size(); ++i) {
    auto changed = saved;
    changed[i] ^= std::byte{4};
    EXPECT_FALSE(index.load_accesses(changed)) << i;
  }
  EXPECT_FALSE(index.load_accesses(std::span(saved).first(saved.size() - 1)));
  index.put(7, {.number = 1, .bytes = 10});
  EXPECT_TRUE(index.load_accesses(saved));
  EXPECT_EQ(index.find(7)->hits, 3);
  EXPECT_EQ(index.find(7)->accessed, 9);
}

TEST(DiskIndex, KeepsWhatHasMostHitsWithinTheBytes) {
  DiskIndex index;
  index.put(1, {.number = 10, .bytes = 100, .hits = 0, .accessed = 50});
  index.put(2, {.number = 11, .bytes = 100, .hits = 1, .accessed = 10});
  index.put(3, {.number = 12, .bytes = 100, .hits = 5, .accessed = 1});
  index.put(4, {.number = 13, .bytes = 100, .hits = 1, .accessed = 20});
  index.put(5, {.number = 99, .bytes = 100, .hits = 9});  // of a later generation
  const std::uint64_t hashes[] = {1, 2, 3, 4, 5};
  EXPECT_EQ(index.worth_keeping(hashes, 10, 20, 200), (std::vector<std::uint64_t>{3, 4}));
  EXPECT_EQ(index.worth_keeping(hashes, 10, 20, 1000), (std::vector<std::uint64_t>{3, 4, 2}));
  EXPECT_TRUE(index.worth_keeping(hashes, 10, 20, 99).empty());
}

TEST(DiskSlot, AJobThatIsHeldWhenMemoryRunsOutCanStillBeAnswered) {
  Slot slot;
  slot.begin(2, Slot::Clock::now());
  std::array<TierJob, Slot::kBatch> late_jobs;
  bool late = false;
  try {
    const Slot::Hold hold(slot, 0);
    ASSERT_TRUE(hold);
    EXPECT_FALSE(slot.finish(0)) << "its memory is in use";
    EXPECT_EQ(slot.take_late(Slot::Clock::now(), late_jobs, late), 1u) << "the other one";
    EXPECT_FALSE(Slot::Hold(slot, 1)) << "the watchdog has answered it";
    throw std::bad_alloc();
  } catch (const std::bad_alloc&) {
  }
  EXPECT_TRUE(slot.finish(0));
  EXPECT_FALSE(slot.finish(0)) << "once";
  EXPECT_FALSE(slot.finish(1));
}

// The index is in memory: no thread has to be woken to know whether an object is there.
TEST_F(DiskTierTest, QuestionsAreAnsweredAtOnce) {
  open();
  ASSERT_EQ(client().put(1, kBytes), TierOutcome::Done);
  int at_once = 0;
  for (std::uint64_t i = 0; i < 20; ++i) {
    const std::size_t before = listener_.answered();
    const TierJob job{TierJob::Kind::Find, key_of(1 + i % 2), nullptr, 0, 5'000'000 + i};
    ASSERT_EQ(tier_->submit({&job, 1}), 1u);
    at_once += listener_.answered() > before;
    EXPECT_EQ(listener_.wait(job.ticket), i % 2 == 0 ? TierOutcome::Done : TierOutcome::Missing);
  }
  EXPECT_GT(at_once, 10) << "the others found the index locked";
  EXPECT_EQ(tier_->usage().finds, 20u);
  EXPECT_FALSE(listener_.any_twice());
}

TEST_F(DiskTierTest, ANoteIsThereForTheNextServer) {
  open();
  EXPECT_EQ(tier_->kept_note(), "");
  tier_->keep_note("first");
  EXPECT_EQ(tier_->kept_note(), "first");
  const fs::path file = options_.path / "note";
  ASSERT_TRUE(within(seconds(5), [&] { return fs::exists(file); })) << "also if this process is killed";
  tier_->keep_note("a longer line");
  tier_.reset();
  open();
  EXPECT_EQ(tier_->kept_note(), "a longer line");
  tier_.reset();
  // A file of another kind is a short text that nobody understands.
  std::ofstream(file, std::ios::binary) << std::string(1 << 20, 'x');
  open();
  EXPECT_LE(tier_->kept_note().size(), 1u << 12);
  EXPECT_EQ(client().put(1, 1000), TierOutcome::Done);
}

// By their nice value, which others can read: the threads that write, the keeper's, and RocksDB's.
TEST_F(DiskTierTest, ThreadsThatWriteHaveALowerPriorityThanThoseThatRead) {
  const auto nice_of_threads = [] {
    std::vector<int> all;
    for (const auto& task : fs::directory_iterator("/proc/self/task")) {
      errno = 0;
      const int nice = ::getpriority(PRIO_PROCESS, static_cast<id_t>(std::stoul(task.path().filename().string())));
      if (errno == 0) all.push_back(nice);
    }
    return all;
  };
  const int usual = ::getpriority(PRIO_PROCESS, 0);
  if (usual > 18) GTEST_SKIP() << "there is no lower priority than that of this process";
  options_.threads = 4;
  options_.low_priority = true;
  const auto before = nice_of_threads().size();
  open();
  const auto lower = [&] { return std::ranges::count_if(nice_of_threads(), [&](int nice) { return nice > usual; }); };
  EXPECT_TRUE(within(seconds(5), [&] { return lower() >= 3; })) << "two writers and the keeper";
  const auto all = nice_of_threads();
  EXPECT_GE(all.size() - before, 4u + 2u + 2u) << "readers, writers, keeper and watchdog";
  EXPECT_GE(std::ranges::count(all, usual), 1 + 4 + 1) << "this one, the readers and the watchdog";
}

}  // namespace
}  // namespace quire::tiers
