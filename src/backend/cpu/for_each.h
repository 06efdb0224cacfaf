// Items of very different cost (a long context beside a short one) go to whoever of a team is free; who does which
// changes nothing. Up to `few` items are done by the thread that is there.
#pragma once

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
  std::atomic<std::uint32_t> next{0};
  team.run([&](std::uint32_t thread, std::uint32_t) {
    for (std::uint32_t i = next.fetch_add(1, std::memory_order_relaxed); i < count;
         i = next.fetch_add(1, std::memory_order_relaxed)) {
      work(i, thread);
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

}  // namespace quire::cpu
