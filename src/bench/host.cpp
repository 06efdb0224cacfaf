#include "quire/bench/host.h"

#include <algorithm>

#include "quire/backend/cpu/cpu_backend.h"
#include "quire/backend/factory.h"
#include "quire/base/machine.h"
#include "quire/engine/pool_size.h"
#include "quire/model/state_layout.h"

namespace quire::bench {
namespace {

// A pool for this many sequences.
struct Pool {
  std::uint32_t sequences = 0;
  std::uint64_t bytes = 0;
};

// As many sequences as the memory allows, up to the number wanted, but at least one. If not even one fits, creating the
// host fails.
Result<Pool> pool_for(const model::Model& model, const engine::HostOptions& host, std::uint32_t wanted,
                      std::uint64_t available) {
  const auto layout = model.layout(host.block_size, host.kv_type, host.state_type);
  if (!layout) return std::unexpected(layout.error());
  // The first sequence has room for the checkpoints of its prompt. Each further sequence has room for one checkpoint
  // besides its own state.
  constexpr std::uint32_t kCheckpoints = 8;
  const std::uint32_t chunk = std::max(host.step_tokens, wanted);
  const auto first = engine::bytes_for(*layout, {.tokens = host.context, .chunk = chunk, .checkpoints = kCheckpoints});
  if (!first) return std::unexpected(first.error());
  const auto other = engine::bytes_for(*layout, {.tokens = host.context, .chunk = chunk, .checkpoints = 1});
  if (!other) return std::unexpected(other.error());

  std::uint64_t room = host.memory;
  if (room == 0) {
    // Memory besides the pool: a second copy of the weights in case the backend rearranges them, the scratch buffers of
    // a step, and some room for other programs.
    constexpr std::uint64_t kStep = std::uint64_t{512} << 20;
    std::uint64_t taken = kStep + available / 10;
    for (const gguf::File::Part& part : model.file().parts()) taken += part.bytes;
    room = available > taken ? available - taken : 0;
  }
  const std::uint64_t fit = room > *first ? (room - *first) / *other + 1 : 1;
  const auto sequences = static_cast<std::uint32_t>(std::min<std::uint64_t>(wanted, fit));
  return Pool{sequences, host.memory != 0 ? host.memory : *first + (sequences - 1) * *other};
}

}  // namespace

Result<BenchHost> make_host(std::unique_ptr<model::Model> model, const HostChoice& choice,
                            const WorkloadOptions& workload, const HostNeeds& needs) {
  auto backend = make_backend(
      {.device = choice.device, .threads = choice.threads, .placement = choice.placement, .variant = choice.variant});
  if (!backend) return std::unexpected(backend.error());
  engine::HostOptions host{.context = choice.context,
                           .memory = choice.memory != 0 ? choice.memory : needs.memory,
                           .kv_type = choice.kv_type,
                           .state_type = choice.state_type,
                           .block_size = choice.block_size,
                           .max_sequences = needs.sequences,
                           .prefix_cache = needs.prefix_cache};
  if (!needs.smooth) {
    // Decode does not delay the prefill of other sequences.
    host.engine.target_itl = std::chrono::microseconds(0);
    host.step_tokens += host.max_sequences;
  }
  const std::uint32_t trained = model->hyperparameters().context_length;
  if (needs.context != 0) {
    if (host.context == 0) host.context = std::min(trained, needs.context);
    const Device& device = (*backend)->device();
    const auto pool = pool_for(*model, host, needs.sequences,
                               device.has_own_memory() ? device.memory().free : machine_memory().available);
    if (!pool) return std::unexpected(pool.error());
    host.max_sequences = pool->sequences;
    host.memory = pool->bytes;
  } else if (host.context == 0) {
    // Limited to the longest prompt of a workload: a context of millions of tokens is not measured.
    constexpr std::uint32_t kEnough = 4096;
    const std::uint32_t wanted = workload.context + workload.tokens + 1024;
    host.context = std::min(trained, std::max(kEnough, wanted));
  }
  host.engine.queue_limit = 1024;
  host.engine.drafter = needs.drafter;
  // The machine's limits are measured with the same threads.
  BenchHost made;
  if (auto* cpu = dynamic_cast<CpuBackend*>(backend->get())) {
    made.team = &cpu->team();
  } else {
    made.idle = std::make_unique<ThreadTeam>(1);
    made.team = made.idle.get();
  }
  auto hosted = engine::HostedModel::create(std::move(model), std::move(*backend), host);
  if (!hosted) return std::unexpected(hosted.error());
  made.hosted = std::move(*hosted);
  return made;
}

}  // namespace quire::bench
