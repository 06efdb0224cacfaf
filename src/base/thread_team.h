// A fixed team of threads that run one job at a time together. The caller is one of them.
//
//   team.run([&](std::uint32_t part, std::uint32_t parts) { ... });   // returns when every part is done
//
// A job has as many parts as there are threads. Each part is done once, by the first thread that is free. So on a busy
// machine the caller does not wait for a thread that has no core: it takes that part itself.
//
// Who may call: one thread, always the same. run() must not be nested. Nothing is allocated per call. Between calls the
// workers spin for a moment and then sleep: a busy engine makes no system calls, and an idle one uses no CPU time.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

namespace quire {

class ThreadTeam {
 public:
  explicit ThreadTeam(std::uint32_t threads);  // at least 1
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  std::uint32_t size() const { return static_cast<std::uint32_t>(workers_.size()) + 1; }

  template <typename Work>
  void run(Work&& work) {
    using Plain = std::remove_reference_t<Work>;
    work_ = [](const void* context, std::uint32_t part, std::uint32_t parts) {
      (*static_cast<Plain*>(const_cast<void*>(context)))(part, parts);
    };
    context_ = std::addressof(work);
    start_and_join();
  }

 private:
  void start_and_join();
  void serve();
  void do_parts();

  // Each cache line holds what is written and read together, because lines move between cores.
  alignas(64) std::atomic<std::uint32_t> round_{0};  // changes when there is a new job
  void (*work_)(const void*, std::uint32_t, std::uint32_t) = nullptr;
  const void* context_ = nullptr;
  // The round (upper half) and the next part that nobody has taken. Both are in one word, so that a thread that is late
  // for one round cannot take a part of another.
  alignas(64) std::atomic<std::uint64_t> ticket_{UINT32_MAX};
  alignas(64) std::atomic<std::uint32_t> done_{0};  // finished parts of this round
  alignas(64) std::atomic<bool> ending_{false};
  std::vector<std::thread> workers_;
};

}  // namespace quire
