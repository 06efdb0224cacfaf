// The real scheduler and the real pool in simulated time. A trace takes the place of clients, and a cost model the
// place of a model: a step takes as long as the costs say, and computes nothing.
//
//   auto trace = read_trace(paths);
//   auto result = simulate(*trace, {.layout = layout, .costs = costs, .memory = 64 << 30});
//
// What is as in a server: admission, prefix reuse, eviction, the composition of each step, suspension. What is not:
// - Time passes only in steps and in copies on the device. Scheduling, sampling and the network take none.
// - Answers have the length that the trace gives. Their tokens take room in the pool, but no later prompt begins with
//   them: the trace does not say which prompt continues which answer.
// - No request is refused because the queue is full. In an overloaded server it waits, and the times to the first token
//   grow. A request that does not fit into the empty pool is refused.
// - Suspended sequences are recomputed, never copied to host memory.
//
// Who may call: anyone, from any thread; there is no state.
// What holds: the same trace and options give the same result.
// How it fails: simulate() returns one line if there can be no such pool or engine.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "quire/base/error.h"
#include "quire/base/percentiles.h"
#include "quire/engine/cost_model.h"
#include "quire/simulate/trace.h"
#include "quire/state/eviction.h"
#include "quire/state/layout.h"

namespace quire::simulate {

std::string_view name(Eviction policy);  // "lru", "value"
const std::vector<Eviction>& all_policies();

struct SimulationOptions {
  StateLayout layout;
  std::uint32_t checkpoint_unit = 0;  // see PoolConfig
  engine::StepCosts costs;
  double copy_seconds = 1e-12;  // for each byte that is copied on the device
  std::uint64_t memory = 0;     // bytes of the pool
  Eviction policy = Eviction::Value;
  double rate = 1;            // 2: requests come twice as fast as in the trace
  std::uint32_t context = 0;  // longest sequence; 0: the longest of the trace
  std::uint32_t max_sequences = 256;
  std::uint32_t step_tokens = 4096;
  std::optional<std::chrono::microseconds> target_itl;  // as in EngineOptions
  bool check_integrity = false;                         // check the pool after every step (tests)
};

struct SimulationResult {
  std::uint64_t finished = 0, refused = 0;  // requests
  std::uint64_t prompt_tokens = 0;          // of requests that were not refused
  std::uint64_t refused_tokens = 0;         // of prompts that were refused
  std::uint64_t hit_tokens = 0;             // of those, found in the pool when the request was first admitted
  std::uint64_t output_tokens = 0;
  Percentiles first_token, between_tokens;  // in seconds
  std::uint64_t suspensions = 0, steps = 0;
  double seconds = 0;       // simulated, from the first request to the last token
  double busy_seconds = 0;  // of those, in steps

  // Of all prompts of the trace. Otherwise a pool would look better for refusing long prompts.
  double hit_share() const {
    return static_cast<double>(hit_tokens) / static_cast<double>(prompt_tokens + refused_tokens);
  }
};

using Progress = std::function<void(std::uint64_t done, std::uint64_t total)>;  // in requests
Result<SimulationResult> simulate(const Trace& trace, const SimulationOptions& options, const Progress& progress = {});

}  // namespace quire::simulate
