#include "quire/engine/hosted_model.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "quire/engine/head_drafter.h"
#include "quire/engine/model_executor.h"
#include "quire/engine/pool_size.h"
#include "quire/model/fingerprint.h"
#include "quire/model/state_layout.h"

namespace quire::engine {
namespace {

// By default the pool has room for this many sequences of the whole context. More fit if they are shorter or share
// prefixes.
constexpr std::uint32_t kContexts = 16;

// The most rows of logits for drafts.
constexpr std::uint32_t kDraftRows = 64;

// To be raised with every change after which the same model gives other bits: what an earlier version has left on disks
// and in shared stores is then another model's.
constexpr std::uint32_t kArithmeticVersion = 2;

}  // namespace

std::string arithmetic_of(const BackendFacts& facts) {
  return fmt::format("{} {}", facts.device.substr(0, facts.device.find(':')), facts.variant);
}

HostedModel::HostedModel() = default;
HostedModel::~HostedModel() {
  engine_.reset();
  executor_.reset();
  pool_.reset();
  // Others may hold the tiers longer than the device lives.
  if (tiers_) tiers_->detach();
}

Result<std::unique_ptr<HostedModel>> HostedModel::create(std::unique_ptr<model::Model> model,
                                                         const HostOptions& options) {
  auto backend = make_backend(options.backend);
  if (!backend) return std::unexpected(backend.error());
  return create(std::move(model), std::move(*backend), options);
}

Result<std::unique_ptr<HostedModel>> HostedModel::create(std::unique_ptr<model::Model> model,
                                                         std::unique_ptr<Backend> backend, const HostOptions& options) {
  if (options.max_sequences == 0) return fail("max_sequences is 0: the pool needs room for at least one sequence");
  if (!backend->stores(options.kv_type)) {
    return fail(
        fmt::format("keys and values cannot be kept as {} on {}", name(options.kv_type), backend->facts().device));
  }
  if (!backend->stores_state(options.state_type)) {
    return fail(
        fmt::format("recurrent states cannot be kept as {} on {}", name(options.state_type), backend->facts().device));
  }
  if (options.engine.host_cache_bytes > 0 && !backend->device().has_own_memory()) {
    return fail("a host cache is for a GPU: on a CPU host memory is the pool's own, so give the pool more of it");
  }
  std::unique_ptr<HostedModel> host(new HostedModel);
  host->backend_ = std::move(backend);
  host->model_ = std::move(model);
  const auto layout = host->model_->layout(options.block_size, options.kv_type, options.state_type);
  if (!layout) return std::unexpected(layout.error());

  const bool drafts = options.heads || options.engine.drafter;
  // A step needs a row for every sequence that decodes.
  const std::uint32_t rows = std::max({options.step_tokens, options.max_sequences, 1u});
  // Drafts need logits too. Where many sequences decode, they do not pay, so a few rows for all are enough.
  const std::uint32_t draft_rows =
      drafts ? std::min(kDraftRows, options.max_sequences * options.engine.draft_tokens) : 0;
  const std::uint32_t logits = std::min(rows, std::max(options.max_logits, options.max_sequences + draft_rows));
  // The weights come first. The pool can use the device memory that is free afterwards.
  if (auto ok = host->model_->prepare(*host->backend_, rows, logits); !ok) return std::unexpected(ok.error());

  EngineOptions engine_options = options.engine;
  if (options.heads) {
    auto drafter = make_head_drafter(*host->model_, *host->backend_, options);
    if (!drafter) return std::unexpected(drafter.error());
    engine_options.drafter = std::move(*drafter);
  }

  // Drafts of a recurrent model need a scratch state.
  const std::uint32_t states = drafts ? std::max(options.checkpoints, 1u) : options.checkpoints;
  const SequenceNeeds needs{.chunk = rows, .checkpoints = layout->has_recurrent() ? states : 0};
  const std::uint32_t contexts = std::min(kContexts, options.max_sequences);
  const PoolWish wish{.context = options.context,
                      .memory = options.memory,
                      .device = host->backend_->device().memory(),
                      .own_memory = host->backend_->device().has_own_memory(),
                      .contexts = contexts,
                      .more_sequences = options.max_sequences - contexts};
  const auto size = choose_pool_size(*layout, host->model_->hyperparameters().context_length, wish, needs);
  if (!size) return std::unexpected(size.error());

  PoolConfig config{.layout = *layout,
                    .budget_bytes = size->bytes,
                    .max_sequences = options.max_sequences + (options.tiers ? kTierSequences : 0),
                    .max_tokens = size->context};
  const BackendFacts facts = host->backend_->facts();
  config.model = model::fingerprint(host->model_->file(), fmt::format("{}{} version {}", arithmetic_of(facts),
                                                                      host->model_->arithmetic(), kArithmeticVersion));
  config.prefix_cache = options.prefix_cache;
  // Not all of the pool: states are large, and the pages of a prefix are worth as much as the state at its end.
  config.checkpoint_budget_bytes = size->bytes / 100 * std::min(options.checkpoint_percent, 100u);
  config.checkpoint_interval = options.checkpoint_interval;
  config.checkpoint_unit = model::checkpoint_unit_for(layout->block_size, options.checkpoint_unit);
  config.event_capacity = options.event_capacity;
  config.journal = options.journal;
  host->tiers_ = options.tiers;
  if (host->tiers_) {
    for (const model::Adapter& adapter : host->model_->adapters()) host->tiers_->add_adapter(adapter.fingerprint());
  }
  config.observer = host->tiers_.get();
  auto pool = SequencePool::create(host->backend_->device(), config);
  if (!pool) {
    return fail(fmt::format("cannot allocate a pool of {} bytes: {}", size->bytes, pool.error().message()));
  }
  host->pool_ = std::move(*pool);
  if (auto ok = host->pool_->can_ever_fit(size->context, rows); !ok) return fail(ok.error().message());

  auto executor = ModelExecutor::create(*host->model_, *host->pool_);
  if (!executor) return std::unexpected(executor.error());
  host->executor_ = std::move(*executor);
  if (host->tiers_) {
    if (auto ok = host->tiers_->attach(*host->pool_); !ok) {
      return fail(fmt::format("staging memory for the tiers: {}", ok.error().message()));
    }
    engine_options.tiers = host->tiers_.get();
    engine_options.machine = fmt::format("{} threads", facts.threads);
  }
  auto engine = Engine::create(*host->executor_, *host->pool_, engine_options);
  if (!engine) return std::unexpected(engine.error());
  host->engine_ = std::move(*engine);
  return host;
}

}  // namespace quire::engine
