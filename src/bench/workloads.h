// What `quire bench` measures: the engine under workloads that people have, offline, on random prompts; and steps of
// the model alone (long-decode, shared-decode), where reading the prompts again and again would take too long.
//
// What holds: every workload is repeated and the best is told; prompts of one repetition are not found in the cache of
//   another unless finding them is what is measured.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "quire/base/error.h"
#include "quire/base/thread_team.h"
#include "quire/bench/best_moment.h"
#include "quire/bench/limit.h"
#include "quire/engine/hosted_model.h"

namespace quire::bench {

// One line of the table.
struct BenchRow {
  std::string workload;
  std::string phase;             // of a workload that has several rows: "first", "later"
  std::uint32_t batch = 1;       // sequences at once
  std::uint32_t context = 0;     // tokens of a prompt
  double tokens_per_second = 0;  // read (prefill) or written (the others), all sequences together
  double ttft_ms = 0;            // time to first token: the median
  double hit_rate = 0;           // tokens of prompts that were found, of all
  std::uint64_t suspensions = 0;
  double overhead = 0;            // share of the steps spent outside the model
  std::optional<Work> work;       // what it could not do without, where there is a limit to compare with
  std::optional<double> speedup;  // of sequences that share their beginning, over those that do not
  // What the machine could do just before and behind it: on a shared one that changes by half from minute to minute.
  std::optional<MachineLimits> machine;
  std::optional<double> read;  // bytes of memory a second, measured closer to it: around the moment that is told
};

struct WorkloadOptions {
  std::uint32_t repeat = 3;
  std::uint32_t context = 0;           // tokens of the prompts; 0: each workload's own
  std::vector<std::uint32_t> lengths;  // of the prompts of prefill; empty: 128, 512, 2048
  std::vector<std::uint32_t> batches;  // of decode; empty: 1, 2, 4, ... 64
  std::uint32_t shared = 32;           // sequences of shared-decode
  std::uint32_t tokens = 64;           // of an answer
};

// What is repeated over and over is timed in moments of a few steps, of which the best counts.
inline constexpr std::uint32_t kStepsInAMoment = 8;

// What a workload wants of its host.
struct HostNeeds {
  std::uint32_t sequences = 64;
  // Tokens of a sequence, as far as the model goes: there is room for all sequences to be as long as that, and where
  // there is not enough memory the host is for fewer of them, one at least. 0: a context as it is usual, and a pool.
  std::uint32_t context = 0;
  std::uint64_t memory = 0;  // of the pool; 0: as the rest says
  bool smooth = true;        // answers flow while prompts are read
  bool prefix_cache = true;
};
// A hosted model, and the threads that compute it.
struct BenchHost {
  std::unique_ptr<engine::HostedModel> hosted;
  ThreadTeam* team = nullptr;

  engine::HostedModel* operator->() const { return hosted.get(); }
  engine::HostedModel& operator*() const { return *hosted; }
};
using MakeHost = std::function<Result<BenchHost>(const HostNeeds& needs)>;

struct Told {
  std::function<void(const BenchRow& row)> row;
  std::function<void(const std::string& line)> note;  // what is not measured, or less than asked for, and why
  std::function<void(std::uint64_t done, std::uint64_t total)> reading;  // tokens of a long prompt
  BestMoment::Look read_rate;
};

const std::vector<std::string>& workload_names();
// `name` is one of them.
Result<void> run_workload(const std::string& name, const WorkloadOptions& options, const MakeHost& make,
                          const Told& tell);

}  // namespace quire::bench
