#include "quire/base/thread_team.h"

namespace quire {
namespace {

// Looks before sleeping: about as long as the gaps between the operations of a step.
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
  for (std::uint32_t i = 1; i < threads; ++i) workers_.emplace_back([this, i] { serve(i); });
}

ThreadTeam::~ThreadTeam() {
  ending_.store(true, std::memory_order_relaxed);
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadTeam::start_and_join() {
  if (!workers_.empty()) {
    running_.store(static_cast<std::uint32_t>(workers_.size()), std::memory_order_relaxed);
    round_.fetch_add(1, std::memory_order_release);
    round_.notify_all();
  }
  work_(context_, 0, size());
  // With more threads than cores the others may not be running at all: then the core is better left to them.
  for (int looks = 0; running_.load(std::memory_order_acquire) != 0; ++looks) {
    if (looks < kLooks) {
      relax();
    } else {
      std::this_thread::yield();
    }
  }
}

void ThreadTeam::serve(std::uint32_t thread) {
  std::uint32_t seen = 0;
  for (;;) {
    for (int looks = 0; looks < kLooks && round_.load(std::memory_order_acquire) == seen; ++looks) relax();
    round_.wait(seen, std::memory_order_acquire);
    ++seen;  // rounds are never skipped: the next begins when all are done with this one
    if (ending_.load(std::memory_order_relaxed)) return;
    work_(context_, thread, size());
    running_.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace quire
