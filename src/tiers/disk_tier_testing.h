// What tests and benchmarks of the disk tier share: a directory of their own, objects whose bytes follow from a number,
// and a listener that waits for answers.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "quire/tiers/disk_directory.h"
#include "quire/tiers/disk_tier.h"

#ifdef __SANITIZE_THREAD__
// Debian's RocksDB is not built for the thread sanitizer, which therefore does not see how its threads agree.
// NOLINTNEXTLINE(bugprone-reserved-identifier)
extern "C" const char* __tsan_default_suppressions() { return "race:rocksdb::\n"; }
#endif

namespace quire::tiers::testing {

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "quire-disk-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~TemporaryDirectory() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline ObjectKey key_of(std::uint64_t number) {
  ObjectKey key;
  std::uint64_t mixed = (number + 1) * 0x9e3779b97f4a7c15;
  for (std::size_t i = 0; i < key.name.size(); ++i) {
    key.name[i] = static_cast<std::uint8_t>(mixed >> 56);
    mixed = mixed * 6364136223846793005ULL + 1442695040888963407ULL;
  }
  key.cls = number % 3 == 0 ? ObjectKey::kCheckpoint : static_cast<std::uint8_t>(number % 3);
  return key;
}

inline std::vector<std::byte> bytes_of_object(std::uint64_t number, std::size_t count) {
  std::vector<std::byte> bytes(count);
  std::uint64_t state = number * 2654435761 + 88172645463325252ULL;
  for (std::size_t i = 0; i < count; i += 8) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    std::memcpy(bytes.data() + i, &state, std::min<std::size_t>(8, count - i));
  }
  return bytes;
}

class WaitingListener : public TierListener {
 public:
  void done(const TierJob& job, TierOutcome outcome) noexcept override {
    const std::lock_guard lock(mutex_);
    ++times_[job.ticket];
    outcomes_[job.ticket] = outcome;
    changed_.notify_all();
  }
  // Every ticket is answered once.
  TierOutcome wait(std::uint64_t ticket) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return outcomes_.contains(ticket); });
    return outcomes_[ticket];
  }
  std::size_t answered() const {
    const std::lock_guard lock(mutex_);
    return outcomes_.size();
  }
  bool any_twice() const {
    const std::lock_guard lock(mutex_);
    for (const auto& [ticket, times] : times_) {
      if (times > 1) return true;
    }
    return false;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::uint64_t, TierOutcome> outcomes_;
  std::map<std::uint64_t, int> times_;
};

// Jobs one after the other.
class Client {
 public:
  Client(Tier& tier, WaitingListener& listener) : tier_(tier), listener_(listener) {}

  TierOutcome put(std::uint64_t number, std::size_t count) {
    auto bytes = bytes_of_object(number, count);
    return run({TierJob::Kind::Put, key_of(number), bytes.data(), count, 0});
  }
  // Done only if the bytes are right: others end the program.
  TierOutcome get(std::uint64_t number, std::size_t count) {
    std::vector<std::byte> bytes(count);
    const TierOutcome outcome = run({TierJob::Kind::Get, key_of(number), bytes.data(), count, 0});
    if (outcome == TierOutcome::Done && bytes != bytes_of_object(number, count)) {
      std::fprintf(stderr, "object %llu has wrong bytes\n", static_cast<unsigned long long>(number));
      std::abort();
    }
    return outcome;
  }
  TierOutcome find(std::uint64_t number) { return run({TierJob::Kind::Find, key_of(number), nullptr, 0, 0}); }

  TierOutcome run(TierJob job) {
    static std::atomic<std::uint64_t> tickets = 1;
    job.ticket = tickets++;
    while (tier_.submit(std::span(&job, 1)) == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return listener_.wait(job.ticket);
  }

 private:
  Tier& tier_;
  WaitingListener& listener_;
};

template <typename Condition>
bool within(std::chrono::milliseconds time, Condition condition) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (!condition()) {
    if (std::chrono::steady_clock::now() >= end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

inline DiskTierOptions small_options(const std::filesystem::path& path) {
  DiskTierOptions options;
  options.path = path;
  options.limit_bytes = kSmallestDiskLimit;
  options.threads = 2;
  options.low_priority = false;  // tests wait for every put
  options.keep_free_bytes = 0;
  options.flush_interval = std::chrono::milliseconds(20);
  options.access_interval = std::chrono::milliseconds(50);
  options.first_pause = std::chrono::milliseconds(20);
  options.longest_pause = std::chrono::milliseconds(200);
  return options;
}

}  // namespace quire::tiers::testing
