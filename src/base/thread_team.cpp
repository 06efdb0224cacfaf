#include "quire/base/thread_team.h"

namespace quire {
namespace {

// How often a thread checks for work before it sleeps: about as long as the gaps between the operations of a step.
constexpr int kLooks = 4000;

inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

}  // namespace

ThreadTeam::ThreadTeam(std::uint32_t threads) {
  for (std::uint32_t i = 1; i < threads; ++i) workers_.emplace_back([this] { serve(); });
}

ThreadTeam::~ThreadTeam() {
  ending_.store(true, std::memory_order_relaxed);
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadTeam::start_and_join() {
  if (workers_.empty()) {
    work_(context_, 0, 1);
    return;
  }
  done_.store(0, std::memory_order_relaxed);
  const std::uint32_t round = round_.load(std::memory_order_relaxed) + 1;
  ticket_.store(std::uint64_t{round} << 32, std::memory_order_release);
  round_.store(round, std::memory_order_release);
  round_.notify_all();
  do_parts();
  // The remaining parts have been started by other threads. With more threads than cores these may not be running right
  // now; then it is better to give them this core.
  for (int looks = 0; done_.load(std::memory_order_acquire) != size(); ++looks) {
    if (looks < kLooks) {
      relax();
    } else {
      std::this_thread::yield();
    }
  }
}

void ThreadTeam::do_parts() {
  std::uint64_t ticket = ticket_.load(std::memory_order_acquire);
  while (static_cast<std::uint32_t>(ticket) < size()) {
    if (!ticket_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel, std::memory_order_acquire)) {
      continue;
    }
    work_(context_, static_cast<std::uint32_t>(ticket), size());
    done_.fetch_add(1, std::memory_order_release);
    ticket = ticket_.load(std::memory_order_acquire);
  }
}

void ThreadTeam::serve() {
  std::uint32_t seen = 0;
  for (;;) {
    for (int looks = 0; looks < kLooks && round_.load(std::memory_order_acquire) == seen; ++looks) relax();
    round_.wait(seen, std::memory_order_acquire);
    seen = round_.load(std::memory_order_acquire);
    if (ending_.load(std::memory_order_relaxed)) return;
    do_parts();
  }
}

}  // namespace quire
