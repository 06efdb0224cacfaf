// A fixed team of threads that run one job at a time together. The caller is one of them.
//
//   team.run([&](std::uint32_t part, std::uint32_t parts) { ... });   // returns when every part is done
//
// A job has as many parts as there are threads. Each part is done once: part i by thread i, so that a thread finds in
// its caches what it used before; or by the caller, if thread i has not begun when the caller is done with its own. So
// on a busy machine the caller does not wait for a thread that has no core.
//
// Who may call: one thread, always the same. run() must not be nested. Nothing is allocated per call. Between calls the
// workers spin for a moment and then sleep: a busy engine makes no system calls, and an idle one uses no CPU time. With
// more threads than cores (crowded) they spin hardly at all, since a thread that spins keeps another from working.
//
// What it costs: one cache line goes from the caller to all workers, and one from each worker to the caller. No line is
// written by more than one thread, except where the caller takes a part over. src/bench/barrier_bench.cpp measures it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

namespace quire {

struct TeamOptions {
  std::uint32_t threads = 1;  // at least 1
  // The logical CPUs of each thread; none: it goes where the system puts it. Those of the caller are not used: it keeps
  // its own affinity, which threads that it starts later would inherit. What the system refuses is ignored.
  std::vector<std::vector<std::uint32_t>> cpus = {};
  bool crowded = false;  // there are more threads than cores
};

class ThreadTeam {
 public:
  explicit ThreadTeam(std::uint32_t threads);  // crowded if the process may use fewer cores
  explicit ThreadTeam(const TeamOptions& options);
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

  // What a thread does while it waits: call(context, thread, threads, turn) with turn 0, 1, 2, ... until it returns
  // false or there is work. It must return within a microsecond and change nothing: it is for prefetching. `context` is
  // used until the team ends, by several threads at once. Null: nothing.
  using Idle = bool (*)(const void* context, std::uint32_t thread, std::uint32_t threads, std::uint32_t turn);
  void while_waiting(Idle call, const void* context);

  // Another team of this process is at work, and there are more threads than cores in all. Then threads that wait do
  // not spin: they would take the cores of the other team.
  bool gives_way() const;

 private:
  // A part's round and state in one word: done with round r is 2 r + 1, begun is 2 r. Each in a line of its own.
  struct alignas(64) Part {
    std::atomic<std::uint32_t> state{1};
  };

  void start_and_join();
  void serve(std::uint32_t thread);
  bool begin(std::uint32_t part, std::uint32_t round);
  void end(std::uint32_t part, std::uint32_t round);
  bool wait_for(std::uint32_t part, std::uint32_t round, std::uint32_t& turn);

  // Each cache line holds what is written and read together, because lines move between cores.
  alignas(64) std::atomic<std::uint32_t> round_{0};  // changes when there is a new job
  void (*work_)(const void*, std::uint32_t, std::uint32_t) = nullptr;
  const void* context_ = nullptr;
  std::atomic<Idle> idle_{nullptr};
  std::atomic<const void*> idle_context_{nullptr};
  alignas(64) std::atomic<bool> ending_{false};
  std::atomic<std::uint32_t> caller_sleeps_{0};  // 1: and wants to be told of parts that end
  bool crowded_ = false;
  // Of the process. A worker that stays on one CPU could not tell: its own affinity is that CPU.
  std::uint32_t cores_ = 1;
  std::unique_ptr<Part[]> parts_;
  std::vector<std::thread> workers_;
};

}  // namespace quire
