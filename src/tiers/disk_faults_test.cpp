// What can happen to a disk: full, read-only, gone, slow, damaged files. The tier never returns a wrong object, answers
// soon, says what is wrong, and works again when the disk does.
#include <fstream>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rocksdb/env.h>
#include <rocksdb/file_system.h>
#include <sys/mount.h>
#include <unistd.h>

#include "quire/tiers/disk_tier_internal.h"
#include "quire/tiers/disk_tier_testing.h"

namespace quire::tiers {
namespace {

namespace fs = std::filesystem;
using namespace testing;
using rocksdb::IOStatus;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr std::size_t kBytes = 100'000;

// A disk whose faults are switched on and off.
class FaultyDisk : public rocksdb::FileSystemWrapper {
 public:
  enum class Fault { None, Full, ReadOnly, ReadError, Hangs, WritesHang };
  std::atomic<Fault> fault = Fault::None;

  FaultyDisk() : FileSystemWrapper(rocksdb::FileSystem::Default()) {}
  const char* Name() const override { return "FaultyDisk"; }

  IOStatus writing() const {
    if (fault == Fault::Full) return IOStatus::NoSpace("No space left on device");
    if (fault == Fault::ReadOnly) return IOStatus::IOError("Read-only file system");
    while (fault == Fault::WritesHang) std::this_thread::sleep_for(milliseconds(1));
    hang();
    return IOStatus::OK();
  }
  IOStatus reading() const {
    if (fault == Fault::ReadError) return IOStatus::IOError("Input/output error");
    hang();
    return IOStatus::OK();
  }

  IOStatus NewWritableFile(const std::string& name, const rocksdb::FileOptions& options,
                           std::unique_ptr<rocksdb::FSWritableFile>* file, rocksdb::IODebugContext* debug) override {
    if (const IOStatus status = writing(); !status.ok()) return status;
    std::unique_ptr<rocksdb::FSWritableFile> inner;
    const IOStatus status = target()->NewWritableFile(name, options, &inner, debug);
    if (status.ok()) *file = std::make_unique<Written>(*this, std::move(inner));
    return status;
  }
  IOStatus NewRandomAccessFile(const std::string& name, const rocksdb::FileOptions& options,
                               std::unique_ptr<rocksdb::FSRandomAccessFile>* file,
                               rocksdb::IODebugContext* debug) override {
    if (const IOStatus status = reading(); !status.ok()) return status;
    std::unique_ptr<rocksdb::FSRandomAccessFile> inner;
    const IOStatus status = target()->NewRandomAccessFile(name, options, &inner, debug);
    if (status.ok()) *file = std::make_unique<ReadAt>(*this, std::move(inner));
    return status;
  }

 private:
  void hang() const {
    while (fault == Fault::Hangs) std::this_thread::sleep_for(milliseconds(1));
  }

  class Written : public rocksdb::FSWritableFileOwnerWrapper {
   public:
    Written(const FaultyDisk& disk, std::unique_ptr<rocksdb::FSWritableFile> inner)
        : FSWritableFileOwnerWrapper(std::move(inner)), disk_(disk) {}
    using FSWritableFileOwnerWrapper::Append;
    using FSWritableFileOwnerWrapper::PositionedAppend;
    IOStatus Append(const rocksdb::Slice& data, const rocksdb::IOOptions& options,
                    rocksdb::IODebugContext* debug) override {
      if (const IOStatus status = disk_.writing(); !status.ok()) return status;
      return FSWritableFileOwnerWrapper::Append(data, options, debug);
    }
    IOStatus PositionedAppend(const rocksdb::Slice& data, std::uint64_t offset, const rocksdb::IOOptions& options,
                              rocksdb::IODebugContext* debug) override {
      if (const IOStatus status = disk_.writing(); !status.ok()) return status;
      return FSWritableFileOwnerWrapper::PositionedAppend(data, offset, options, debug);
    }

   private:
    const FaultyDisk& disk_;
  };
  class ReadAt : public rocksdb::FSRandomAccessFileOwnerWrapper {
   public:
    ReadAt(const FaultyDisk& disk, std::unique_ptr<rocksdb::FSRandomAccessFile> inner)
        : FSRandomAccessFileOwnerWrapper(std::move(inner)), disk_(disk) {}
    IOStatus Read(std::uint64_t offset, std::size_t count, const rocksdb::IOOptions& options, rocksdb::Slice* result,
                  char* scratch, rocksdb::IODebugContext* debug) const override {
      if (const IOStatus status = disk_.reading(); !status.ok()) return status;
      return FSRandomAccessFileOwnerWrapper::Read(offset, count, options, result, scratch, debug);
    }

   private:
    const FaultyDisk& disk_;
  };
};

class DiskFaults : public ::testing::Test {
 protected:
  void open() {
    options_.log = [this](const std::string& line) {
      const std::lock_guard lock(log_mutex_);
      log_ += line + "\n";
    };
    auto tier = open_disk_tier_on(env_.get(), options_, listener_);
    ASSERT_TRUE(tier) << tier.error().message;
    tier_ = std::move(*tier);
  }
  Client client() { return {*tier_, listener_}; }
  void fill(std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) ASSERT_EQ(client().put(i, kBytes), TierOutcome::Done) << i;
  }
  std::uint64_t hits(std::uint64_t count) {
    std::uint64_t found = 0;
    for (std::uint64_t i = 0; i < count; ++i) found += client().get(i, kBytes) == TierOutcome::Done;
    return found;
  }
  std::uint64_t damaged() const {
    std::uint64_t sum = 0;
    for (const std::uint64_t count : tier_->usage().damaged) sum += count;
    return sum;
  }
  std::string log() {
    const std::lock_guard lock(log_mutex_);
    return log_;
  }
  std::vector<fs::path> files(const std::string& part) const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(options_.path / "db")) {
      if (entry.path().filename().string().find(part) != std::string::npos) found.push_back(entry.path());
    }
    return found;
  }
  // Puts new objects until the tier notices the fault.
  bool notices() {
    return within(seconds(10), [&] {
      client().put(next_++, kBytes);
      return !tier_->usage().working;
    });
  }
  // The tier writes meanwhile.
  static void remove(const fs::path& path) {
    std::error_code error;
    do {
      fs::remove_all(path, error);
    } while (error);
  }
  // New objects are stored again, and are there.
  bool recovers() {
    return within(seconds(20), [&] {
      const std::uint64_t number = next_++;
      return client().put(number, kBytes) == TierOutcome::Done && client().get(number, kBytes) == TierOutcome::Done &&
             tier_->usage().working;
    });
  }

  TemporaryDirectory directory_;
  DiskTierOptions options_ = small_options(directory_.path() / "cache");
  std::shared_ptr<FaultyDisk> disk_ = std::make_shared<FaultyDisk>();
  std::unique_ptr<rocksdb::Env> env_ = rocksdb::NewCompositeEnv(disk_);
  std::mutex log_mutex_;
  std::string log_;
  WaitingListener listener_;
  std::uint64_t next_ = 10'000;
  std::unique_ptr<Tier> tier_;  // last: its threads use the others
};

TEST_F(DiskFaults, AFullDiskFailsPutsAndStillAnswersGets) {
  open();
  fill(50);
  ASSERT_TRUE(within(seconds(5), [&] { return tier_->usage().bytes > 50 * kBytes; }));  // all in files
  std::this_thread::sleep_for(milliseconds(100));
  disk_->fault = FaultyDisk::Fault::Full;
  ASSERT_TRUE(notices());
  EXPECT_EQ(tier_->usage().problem, options_.path.string() + ": the disk is full");
  EXPECT_EQ(client().put(next_++, kBytes), TierOutcome::Failed);
  EXPECT_EQ(hits(50), 50) << log();
  disk_->fault = FaultyDisk::Fault::None;
  EXPECT_TRUE(recovers()) << tier_->usage().problem;
  EXPECT_EQ(hits(50), 50) << log();
  EXPECT_THAT(log(), HasSubstr("the disk is full"));
  EXPECT_THAT(log(), HasSubstr("works again"));
}

TEST_F(DiskFaults, AReadOnlyDiskFailsAndRecovers) {
  open();
  fill(50);
  disk_->fault = FaultyDisk::Fault::ReadOnly;
  ASSERT_TRUE(notices());
  EXPECT_THAT(tier_->usage().problem, HasSubstr("Read-only file system"));
  disk_->fault = FaultyDisk::Fault::None;
  EXPECT_TRUE(recovers()) << tier_->usage().problem;
}

TEST_F(DiskFaults, AReadErrorFailsAndRecovers) {
  open();
  fill(50);
  // All in files: what is in a write buffer is lost when the database is closed.
  ASSERT_TRUE(within(seconds(60), [&] { return tier_->usage().bytes > 50 * kBytes; }));
  disk_->fault = FaultyDisk::Fault::ReadError;
  EXPECT_TRUE(within(seconds(10), [&] {
    hits(50);
    return !tier_->usage().working;
  }));
  EXPECT_THAT(tier_->usage().problem, HasSubstr("Input/output error"));
  EXPECT_EQ(client().find(1), TierOutcome::Failed);
  disk_->fault = FaultyDisk::Fault::None;
  EXPECT_TRUE(recovers()) << tier_->usage().problem;
  EXPECT_EQ(hits(50), 50);  // it was opened again and has read the list, so what failed is there
}

TEST_F(DiskFaults, ADiskThatHangsFailsJobsAfterTheTimeoutAndSubmitNeverWaits) {
  options_.timeout = milliseconds(300);
  open();
  fill(20);
  std::this_thread::sleep_for(milliseconds(200));
  disk_->fault = FaultyDisk::Fault::Hangs;
  std::vector<std::vector<std::byte>> memory;
  std::vector<TierJob> jobs;
  for (std::uint64_t i = 0; i < 60; ++i) {
    memory.emplace_back(kBytes);
    jobs.push_back({TierJob::Kind::Get, key_of(i % 20), memory.back().data(), kBytes, 1'000'000 + i});
  }
  const auto began = std::chrono::steady_clock::now();
  ASSERT_EQ(tier_->submit(jobs), jobs.size());
  EXPECT_LT(std::chrono::steady_clock::now() - began, milliseconds(100));
  for (const TierJob& job : jobs) EXPECT_EQ(listener_.wait(job.ticket), TierOutcome::Failed);
  EXPECT_LT(std::chrono::steady_clock::now() - began, seconds(3));
  EXPECT_FALSE(tier_->usage().working);
  EXPECT_THAT(tier_->usage().problem, HasSubstr("does not answer within 0.3 s"));
  disk_->fault = FaultyDisk::Fault::None;
  EXPECT_TRUE(recovers()) << tier_->usage().problem;
  EXPECT_FALSE(listener_.any_twice());
}

TEST_F(DiskFaults, ReadsDoNotWaitBehindWhatADiskDoesNotTake) {
  options_.timeout = seconds(15);  // a put waits for room for a third of it
  open();
  fill(20);
  ASSERT_TRUE(within(seconds(5), [&] { return tier_->usage().bytes > 20 * kBytes; }));  // all in files
  std::this_thread::sleep_for(milliseconds(200));
  disk_->fault = FaultyDisk::Fault::WritesHang;
  std::vector<std::vector<std::byte>> memory;
  std::vector<TierJob> jobs;
  for (std::uint64_t i = 0; i < 200; ++i) {  // more than the write buffers take
    memory.push_back(bytes_of_object(1000 + i, kBytes));
    jobs.push_back({TierJob::Kind::Put, key_of(1000 + i), memory.back().data(), kBytes, 2'000'000 + i});
  }
  ASSERT_EQ(tier_->submit(jobs), jobs.size());
  const auto began = std::chrono::steady_clock::now();
  EXPECT_EQ(hits(20), 20);
  EXPECT_LT(std::chrono::steady_clock::now() - began, seconds(3));
  EXPECT_LT(listener_.answered(), 20 + 20 + 200) << "writes were under way";
  disk_->fault = FaultyDisk::Fault::None;
  for (const TierJob& job : jobs) (void)listener_.wait(job.ticket);
  EXPECT_TRUE(recovers()) << tier_->usage().problem;
}

TEST_F(DiskFaults, ADirectoryThatIsRemovedIsMadeAnew) {
  open();
  fill(50);
  remove(options_.path);
  ASSERT_TRUE(notices());
  EXPECT_TRUE(recovers()) << tier_->usage().problem;
  EXPECT_TRUE(fs::exists(options_.path / "db" / "CURRENT"));
}

TEST_F(DiskFaults, ADirectoryWhoseParentIsGoneFailsUntilItIsBack) {
  fs::create_directory(directory_.path() / "mount");
  options_.path = directory_.path() / "mount" / "cache";
  open();
  fill(10);
  remove(directory_.path() / "mount");
  ASSERT_TRUE(notices());
  ASSERT_TRUE(within(seconds(5), [&] {
    return tier_->usage().problem.find("cannot be made: No such file") != std::string::npos;
  })) << tier_->usage().problem;
  EXPECT_EQ(client().get(1, kBytes), TierOutcome::Failed);
  EXPECT_EQ(client().put(1, kBytes), TierOutcome::Failed);
  fs::create_directory(directory_.path() / "mount");
  EXPECT_TRUE(recovers()) << tier_->usage().problem;
}

void flip(const fs::path& path, std::mt19937_64& random, int bits) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  const auto size = fs::file_size(path);
  for (int i = 0; i < bits && size > 0; ++i) {
    const auto at = static_cast<std::streamoff>(random() % size);
    file.seekg(at);
    const int byte = file.get();
    file.seekp(at);
    file.put(static_cast<char>(byte ^ (1 << random() % 8)));
  }
}

// get() ends the program if an object has wrong bytes.
TEST_F(DiskFaults, FlippedBitsCostTheObjectsTheyAreInAndNothingElse) {
  std::mt19937_64 random(3);
  open();
  fill(100);
  tier_.reset();
  open();
  // While it is open: the object is Damaged, and then missing.
  for (const fs::path& file : files(".sst")) flip(file, random, 1);
  const std::uint64_t found = hits(100);
  EXPECT_GT(damaged(), 0);
  EXPECT_EQ(found + damaged(), 100);
  EXPECT_EQ(hits(100), found);
  EXPECT_TRUE(recovers()) << tier_->usage().problem;
}

TEST_F(DiskFaults, DamagedFilesAreNeverWrongObjectsWhateverIsDamaged) {
  std::mt19937_64 random(4);
  std::uint64_t survived = 0, begun_anew = 0;
  for (int round = 0; round < 12; ++round) {
    open();
    fill(60);
    tier_.reset();
    const char* parts[] = {".sst", "MANIFEST", "CURRENT", "OPTIONS"};
    for (const fs::path& file : files(parts[round % 4])) {
      if (round / 4 == 0) flip(file, random, 20);
      if (round / 4 == 1) fs::resize_file(file, fs::file_size(file) * (random() % 100) / 100);
      if (round / 4 == 2 && random() % 2 == 0) fs::remove(file);
    }
    open();
    const std::uint64_t found = hits(60);
    survived += found;
    begun_anew += log().find("begun anew") != std::string::npos;
    EXPECT_TRUE(recovers()) << parts[round % 4] << ": " << tier_->usage().problem;
    EXPECT_LE(bytes_below(options_.path), options_.limit_bytes);
    tier_.reset();
    log_.clear();
  }
  EXPECT_GT(survived, 0);
  EXPECT_GT(begun_anew, 0);
}

TEST_F(DiskFaults, ATruncatedFileCostsItsObjectsOnly) {
  open();
  fill(200);
  tier_.reset();
  const auto tables = files(".sst");
  ASSERT_GT(tables.size(), 4);
  fs::resize_file(tables[0], fs::file_size(tables[0]) / 2);
  open();
  EXPECT_GT(hits(200), 100);
  EXPECT_THAT(log(), HasSubstr("are damaged"));
}

// A real file system that is full: by others, and because it is smaller than the limit.
class SmallFileSystem : public DiskFaults {
 protected:
  void SetUp() override {
    mount_ = directory_.path() / "small";
    fs::create_directory(mount_);
    if (::mount("quire-test", mount_.c_str(), "tmpfs", 0, "size=48m") != 0) {
      GTEST_SKIP() << "cannot mount a small file system: " << std::strerror(errno);
    }
    mounted_ = true;
    options_.path = mount_ / "cache";
    options_.keep_free_bytes = 8 << 20;
  }
  ~SmallFileSystem() override {
    tier_.reset();
    if (mounted_) ::umount2(mount_.c_str(), MNT_DETACH);
  }
  fs::path mount_;
  bool mounted_ = false;
};

TEST_F(SmallFileSystem, IsUsedUpToWhatIsLeftFree) {
  open();
  std::uint64_t stored = 0;
  for (std::uint64_t i = 0; i < 800; ++i) {
    stored += client().put(i, kBytes) == TierOutcome::Done;
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_GT(stored, 700);
  EXPECT_GT(hits(800), 100);
  EXPECT_GT(fs::space(mount_).available, 4 << 20);
}

TEST_F(SmallFileSystem, ShrinksWhenOthersFillItAndRecovers) {
  open();
  fill(100);
  {
    std::ofstream other(mount_ / "other", std::ios::binary);
    const std::vector<char> megabyte(1 << 20);
    while (other.write(megabyte.data(), static_cast<std::streamsize>(megabyte.size())).flush()) {
    }
  }
  ASSERT_TRUE(notices());
  EXPECT_EQ(client().put(next_++, kBytes), TierOutcome::Failed);
  fs::remove(mount_ / "other");
  EXPECT_TRUE(recovers()) << tier_->usage().problem;
}

}  // namespace
}  // namespace quire::tiers
