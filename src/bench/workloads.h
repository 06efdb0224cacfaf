// The workloads of `quire bench`: realistic workloads of the engine, offline and with random prompts; and steps of the
// model alone (long-decode, shared-decode), for which repeated prefill would take too long.
//
// What holds: every workload is repeated and the best run is reported. A prompt never hits the cache of an earlier
//   repetition, unless the workload measures hits.
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
#include "quire/bench/ideal.h"
#include "quire/bench/limit.h"
#include "quire/engine/cost_model.h"
#include "quire/engine/hosted_model.h"

namespace quire::bench {

// What clients of `serve` saw, and the ideal (ideal.h) with the costs that the engine learned meanwhile.
struct ServeTimes {
  engine::StepCosts costs;
  double target = 0;  // of the time between two tokens; seconds
  LoadTimes measured, ideal;
};

// One line of the table.
struct BenchRow {
  std::string workload;
  std::string phase;             // if a workload has several rows: "first", "later"
  std::uint32_t batch = 1;       // sequences at the same time
  std::uint32_t context = 0;     // tokens of a prompt
  double tokens_per_second = 0;  // prefill tokens (prefill) or decoded tokens (the others), of all sequences
  double ttft_ms = 0;            // time to first token: the median
  double hit_rate = 0;           // reused tokens divided by all tokens of the prompts
  std::uint64_t suspensions = 0;
  double overhead = 0;            // share of the time of a step spent outside the model
  std::optional<Work> work;       // the unavoidable work, if there is a limit to compare with
  std::optional<double> speedup;  // of sequences that share a prefix, or of speculation, compared with those without
  std::optional<ServeTimes> serve;
  // The machine's limits just before and after. On a shared machine they change by half from minute to minute.
  std::optional<MachineLimits> machine;
  std::optional<double> read;  // bytes of memory per second, measured around the reported moment
};

struct WorkloadOptions {
  std::uint32_t repeat = 3;
  std::uint32_t context = 0;           // prompt length; 0: the workload's default
  std::vector<std::uint32_t> lengths;  // prompt lengths of prefill; empty: 128, 512, 2048
  std::vector<std::uint32_t> batches;  // batch sizes of decode; empty: 1, 2, 4, ... 64
  std::uint32_t shared = 32;           // sequences of shared-decode
  std::uint32_t tokens = 64;           // per answer
};

// Repeated steps are timed in moments of a few steps. The best moment counts.
inline constexpr std::uint32_t kStepsInAMoment = 8;

// The requirements of a workload for its host.
struct HostNeeds {
  std::uint32_t sequences = 64;
  // Tokens per sequence, at most the model's context. The pool holds all sequences at this length. If there is not
  // enough memory, the host has fewer sequences, but at least one. 0: the usual context and pool.
  std::uint32_t context = 0;
  std::uint64_t memory = 0;  // of the pool; 0: from the other fields
  bool smooth = true;        // decode goes on during the prefill of other sequences
  bool prefix_cache = true;
  std::shared_ptr<engine::Drafter> drafter = {};
};
// A hosted model, and the threads that compute it.
struct BenchHost {
  std::unique_ptr<engine::HostedModel> hosted;
  ThreadTeam* team = nullptr;        // the backend's, or `idle`
  std::unique_ptr<ThreadTeam> idle;  // where the device computes without the CPU's threads

  engine::HostedModel* operator->() const { return hosted.get(); }
  engine::HostedModel& operator*() const { return *hosted; }
};
using MakeHost = std::function<Result<BenchHost>(const HostNeeds& needs)>;

struct Told {
  std::function<void(const BenchRow& row)> row;
  std::function<void(const std::string& line)> note;  // what is not measured, or only in part, and why
  std::function<void(std::uint64_t done, std::uint64_t total)> prefill;  // progress of a long prefill, in tokens
  BestMoment::Look read_rate;
};

const std::vector<std::string>& workload_names();
// `name` is one of workload_names().
Result<void> run_workload(const std::string& name, const WorkloadOptions& options, const MakeHost& make,
                          const Told& tell);

}  // namespace quire::bench
