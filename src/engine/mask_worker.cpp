#include "quire/engine/mask_worker.h"

namespace quire::engine {

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
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back({&constraint, bits});
  }
  added_.notify_one();
}

// Runs without the lock.
void MaskWorker::run_next(std::unique_lock<std::mutex>& lock) {
  const Task task = tasks_[next_++];
  lock.unlock();
  task.constraint->mask(task.bits);
  lock.lock();
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
  while (next_ < tasks_.size()) run_next(lock);
  finished_.wait(lock, [this] { return done_ == tasks_.size(); });
  tasks_.clear();
  next_ = done_ = 0;
}

}  // namespace quire::engine
