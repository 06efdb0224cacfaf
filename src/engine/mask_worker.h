// Threads that compute the masks of a step while the model computes its logits.
//
//   worker.add(*constraint, words);    // for each answer
//   worker.start();                    // wakes the threads, once: waking one costs as much as a mask
//   executor.forward(...)              // the backend calls wait() before it samples
//   worker.wait();                     // at the latest here
//
// Who may call: the engine's thread. wait() also from the thread that samples, which is the same one.
// What holds: a constraint and its words belong to the worker from add() until wait() returns. Nothing is allocated
//   after the first steps.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "quire/backend/sampling_job.h"
#include "quire/engine/constraint.h"

namespace quire::engine {

class MaskWorker final : public sampling::MaskGate {
 public:
  explicit MaskWorker(std::uint32_t threads);
  ~MaskWorker();
  MaskWorker(const MaskWorker&) = delete;
  MaskWorker& operator=(const MaskWorker&) = delete;

  void add(Constraint& constraint, std::span<std::uint32_t> bits);
  void start();
  // Returns when all masks are done. The calling thread helps.
  void wait() override;

  struct Times {
    double computing = 0;  // seconds of all threads together
    double waiting = 0;    // of the thread that samples, its help included
  };
  Times times() const;

 private:
  struct Task {
    Constraint* constraint;
    std::span<std::uint32_t> bits;
  };
  void work();
  void run_next(std::unique_lock<std::mutex>& lock);

  mutable std::mutex mutex_;
  std::condition_variable added_, finished_;
  std::vector<Task> tasks_;
  std::size_t next_ = 0, done_ = 0;
  bool stopping_ = false;
  Times times_;
  std::vector<std::thread> threads_;
};

}  // namespace quire::engine
