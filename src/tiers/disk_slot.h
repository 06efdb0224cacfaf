// The jobs that a worker of the disk tier has. Whoever takes a job out of Waiting answers it: the worker, or the
// watchdog, when the disk keeps the worker waiting.
//
// What always holds: a job that was begun can be finished once, whatever is thrown while the worker has it. Nobody else
// answers it while the worker holds it, so its memory may be touched then.
//
// Who may call: take_late() the watchdog, everything else the worker.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "quire/state/tier.h"

namespace quire::tiers {

class Slot {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t kBatch = 4;  // jobs that a worker takes at once

  std::array<TierJob, kBatch> jobs;  // filled before begin()

  void begin(std::size_t count, Clock::time_point deadline) {
    const std::lock_guard lock(mutex_);
    count_ = count;
    deadline_ = deadline;
    states_.fill(State::Waiting);
  }
  void end() {
    const std::lock_guard lock(mutex_);
    count_ = 0;
  }
  // True: the caller answers the job.
  bool finish(std::size_t i) {
    const std::lock_guard lock(mutex_);
    if (states_[i] != State::Waiting) return false;
    states_[i] = State::Finished;
    return true;
  }

  // While it lives, the worker may touch the job's memory. False: the job was answered already.
  class Hold {
   public:
    Hold(Slot& slot, std::size_t i) : slot_(slot), job_(i) {
      const std::lock_guard lock(slot_.mutex_);
      held_ = slot_.states_[job_] == State::Waiting;
      if (held_) slot_.states_[job_] = State::Held;
    }
    ~Hold() {
      const std::lock_guard lock(slot_.mutex_);
      if (held_) slot_.states_[job_] = State::Waiting;
    }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;
    explicit operator bool() const { return held_; }

   private:
    Slot& slot_;
    std::size_t job_;
    bool held_;
  };

  // The jobs that are late, which the watchdog has to answer. `late`: whether the worker is late at all.
  std::size_t take_late(Clock::time_point now, std::array<TierJob, kBatch>& taken, bool& late) {
    const std::lock_guard lock(mutex_);
    std::size_t count = 0;
    late = count_ > 0 && now >= deadline_;
    for (std::size_t i = 0; late && i < count_; ++i) {
      if (states_[i] != State::Waiting) continue;
      states_[i] = State::Finished;
      taken[count++] = jobs[i];
    }
    return count;
  }

 private:
  enum class State : std::uint8_t { Waiting, Held, Finished };
  std::mutex mutex_;
  std::size_t count_ = 0;
  Clock::time_point deadline_;
  std::array<State, kBatch> states_{};
};

}  // namespace quire::tiers
