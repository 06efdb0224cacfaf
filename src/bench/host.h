// Makes the host for a workload: a model with a pool that is just large enough.
//
// Who may call: anyone.
// How it fails: with one line, if the options contradict the model or there is not enough memory.
#pragma once

#include <memory>

#include "quire/base/error.h"
#include "quire/bench/workloads.h"

namespace quire::bench {

// The user's options, which apply to every workload.
struct HostChoice {
  std::string device = "cpu";  // as make_backend() knows them
  std::uint32_t threads = 0;   // 0: one per core
  Placement placement = {};    // of threads and memory
  std::string variant;         // of the kernels; empty: the best
  std::uint32_t context = 0;   // tokens; 0: what the workload needs
  std::uint64_t memory = 0;    // bytes of the pool; 0: what the workload needs
  ElementType kv_type = ElementType::F16;
  ElementType state_type = ElementType::F32;
  std::uint32_t block_size = kDefaultBlockSize;
};

Result<BenchHost> make_host(std::unique_ptr<model::Model> model, const HostChoice& choice,
                            const WorkloadOptions& workload, const HostNeeds& needs);

}  // namespace quire::bench
