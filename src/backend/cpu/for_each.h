// Divides items among the threads of a team. Which thread does which item changes no result.
//
//   for_each             Each thread begins with a range of its own and does its items in order, so that it reads
//                        memory in order. A thread that is done helps the others, so that nobody waits long for a
//                        thread that lost its core.
//   for_each_range       The same with up to `most` consecutive items at a time.
//   for_each_in_order    The next item goes to the next free thread. For items of very different cost, longest first.
//   for_each_then        First as for_each, then other, smaller items as for_each_in_order: so that all end together.
//
// The calling thread does up to `few` items alone.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "quire/base/thread_team.h"

namespace quire::cpu {

// The items of a job, in one range for each thread.
class Shares {
 public:
  Shares(std::uint32_t count, std::uint32_t threads) : parts_(std::min(threads, kMost)) {
    for (std::uint32_t i = 0; i < parts_; ++i) {
      shares_[i].next = begin(count, i, parts_);
      shares_[i].end = begin(count, i + 1, parts_);
    }
  }
  // Where the range of a thread begins. Memory is placed by it (CpuBackend::load), and prefetched (WeightsAhead).
  static std::uint32_t begin(std::uint32_t count, std::uint32_t thread, std::uint32_t threads) {
    return static_cast<std::uint32_t>(std::uint64_t{count} * thread / threads);
  }
  // Calls work(begin, end) until all items of all threads are taken, up to `most` at a time.
  template <typename Work>
  void take(std::uint32_t thread, std::uint32_t most, const Work& work) {
    for (std::uint32_t i = 0; i < parts_; ++i) {
      Share& share = shares_[(thread + i) % parts_];
      const std::atomic_ref next(share.next);
      // Only looked at first: to add to the counters of all others would move every line to every core.
      if (i > 0 && next.load(std::memory_order_relaxed) >= share.end) continue;
      for (std::uint32_t item = next.fetch_add(most, std::memory_order_relaxed); item < share.end;
           item = next.fetch_add(most, std::memory_order_relaxed)) {
        work(item, std::min(item + most, share.end));
      }
    }
  }

 private:
  // As many as --threads allows. More threads would share ranges, and not those whose memory is on their node.
  static constexpr std::uint32_t kMost = 1024;
  // Each in a cache line of its own: a line that moves between cores for every item costs more than a small item. Lines
  // of threads that are not there are not touched: std::atomic would set all of them to 0 for each job.
  struct alignas(64) Share {
    std::uint32_t next;  // used as an atomic while the team works
    std::uint32_t end;
  };
  std::uint32_t parts_;
  Share shares_[kMost];
};

// work(begin, end, thread)
template <typename Work>
void for_each_range(ThreadTeam& team, std::uint32_t count, std::uint32_t most, Work work) {
  Shares shares(count, team.size());
  team.run([&](std::uint32_t thread, std::uint32_t) {
    shares.take(thread, most, [&](std::uint32_t begin, std::uint32_t end) { work(begin, end, thread); });
  });
}

// work(item, thread)
template <typename Work>
void for_each_by_thread(ThreadTeam& team, std::uint32_t count, std::uint32_t few, Work work) {
  if (count <= few || count <= 1 || team.size() == 1) {
    for (std::uint32_t i = 0; i < count; ++i) work(i, 0u);
    return;
  }
  for_each_range(team, count, 1, [&](std::uint32_t item, std::uint32_t, std::uint32_t thread) { work(item, thread); });
}

template <typename Work>
void for_each(ThreadTeam& team, std::uint32_t count, std::uint32_t few, Work work) {
  for_each_by_thread(team, count, few, [&](std::uint32_t i, std::uint32_t) { work(i); });
}
template <typename Work>
void for_each(ThreadTeam& team, std::uint32_t count, Work work) {
  for_each(team, count, 0, work);
}

template <typename Work>
void for_each_in_order(ThreadTeam& team, std::uint32_t count, Work work) {
  std::atomic<std::uint32_t> next{0};
  team.run([&](std::uint32_t, std::uint32_t) {
    for (std::uint32_t i = next.fetch_add(1, std::memory_order_relaxed); i < count;
         i = next.fetch_add(1, std::memory_order_relaxed)) {
      work(i);
    }
  });
}

// work(item, thread), then small(item, thread)
template <typename Work, typename Small>
void for_each_then(ThreadTeam& team, std::uint32_t count, Work work, std::uint32_t small_count, Small small) {
  Shares shares(count, team.size());
  alignas(64) std::atomic<std::uint32_t> next{0};
  team.run([&](std::uint32_t thread, std::uint32_t) {
    shares.take(thread, 1, [&](std::uint32_t item, std::uint32_t) { work(item, thread); });
    for (std::uint32_t i = next.fetch_add(1, std::memory_order_relaxed); i < small_count;
         i = next.fetch_add(1, std::memory_order_relaxed)) {
      small(i, thread);
    }
  });
}

}  // namespace quire::cpu
