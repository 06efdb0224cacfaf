// `quire bench`: the speed of the engine on this machine, as a table or as one JSON object per row, compared with the
// most that the machine could reach (quire/bench/limit.h).
//
// What holds: the machine's limits are measured in the same run, before the first workload and after each workload
//   that has a limit. The best measurement counts, so that a busy moment of the machine does not make a ratio look
//   better. So the rows of a workload are written when it is over.
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
  std::vector<synth::Shape> shapes;    // synthetic models, instead of `model`
  std::vector<std::string> types;      // of the shapes: each shape is measured in each type; empty: Q8_0
  std::vector<std::string> workloads;  // empty: the usual ones, or for a shape those that have limits
  bench::WorkloadOptions workload;
  std::vector<bench::Target> targets;  // of `shapes`; if given, only their rows are measured, and a report is made
  std::string report;                  // the page for the report; empty: none
  // With more than one, all workloads are measured with each of them, each time beside the limits of as many threads,
  // and the rates are compared with those of the first. Empty: that of `model`.
  std::vector<std::uint32_t> threads;
  bool json = false;
  bench::LimitOptions limits;  // threads and variant are replaced by those of `model`
};

Result<std::string> bench(const BenchOptions& options, const Console& console);

}  // namespace quire::cli
