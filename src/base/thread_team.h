// A fixed team of threads that do one thing together at a time. The caller is one of them.
//
//   team.run([&](std::uint32_t part, std::uint32_t parts) { ... });   // returns when every part is done
//
// A piece of work has as many parts as there are threads, and each part is done once, by whoever comes first. So on a
// machine that is busy with other things nobody waits for a thread that has no core: the caller does its part too.
//
// Who may call: one thread, the same each time; run() does not nest. Nothing is allocated per call. Between calls the
// workers look for work for a moment and then sleep, so that a busy engine makes no system call and an idle one no
// heat.
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

  // Lines of memory go from core to core: each holds what is written and read together.
  alignas(64) std::atomic<std::uint32_t> round_{0};  // changes when there is work, which is
  void (*work_)(const void*, std::uint32_t, std::uint32_t) = nullptr;
  const void* context_ = nullptr;
  // The round and the next part of it that nobody has taken. Both in one word, so that who comes late for one round
  // cannot take a part of another.
  alignas(64) std::atomic<std::uint64_t> ticket_{UINT32_MAX};
  alignas(64) std::atomic<std::uint32_t> done_{0};  // parts of this round
  alignas(64) std::atomic<bool> ending_{false};
  std::vector<std::thread> workers_;
};

}  // namespace quire
