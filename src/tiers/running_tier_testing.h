// For tests: a tier in memory that works by itself, on a thread of its own.
#pragma once

#include <condition_variable>
#include <mutex>
#include <span>
#include <string>
#include <thread>

#include "quire/tiers/memory_tier_testing.h"

namespace quire::tiers::testing {

// What several servers may share while all of them run. Lock the mutex to look at the objects.
struct SharedStore {
  std::mutex mutex;
  Store objects;
};

class RunningTier final : public Tier {
 public:
  RunningTier(TierKind kind, SharedStore& store, TierListener& listener)
      : store_(&store), memory_(kind, store.objects, listener), thread_([this] { run(); }) {}
  ~RunningTier() override {
    {
      const std::lock_guard lock(store_->mutex);
      ending_ = true;
    }
    arrived_.notify_one();
    thread_.join();
  }

  TierKind kind() const override { return memory_.kind(); }
  std::string describe() const override { return memory_.describe(); }
  std::size_t submit(std::span<const TierJob> jobs) override {
    std::size_t taken = 0;
    {
      const std::lock_guard lock(store_->mutex);
      taken = memory_.submit(jobs);
      arrived_jobs_ = true;
    }
    arrived_.notify_one();
    return taken;
  }
  TierUsage usage() const override {
    const std::lock_guard lock(store_->mutex);
    return memory_.usage();
  }
  void set_down(bool down) {
    const std::lock_guard lock(store_->mutex);
    memory_.down = down;
  }

 private:
  void run() {
    std::unique_lock lock(store_->mutex);
    while (!ending_) {
      memory_.run();
      arrived_jobs_ = false;
      arrived_.wait(lock, [this] { return arrived_jobs_ || ending_; });
    }
    memory_.run();
  }

  SharedStore* store_;
  MemoryTier memory_;
  std::condition_variable arrived_;
  bool arrived_jobs_ = false;
  bool ending_ = false;
  std::thread thread_;  // the last member: it uses the others
};

}  // namespace quire::tiers::testing
