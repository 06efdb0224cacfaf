// Helpers for tests and benchmarks of the shared tier: objects with known bytes, and a listener that can be waited for.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "quire/base/sha256.h"
#include "quire/state/tier.h"

namespace quire::tiers {

inline ObjectKey test_key(std::uint64_t number, std::uint8_t cls = 0) {
  ObjectKey key;
  key.name = Sha256().add("object " + std::to_string(number)).finish();
  key.cls = cls;
  return key;
}

// Bytes that depend on the number, so that no two objects are alike.
inline std::vector<std::byte> test_bytes(std::uint64_t number, std::size_t size) {
  std::vector<std::byte> bytes(size);
  std::uint64_t x = number * 0x9e3779b97f4a7c15 + 1;
  for (std::size_t i = 0; i < size; i += 8) {
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    std::memcpy(bytes.data() + i, &x, std::min<std::size_t>(8, size - i));
  }
  return bytes;
}

class Outcomes : public TierListener {
 public:
  void done(const TierJob& job, TierOutcome outcome) noexcept override {
    const std::lock_guard lock(mutex_);
    ++ended_;
    outcomes_.emplace(job.ticket, outcome);
    arrived_.notify_all();
  }

  // Waits until so many jobs have ended since the beginning. False: not within the time.
  bool wait(std::size_t count, std::chrono::milliseconds time = std::chrono::seconds(30)) {
    std::unique_lock lock(mutex_);
    return arrived_.wait_for(lock, time, [&] { return ended_ >= count; });
  }
  std::optional<TierOutcome> wait_for(std::uint64_t ticket, std::chrono::milliseconds time = std::chrono::seconds(30)) {
    std::unique_lock lock(mutex_);
    if (!arrived_.wait_for(lock, time, [&] { return outcomes_.contains(ticket); })) return std::nullopt;
    return outcomes_.find(ticket)->second;
  }
  std::size_t ended() const {
    const std::lock_guard lock(mutex_);
    return ended_;
  }
  std::size_t count(TierOutcome outcome) const {
    const std::lock_guard lock(mutex_);
    std::size_t count = 0;
    for (const auto& [ticket, it] : outcomes_) count += it == outcome ? 1 : 0;
    return count;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  std::size_t ended_ = 0;
  std::multimap<std::uint64_t, TierOutcome> outcomes_;
};

// A tier with its listener, one job at a time.
class OneByOne {
 public:
  OneByOne(Tier& tier, Outcomes& outcomes) : tier_(tier), outcomes_(outcomes) {}

  std::optional<TierOutcome> put(const ObjectKey& key, std::vector<std::byte>& bytes) {
    return run({TierJob::Kind::Put, key, bytes.data(), bytes.size()});
  }
  std::optional<TierOutcome> get(const ObjectKey& key, std::vector<std::byte>& bytes) {
    return run({TierJob::Kind::Get, key, bytes.data(), bytes.size()});
  }
  std::optional<TierOutcome> find(const ObjectKey& key, std::size_t bytes) {
    return run({TierJob::Kind::Find, key, nullptr, bytes});
  }
  std::optional<TierOutcome> run(TierJob job) {
    static std::atomic<std::uint64_t> next = std::uint64_t{1} << 40;
    job.ticket = next++;
    if (tier_.submit({&job, 1}) != 1) return std::nullopt;
    return outcomes_.wait_for(job.ticket);
  }

 private:
  Tier& tier_;
  Outcomes& outcomes_;
};

}  // namespace quire::tiers
