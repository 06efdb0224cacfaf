#include "quire/base/thread_team.h"

#include <algorithm>
#include <chrono>

#include <sched.h>

#include "quire/base/machine.h"

namespace quire {
namespace {

using Clock = std::chrono::steady_clock;

// How long a thread looks for work before it sleeps. To sleep and be woken costs tens of microseconds, and the caller
// pays for it with each thread. So it is longer than the gaps between the operations of a step and between two steps.
constexpr std::chrono::microseconds kSpin{300};
constexpr std::chrono::microseconds kCrowdedSpin{5};

// A process may have several teams: a model and the smaller one that drafts for it have one each and work in turn. See
// ThreadTeam::gives_way().
std::atomic<const ThreadTeam*> at_work{nullptr};  // the last team that was called
std::atomic<std::uint32_t> all_workers{0};

inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

// Spins until ready(), give_up(), or the time is over, and tells whether it is ready.
template <typename Ready, typename GiveUp>
bool spin(std::chrono::microseconds time, Ready ready, GiveUp give_up) {
  constexpr int kLooks = 32;  // between two looks at the clock
  if (ready()) return true;
  const Clock::time_point end = Clock::now() + time;
  do {
    for (int i = 0; i < kLooks; ++i) {
      relax();
      if (ready()) return true;
    }
  } while (Clock::now() < end && !give_up());
  return false;
}

void stay_on(const std::vector<std::uint32_t>& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const std::uint32_t cpu : cpus) {
    if (cpu < CPU_SETSIZE) CPU_SET(cpu, &set);
  }
  if (CPU_COUNT(&set) > 0) (void)sched_setaffinity(0, sizeof set, &set);  // refused: the thread may go anywhere
}

}  // namespace

ThreadTeam::ThreadTeam(std::uint32_t threads)
    : ThreadTeam(TeamOptions{.threads = threads, .crowded = threads > available_cores()}) {}

ThreadTeam::ThreadTeam(const TeamOptions& options)
    : crowded_(options.crowded),
      cores_(available_cores()),
      parts_(std::make_unique<Part[]>(std::max(1u, options.threads))) {
  all_workers += std::max(1u, options.threads) - 1;
  for (std::uint32_t i = 1; i < options.threads; ++i) {
    workers_.emplace_back([this, i, cpus = i < options.cpus.size() ? options.cpus[i] : std::vector<std::uint32_t>()] {
      stay_on(cpus);
      serve(i);
    });
  }
}

ThreadTeam::~ThreadTeam() {
  ending_.store(true, std::memory_order_relaxed);
  round_.fetch_add(1, std::memory_order_seq_cst);
  round_.notify_all();
  for (std::thread& worker : workers_) worker.join();
  all_workers -= size() - 1;
}

bool ThreadTeam::gives_way() const {
  return at_work.load(std::memory_order_relaxed) != this && all_workers.load(std::memory_order_relaxed) >= cores_;
}

void ThreadTeam::while_waiting(Idle call, const void* context) {
  idle_context_.store(context, std::memory_order_relaxed);
  idle_.store(call, std::memory_order_release);
}

bool ThreadTeam::begin(std::uint32_t part, std::uint32_t round) {
  std::uint32_t before = 2 * (round - 1) + 1;
  return parts_[part].state.compare_exchange_strong(before, 2 * round, std::memory_order_acq_rel,
                                                    std::memory_order_relaxed);
}

// Either the caller sees that the part is done before it sleeps, or this thread sees that the caller sleeps.
void ThreadTeam::end(std::uint32_t part, std::uint32_t round) {
  parts_[part].state.store(2 * round + 1, std::memory_order_seq_cst);
  if (caller_sleeps_.load(std::memory_order_seq_cst) == 0) return;
  caller_sleeps_.store(0, std::memory_order_seq_cst);
  caller_sleeps_.notify_one();
}

void ThreadTeam::start_and_join() {
  if (workers_.empty()) {
    work_(context_, 0, 1);
    return;
  }
  if (at_work.load(std::memory_order_relaxed) != this) at_work.store(this, std::memory_order_relaxed);
  const std::uint32_t round = round_.load(std::memory_order_relaxed) + 1;
  parts_[0].state.store(2 * round, std::memory_order_relaxed);
  round_.store(round, std::memory_order_seq_cst);  // a release could pass notify_all's look for sleepers
  round_.notify_all();
  work_(context_, 0, size());
  parts_[0].state.store(2 * round + 1, std::memory_order_relaxed);
  // Parts that nobody has begun are done here.
  for (std::uint32_t i = 1; i < size(); ++i) {
    if (parts_[i].state.load(std::memory_order_relaxed) != 2 * (round - 1) + 1 || !begin(i, round)) continue;
    work_(context_, i, size());
    parts_[i].state.store(2 * round + 1, std::memory_order_relaxed);
  }
  std::uint32_t turn = 0;
  for (std::uint32_t i = 1; i < size(); ++i) {
    while (!wait_for(i, round, turn)) {
    }
  }
}

// For the caller: whether the part is done. It has been begun.
bool ThreadTeam::wait_for(std::uint32_t part, std::uint32_t round, std::uint32_t& turn) {
  const auto done = [&] { return parts_[part].state.load(std::memory_order_acquire) == 2 * round + 1; };
  if (done()) return true;
  const Idle idle = idle_.load(std::memory_order_relaxed);
  while (idle != nullptr && idle(idle_context_.load(std::memory_order_relaxed), 0, size(), turn++)) {
    if (done()) return true;
  }
  if (spin(crowded_ ? kCrowdedSpin : kSpin, done, [] { return false; })) return true;
  caller_sleeps_.store(1, std::memory_order_seq_cst);
  if (parts_[part].state.load(std::memory_order_seq_cst) != 2 * round + 1) {
    caller_sleeps_.wait(1, std::memory_order_seq_cst);
  }
  caller_sleeps_.store(0, std::memory_order_seq_cst);
  return done();
}

void ThreadTeam::serve(std::uint32_t thread) {
  std::uint32_t seen = 0;
  const auto called = [&] { return round_.load(std::memory_order_acquire) != seen; };
  for (;;) {
    if (const Idle idle = idle_.load(std::memory_order_acquire); idle != nullptr) {
      const void* const context = idle_context_.load(std::memory_order_relaxed);
      for (std::uint32_t turn = 0; !called() && idle(context, thread, size(), turn); ++turn) {
      }
    }
    const auto give_up = [this] { return gives_way(); };
    if (!spin(crowded_ ? kCrowdedSpin : kSpin, called, give_up)) round_.wait(seen, std::memory_order_acquire);
    seen = round_.load(std::memory_order_acquire);
    if (ending_.load(std::memory_order_relaxed)) return;
    if (begin(thread, seen)) {
      work_(context_, thread, size());
      end(thread, seen);
    }
  }
}

}  // namespace quire
