#include "quire/engine/hosted_model.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "quire/backend/cpu/cpu_backend.h"
#include "quire/base/machine.h"
#include "quire/engine/model_executor.h"
#include "quire/engine/pool_size.h"
#include "quire/model/state_layout.h"

namespace quire::engine {
namespace {

// Unless told otherwise there is room for so many sequences of the whole context. Shorter ones, and those that share,
// are more.
constexpr std::uint32_t kContexts = 16;

// Recurrent states besides a sequence's own: what its prompt leaves behind for others to go on from.
constexpr std::uint32_t kCheckpoints = 8;

}  // namespace

HostedModel::HostedModel() = default;
HostedModel::~HostedModel() = default;

Result<std::unique_ptr<HostedModel>> HostedModel::create(std::unique_ptr<model::Model> model, HostOptions options) {
  if (options.max_sequences == 0) return fail("a pool for no sequences");
  std::unique_ptr<HostedModel> host(new HostedModel);
  const auto layout = model->layout(model::kDefaultBlockSize, options.kv_type);
  if (!layout) return std::unexpected(layout.error());

  // A step has a row for everyone who is writing.
  const std::uint32_t rows = std::max({options.step_tokens, options.max_sequences, 1u});
  // The weights come first: what is free afterwards is what a pool can have.
  const std::uint32_t threads = options.threads != 0 ? options.threads : available_cores();
  host->backend_ =
      std::make_unique<CpuBackend>(threads, options.kernels != nullptr ? *options.kernels : cpu::best_kernels());
  host->model_ = std::move(model);
  if (auto ok = host->model_->prepare(*host->backend_, rows, options.max_sequences); !ok) {
    return std::unexpected(ok.error());
  }

  const SequenceNeeds needs{.chunk = rows, .checkpoints = layout->has_recurrent() ? kCheckpoints : 0};
  const std::uint32_t contexts = std::min(kContexts, options.max_sequences);
  const PoolWish wish{.context = options.context,
                      .memory = options.memory,
                      .contexts = contexts,
                      .more_sequences = options.max_sequences - contexts};
  const auto size = choose_pool_size(*layout, host->model_->numbers().context_length, wish, needs);
  if (!size) return std::unexpected(size.error());

  PoolConfig config{.layout = *layout,
                    .budget_bytes = size->bytes,
                    .max_sequences = options.max_sequences,
                    .max_tokens = size->context};
  config.prefix_cache = options.prefix_cache;
  config.event_capacity = options.event_capacity;
  auto pool = SequencePool::create(host->backend_->device(), config);
  if (!pool) {
    return fail(fmt::format("a pool of {} bytes cannot be had: {}", size->bytes, pool.error().message()));
  }
  host->pool_ = std::move(*pool);
  if (auto ok = host->pool_->can_ever_fit(size->context, rows); !ok) return fail(ok.error().message());

  auto executor = ModelExecutor::create(*host->model_, *host->backend_, *host->pool_);
  if (!executor) return std::unexpected(executor.error());
  host->executor_ = std::move(*executor);
  auto engine = Engine::create(*host->executor_, *host->pool_, options.engine);
  if (!engine) return std::unexpected(engine.error());
  host->engine_ = std::move(*engine);
  return host;
}

}  // namespace quire::engine
