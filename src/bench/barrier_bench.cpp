// What a job of a thread team costs beyond the work of its parts, by the number of threads, and what the machine could
// reach: the time in which a cache line goes from one core to another and back. A job needs one such round trip: the
// line that announces it goes out, the lines that say "done" come back. Each part works for some microseconds, so that
// its own thread does it: the caller would do empty parts before the others have heard of them.
//
//   barrier_bench [THREADS,...]         default: 1, 2, 4, ... up to the number of cores, and twice as many
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "quire/backend/cpu/for_each.h"
#include "quire/backend/cpu/topology.h"
#include "quire/base/thread_team.h"

namespace quire::bench {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// The median and the best of many short series, in microseconds for one call.
struct Cost {
  double median = 0, best = 0;
};
template <typename Call>
Cost cost_of(Call call) {
  constexpr int kSeries = 200, kCalls = 50;
  std::vector<double> series;
  for (int s = 0; s < kSeries; ++s) {
    const auto start = Clock::now();
    for (int i = 0; i < kCalls; ++i) call();
    series.push_back(seconds_since(start) / kCalls * 1e6);
  }
  std::ranges::sort(series);
  return {series[series.size() / 2], series.front()};
}

// A cache line that another thread of the team answers. With more threads than cores there is nothing to measure.
Cost round_trip(ThreadTeam& team) {
  struct alignas(64) Line {
    std::atomic<std::uint32_t> value{0};
  };
  Line there, back;
  Cost cost;
  std::atomic<bool> over{false};
  team.run([&](std::uint32_t thread, std::uint32_t threads) {
    if (thread == 0) {
      std::uint32_t n = 0;
      cost = cost_of([&] {
        there.value.store(++n, std::memory_order_release);
        while (back.value.load(std::memory_order_acquire) != n) {
        }
      });
      over.store(true);
    } else if (thread == threads - 1) {
      for (std::uint32_t n = 0; !over.load(std::memory_order_relaxed);) {
        const std::uint32_t now = there.value.load(std::memory_order_acquire);
        if (now == n) continue;
        n = now;
        back.value.store(n, std::memory_order_release);
      }
    }
  });
  return cost;
}

constexpr std::chrono::nanoseconds kWork{4000};  // of a part
constexpr std::uint32_t kItems = 8;              // of a thread: as matrices are divided

void work_for(std::chrono::nanoseconds time) {
  const auto start = Clock::now();
  while (Clock::now() - start < time) {
  }
}

void measure(const cpu::Topology& machine, std::uint32_t threads, Pin pin) {
  ThreadTeam team(machine.team(threads, pin));
  const bool crowded = threads > machine.cores();
  const double work = std::chrono::duration<double, std::micro>(kWork).count();
  const Cost job = cost_of([&] { team.run([](std::uint32_t, std::uint32_t) { work_for(kWork); }); });
  const Cost items =
      cost_of([&] { cpu::for_each(team, kItems * threads, [](std::uint32_t) { work_for(kWork / kItems); }); });
  std::string line = "-";
  if (threads > 1 && !crowded) line = fmt::format("{:.2f}", round_trip(team).best);
  fmt::print("{:>7} {:>10.2f} {:>10.2f} {:>10.2f} {:>10.2f} {:>12}{}\n", threads, job.median - work, job.best - work,
             items.median - work, items.best - work, line, crowded ? "   more threads than cores" : "");
}

}  // namespace
}  // namespace quire::bench

int main(int argc, char** argv) {
  const quire::cpu::Topology machine = quire::cpu::Topology::of_this_machine();
  std::vector<std::uint32_t> counts;
  if (argc > 1) {
    std::istringstream list(argv[1]);
    for (std::string one; std::getline(list, one, ',');) {
      counts.push_back(static_cast<std::uint32_t>(std::clamp(std::atoi(one.c_str()), 1, 256)));
    }
  } else {
    for (std::uint32_t threads = 1; threads < machine.cores(); threads *= 2) counts.push_back(threads);
    counts.push_back(machine.cores());
    counts.push_back(2 * machine.cores());
  }
  fmt::print("{}\n", machine.describe());
  fmt::print("Microseconds beyond the work of {} us a thread, the median and the best of 200 series: for a job, for\n",
             std::chrono::duration_cast<std::chrono::microseconds>(quire::bench::kWork).count());
  fmt::print("a for_each of {} items a thread, and for a cache line to another core and back\n", quire::bench::kItems);
  fmt::print("{:>7} {:>10} {:>10} {:>10} {:>10} {:>12}\n", "threads", "job", "best", "for_each", "best", "round trip");
  for (const quire::Pin pin : {quire::Pin::Cores, quire::Pin::Off}) {
    fmt::print("threads {}\n", pin == quire::Pin::Off ? "not pinned" : "pinned to cores");
    for (const std::uint32_t threads : counts) quire::bench::measure(machine, threads, pin);
  }
}
