// Divides items among the threads of a team. Which thread does which item changes no result.
//
//   for_each             Each thread begins with a range of its own and does its items in order, so that it reads
//                        memory in order. A thread that is done helps the others, so that nobody waits long for a
//                        thread that lost its core.
//   for_each_in_order    The next item goes to the next free thread. For items of very different cost, longest first.
//
// The calling thread does up to `few` items alone.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "quire/base/thread_team.h"

namespace quire::cpu {

// work(item, thread)
template <typename Work>
void for_each_by_thread(ThreadTeam& team, std::uint32_t count, std::uint32_t few, Work work) {
  if (count <= few || count <= 1 || team.size() == 1) {
    for (std::uint32_t i = 0; i < count; ++i) work(i, 0u);
    return;
  }
  // Each in a cache line of its own: a line that moves between cores for every item costs more than a small item.
  struct alignas(64) Share {
    std::atomic<std::uint32_t> next;
    std::uint32_t end;
  };
  constexpr std::uint32_t kMost = 16;
  Share shares[kMost];
  const std::uint32_t parts = std::min(team.size(), kMost);
  for (std::uint32_t i = 0; i < parts; ++i) {
    shares[i].next.store(static_cast<std::uint32_t>(std::uint64_t{count} * i / parts), std::memory_order_relaxed);
    shares[i].end = static_cast<std::uint32_t>(std::uint64_t{count} * (i + 1) / parts);
  }
  team.run([&](std::uint32_t thread, std::uint32_t) {
    for (std::uint32_t i = 0; i < parts; ++i) {
      Share& share = shares[(thread + i) % parts];
      for (std::uint32_t item = share.next.fetch_add(1, std::memory_order_relaxed); item < share.end;
           item = share.next.fetch_add(1, std::memory_order_relaxed)) {
        work(item, thread);
      }
    }
  });
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

}  // namespace quire::cpu
