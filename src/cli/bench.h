// `quire bench`: what the engine reaches on this machine, as a table or as one JSON object per row.
#pragma once

#include <string>
#include <vector>

#include "quire/base/error.h"
#include "quire/cli/console.h"
#include "quire/cli/load.h"
#include "quire/cli/workloads.h"

namespace quire::cli {

struct BenchOptions {
  ModelOptions model;
  std::vector<std::string> workloads;  // empty: all
  WorkloadOptions workload;
  bool json = false;
};

// Rows are written as they are measured.
Result<std::string> bench(const BenchOptions& options, const Console& console);

}  // namespace quire::cli
