// A queue of jobs with a bound, between the thread that submits and the threads of a tier. After it was made, nothing
// is allocated.
//
// Who may call: any thread.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <span>
#include <vector>

#include "quire/state/tier.h"

namespace quire::tiers {

class JobQueue {
 public:
  explicit JobQueue(std::size_t capacity) : ring_(capacity) {}

  // Takes jobs in order while there is room; returns how many.
  std::size_t push(std::span<const TierJob> jobs) {
    std::size_t taken = 0;
    {
      const std::lock_guard lock(mutex_);
      if (ended_) return 0;
      taken = std::min(jobs.size(), ring_.size() - count_);
      for (std::size_t i = 0; i < taken; ++i) ring_[(first_ + count_ + i) % ring_.size()] = jobs[i];
      count_ += taken;
    }
    if (taken > 0) arrived_.notify_one();
    return taken;
  }

  // The next jobs, at most jobs.size(). Waits for the first one. 0: the queue has ended and is empty.
  std::size_t pop(std::span<TierJob> jobs) {
    std::unique_lock lock(mutex_);
    arrived_.wait(lock, [&] { return count_ > 0 || ended_; });
    return take(jobs);
  }

  // The same without waiting.
  std::size_t try_pop(std::span<TierJob> jobs) {
    const std::lock_guard lock(mutex_);
    return take(jobs);
  }

  // Takes no more jobs. Those that are in the queue can still be popped.
  void end() {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    arrived_.notify_all();
  }

  std::size_t size() const {
    const std::lock_guard lock(mutex_);
    return count_;
  }

 private:
  std::size_t take(std::span<TierJob> jobs) {
    const std::size_t taken = std::min(jobs.size(), count_);
    for (std::size_t i = 0; i < taken; ++i) jobs[i] = ring_[(first_ + i) % ring_.size()];
    first_ = (first_ + taken) % ring_.size();
    count_ -= taken;
    return taken;
  }

  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<TierJob> ring_;
  std::size_t first_ = 0;
  std::size_t count_ = 0;
  bool ended_ = false;
};

}  // namespace quire::tiers
