// `quire bench`: what the engine reaches on this machine, as a table or as one JSON object per row, beside what the
// machine could reach at most (quire/bench/limit.h).
//
// What holds: the machine's limits are measured in the same run, before the first workload and behind each that has a
//   limit, and the best of all is what counts: a moment in which the machine did something else flatters nobody. So the
//   rows of a workload are written when it is over.
#pragma once

#include <string>
#include <vector>

#include "quire/base/error.h"
#include "quire/bench/machine_limits.h"
#include "quire/bench/report.h"
#include "quire/bench/synth/synth.h"
#include "quire/bench/workloads.h"
#include "quire/cli/console.h"
#include "quire/cli/load.h"

namespace quire::cli {

struct BenchOptions {
  ModelOptions model;
  std::vector<synth::Shape> shapes;    // synthetic models in place of `model`
  std::vector<std::string> types;      // of them, each shape in each; empty: Q8_0
  std::vector<std::string> workloads;  // empty: those of everyday life, or for a shape those that have limits
  bench::WorkloadOptions workload;
  std::vector<bench::Target> targets;  // of `shapes`: their rows are measured and no others, and a report is made
  std::string report;                  // the page that it is written into; empty: none
  bool json = false;
  bench::LimitOptions limits;  // its threads and variant are the model's
};

Result<std::string> bench(const BenchOptions& options, const Console& console);

}  // namespace quire::cli
