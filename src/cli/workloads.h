// What `quire bench` measures: the engine under workloads that people have, offline, on random prompts.
//
// What holds: every workload is repeated and the best is told; prompts of one repetition are not found in the cache of
//   another unless finding them is what is measured.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "quire/base/error.h"
#include "quire/engine/hosted_model.h"

namespace quire::cli {

// One line of the table.
struct BenchRow {
  std::string workload;
  std::string phase;             // of a workload that has several: "first", "later"
  std::uint32_t batch = 1;       // sequences at once
  std::uint32_t context = 0;     // tokens of a prompt
  double tokens_per_second = 0;  // read (prefill) or written (the others), all sequences together
  double ttft_ms = 0;            // time to first token: the median
  double hit_rate = 0;           // tokens of prompts that were found, of all
  std::uint64_t suspensions = 0;
  double overhead = 0;  // share of the steps spent outside the model
};

struct WorkloadOptions {
  std::uint32_t repeat = 3;
  std::uint32_t context = 0;           // tokens of the prompts; 0: each workload's own
  std::vector<std::uint32_t> batches;  // of decode; empty: 1, 2, 4, ... 64
  std::uint32_t tokens = 64;           // of an answer
};

// Makes a host; `memory` 0 is its own choice.
struct HostNeeds {
  std::uint32_t sequences = 64;
  std::uint64_t memory = 0;
  bool smooth = true;  // answers flow while prompts are read
};
using MakeHost = std::function<Result<std::unique_ptr<engine::HostedModel>>(const HostNeeds& needs)>;
using Told = std::function<void(const BenchRow& row)>;

const std::vector<std::string>& workload_names();
// `name` is one of them.
Result<void> run_workload(const std::string& name, const WorkloadOptions& options, const MakeHost& make,
                          const Told& tell);

}  // namespace quire::cli
