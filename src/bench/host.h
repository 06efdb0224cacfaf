// The host that a workload wants: a model with a pool of the size that is needed and no larger.
//
// Who may call: anyone. How it fails: with one line, where the options contradict the model or the memory cannot be
// had.
#pragma once

#include <memory>

#include "quire/base/error.h"
#include "quire/bench/workloads.h"

namespace quire::bench {

// What the user chose, whatever the workload.
struct HostChoice {
  std::uint32_t threads = 0;  // 0: one for each core
  std::string variant;        // of the kernels; empty: the best
  std::uint32_t context = 0;  // tokens; 0: what the workload needs
  std::uint64_t memory = 0;   // bytes of the pool; 0: what the workload needs
  ElementType kv_type = ElementType::F16;
};

Result<BenchHost> make_host(std::unique_ptr<model::Model> model, const HostChoice& choice,
                            const WorkloadOptions& workload, const HostNeeds& needs);

}  // namespace quire::bench
