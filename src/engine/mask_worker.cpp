#include "quire/engine/mask_worker.h"

#include <chrono>

namespace quire::engine {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

}  // namespace

MaskWorker::MaskWorker(std::uint32_t threads) {
  threads_.reserve(threads);
  for (std::uint32_t i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
}

MaskWorker::~MaskWorker() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  added_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void MaskWorker::add(Constraint& constraint, std::span<std::uint32_t> bits) {
  const std::lock_guard lock(mutex_);
  tasks_.push_back({&constraint, bits});
}

void MaskWorker::start() {
  {
    const std::lock_guard lock(mutex_);
    if (next_ == tasks_.size()) return;
  }
  added_.notify_all();
}

// Runs without the lock.
void MaskWorker::run_next(std::unique_lock<std::mutex>& lock) {
  const Task task = tasks_[next_++];
  lock.unlock();
  const Clock::time_point start = Clock::now();
  task.constraint->mask(task.bits);
  const double taken = seconds_since(start);
  lock.lock();
  times_.computing += taken;
  if (++done_ == tasks_.size()) finished_.notify_all();
}

void MaskWorker::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    added_.wait(lock, [this] { return stopping_ || next_ < tasks_.size(); });
    if (stopping_) return;
    run_next(lock);
  }
}

void MaskWorker::wait() {
  std::unique_lock lock(mutex_);
  if (tasks_.empty()) return;
  const Clock::time_point start = Clock::now();
  while (next_ < tasks_.size()) run_next(lock);
  finished_.wait(lock, [this] { return done_ == tasks_.size(); });
  tasks_.clear();
  next_ = done_ = 0;
  times_.waiting += seconds_since(start);
}

MaskWorker::Times MaskWorker::times() const {
  const std::lock_guard lock(mutex_);
  return times_;
}

}  // namespace quire::engine
