#include "quire/engine/hosted_model.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "quire/base/machine.h"
#include "quire/base/numbers.h"
#include "quire/engine/pool_size.h"
#include "quire/model/state_layout.h"

namespace quire::engine {
namespace {

// Unless told otherwise there is room for so many sequences of the whole context. Shorter ones, and those that share,
// are more.
constexpr std::uint64_t kContexts = 16;

// Recurrent states besides a sequence's own: what its prompt leaves behind for others to go on from.
constexpr std::uint32_t kCheckpoints = 8;

double mebibytes(std::uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

struct Size {
  std::uint32_t context = 0;
  std::uint64_t bytes = 0;
};

// Decides what was left open, and refuses what does not go together.
Result<Size> choose_size(const StateLayout& layout, std::uint32_t trained, const HostOptions& options,
                         SequenceNeeds needs) {
  if (options.context > trained) {
    return fail(fmt::format("a context of {} tokens is longer than the {} that the model was trained for",
                            options.context, trained));
  }
  const MachineMemory machine = machine_memory();
  if (options.memory > machine.total) {
    return fail(fmt::format("a pool of {:.1f} MiB is more memory than this machine has ({:.1f} MiB)",
                            mebibytes(options.memory), mebibytes(machine.total)));
  }
  needs.tokens = options.context != 0 ? options.context : trained;
  const auto one = bytes_for(layout, needs);
  if (!one) return std::unexpected(one.error());

  std::uint64_t bytes = options.memory;
  if (bytes == 0) {
    const std::uint64_t contexts = std::min<std::uint64_t>(kContexts, options.max_sequences);
    const std::uint64_t states = layout.has_recurrent() ? layout.recurrent.bytes() : 0;
    const auto many = checked_mul(*one, contexts);
    const auto rest = checked_mul(states, options.max_sequences - contexts);
    const auto wanted = many && rest ? checked_add(*many, *rest) : std::nullopt;
    bytes = std::min(wanted.value_or(UINT64_MAX), machine.available / 2);
    // One sequence of the context that was asked for is tried, even if it takes more than half.
    if (options.context != 0) bytes = std::max(bytes, *one);
    if (bytes > machine.total) {
      return fail(fmt::format("a context of {} tokens takes {:.1f} MiB, more memory than this machine has ({:.1f} MiB)",
                              needs.tokens, mebibytes(*one), mebibytes(machine.total)));
    }
  }
  const std::uint32_t tokens = tokens_within(layout, bytes, needs);
  if (options.context != 0 && tokens < options.context) {
    return fail(fmt::format("a pool of {:.1f} MiB is too small for one sequence of {} tokens, which takes {:.1f} MiB",
                            mebibytes(bytes), options.context, mebibytes(*one)));
  }
  if (tokens < std::min(trained, layout.block_size)) {
    needs.tokens = std::min(trained, layout.block_size);
    const auto least = bytes_for(layout, needs);
    if (!least) return std::unexpected(least.error());
    return fail(fmt::format("a pool of {:.2f} MiB is too small for one sequence: {} tokens take {:.2f} MiB",
                            mebibytes(bytes), needs.tokens, mebibytes(*least)));
  }
  return Size{tokens, bytes};
}

}  // namespace

HostedModel::~HostedModel() = default;

Result<std::unique_ptr<HostedModel>> HostedModel::create(std::unique_ptr<model::Model> model, HostOptions options) {
  if (options.max_sequences == 0) return fail("a pool for no sequences");
  std::unique_ptr<HostedModel> host(new HostedModel);
  const auto layout = model->layout(model::kDefaultBlockSize, options.kv_type);
  if (!layout) return std::unexpected(layout.error());

  // A step has a row for everyone who is writing.
  const std::uint32_t rows = std::max({options.step_tokens, options.max_sequences, 1u});
  const SequenceNeeds needs{.chunk = rows, .checkpoints = layout->has_recurrent() ? kCheckpoints : 0};
  const auto size = choose_size(*layout, model->numbers().context_length, options, needs);
  if (!size) return std::unexpected(size.error());

  const std::uint32_t threads = options.threads != 0 ? options.threads : available_cores();
  host->backend_ =
      std::make_unique<CpuBackend>(threads, options.kernels != nullptr ? *options.kernels : cpu::best_kernels());
  host->model_ = std::move(model);
  if (auto ok = host->model_->prepare(*host->backend_, rows, options.max_sequences); !ok) {
    return std::unexpected(ok.error());
  }

  PoolConfig config{.layout = *layout,
                    .budget_bytes = size->bytes,
                    .max_sequences = options.max_sequences,
                    .max_tokens = size->context};
  config.prefix_cache = options.prefix_cache;
  config.event_capacity = options.event_capacity;
  auto pool = SequencePool::create(host->backend_->device(), config);
  if (!pool) {
    return fail(fmt::format("a pool of {:.1f} MiB cannot be had: {}", mebibytes(size->bytes), pool.error().message()));
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
