// What a thread will multiply next, so that it can be prefetched while the thread waits. A decode step is bound by
// memory, and memory would stand still while one thread norms and quantises the input of a product and the others wait
// for it.
//
// The products of a step are the same and in the same order as those of the step before. So they are noted, and the
// weights of the next call are known while one is computed. A wrong guess costs bandwidth and nothing else: a prefetch
// never fails, and changes no result.
//
//   ahead.begin();                              a step begins
//   const Call& next = ahead.note(products);    a call of matmul begins; `next` is the call after it
//   team.while_waiting(prefetch_share, &next);
//
// Who may call: the thread of the team. prefetch_share() is called by all of them, also while calls are noted. They
// then read the old products or the new ones, or some of each.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "quire/backend/backend.h"

namespace quire::cpu {

class WeightsAhead {
 public:
  struct Call;
  WeightsAhead();
  ~WeightsAhead();

  void begin();
  const Call& note(std::span<const Product> products);
  // For ThreadTeam::while_waiting: the first part of the share that for_each_range gives to a thread.
  static bool prefetch_share(const void* call, std::uint32_t thread, std::uint32_t threads, std::uint32_t turn);

 private:
  std::unique_ptr<Call[]> calls_;
  std::uint32_t noted_ = 0;  // calls of this step
  std::uint32_t known_ = 0;  // of the step before
};

}  // namespace quire::cpu
