#include "quire/engine/session.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "quire/base/check.h"
#include "quire/base/machine.h"
#include "quire/engine/pool_size.h"
#include "quire/model/state_layout.h"

namespace quire::engine {

namespace {

using Logits = model::Runner::Work::Logits;

// A conversation goes back to where its last answer began, so two recurrent states are enough: one there, and one more
// so that the next can be kept before that one goes.
constexpr std::uint32_t kCheckpoints = 2;

// Pages that fell out of a window are needed again by who goes back; so many tokens of them may stay cached.
constexpr std::uint32_t kWindowSlack = 512;

}  // namespace

Result<std::unique_ptr<Session>> Session::create(std::unique_ptr<model::Model> model, const SessionOptions& options) {
  std::unique_ptr<Session> session(new Session);
  const auto layout = model->layout(model::kDefaultBlockSize, options.kv_type);
  if (!layout) return std::unexpected(layout.error());
  session->keeps_checkpoints_ = options.rewinds && layout->has_recurrent();

  const std::uint32_t chunk = std::max(options.chunk, 1u);
  // The weights come first: what is free afterwards is what a pool can have.
  const std::uint32_t threads = options.threads != 0 ? options.threads : available_cores();
  session->backend_ =
      std::make_unique<CpuBackend>(threads, options.kernels != nullptr ? *options.kernels : cpu::best_kernels());
  session->model_ = std::move(model);
  const std::uint32_t context_length = session->model_->numbers().context_length;
  const std::uint32_t most_rows = std::min(chunk, options.context != 0 ? options.context : context_length);
  if (auto ok = session->model_->prepare(*session->backend_, most_rows, std::clamp(options.max_logits, 1u, most_rows));
      !ok) {
    return std::unexpected(ok.error());
  }

  const SequenceNeeds needs{.chunk = chunk + (options.rewinds ? kWindowSlack : 0),
                            .checkpoints = session->keeps_checkpoints_ ? kCheckpoints : 0};
  const PoolWish wish{.context = options.context, .memory = options.memory};
  const auto size = choose_pool_size(*layout, context_length, wish, needs);
  if (!size) return std::unexpected(size.error());

  const std::uint32_t rows = std::min(most_rows, size->context);

  PoolConfig config{.layout = *layout, .budget_bytes = size->bytes, .max_sequences = 1, .max_tokens = size->context};
  config.prefix_cache = options.rewinds;
  config.checkpoint_budget_bytes = needs.checkpoints * layout->recurrent.bytes();
  config.max_recompute = size->context;  // the last checkpoints matter, however far they are from the others
  config.event_capacity = 64;
  auto pool = SequencePool::create(session->backend_->device(), config);
  if (!pool) {
    return fail(fmt::format("a pool of {} bytes cannot be had: {}", size->bytes, pool.error().message()));
  }
  session->pool_ = std::move(*pool);
  if (auto ok = session->pool_->can_ever_fit(size->context, rows); !ok) return fail(ok.error().message());

  auto runner = model::Runner::create(*session->model_, *session->backend_, *session->pool_);
  if (!runner) return std::unexpected(runner.error());
  session->runner_.emplace(std::move(*runner));
  return session;
}

std::uint32_t Session::length() const { return sequence_ ? *pool_->length(*sequence_) : 0; }

void Session::reset() {
  logits_ = {};
  if (!sequence_) return;
  const auto ok = pool_->release(*sequence_);
  QUIRE_CHECK(ok.has_value(), "the session's own sequence is alive");
  sequence_.reset();
}

Result<Rows> Session::step(std::span<const Token> tokens, Logits logits, bool checkpoint) {
  const model::Runner::Work work{.id = *sequence_, .tokens = tokens, .logits = logits, .checkpoint = checkpoint};
  const auto rows = runner_->run(std::span(&work, 1));
  if (!rows) return fail(rows.error().message());
  return *rows;
}

// Brings the sequence to a beginning of `tokens`, the longest that can be had; at least one token is left to compute,
// since its logits are wanted.
Result<std::uint32_t> Session::stand_before_rest(std::span<const Token> tokens) {
  if (!sequence_) {
    const auto created = pool_->create({.prompt = tokens, .reuse = pool_->config().prefix_cache});
    if (!created) return fail(created.error().message());
    sequence_ = created->id;
    return created->hit.tokens;
  }
  const std::span<const Token> held = *pool_->tokens(*sequence_);
  const auto shared = std::ranges::mismatch(held, tokens.first(tokens.size() - 1)).in1 - held.begin();
  const auto position = pool_->rewind(*sequence_, static_cast<std::uint32_t>(shared));
  if (!position) return fail(position.error().message());
  return *position;
}

// The last place before `end` where a recurrent state can be kept.
std::uint32_t Session::last_boundary(std::uint32_t end) const {
  return (end - 1) / pool_->layout().block_size * pool_->layout().block_size;
}

// Where the chunk that begins at `position` ends. Recurrent states can be kept only where a chunk ends.
std::uint32_t Session::next_chunk(std::uint32_t position, std::uint32_t end) const {
  std::uint32_t stop = std::min(end, position + model_->max_rows());
  if (!keeps_checkpoints_) return stop;
  if (const auto due = pool_->next_checkpoint(*sequence_); due && *due > position) stop = std::min(stop, *due);
  return position < last_boundary(end) ? std::min(stop, last_boundary(end)) : stop;
}

Result<Session::Reading> Session::read(std::span<const Token> tokens, const Watch& watch) {
  if (tokens.empty()) return fail("there is nothing to read: no tokens");
  if (tokens.size() > context()) {
    return fail(fmt::format("{} tokens do not fit the context of {}", tokens.size(), context()));
  }
  logits_ = {};
  const auto start = stand_before_rest(tokens);
  if (!start) return std::unexpected(start.error());
  const auto end = static_cast<std::uint32_t>(tokens.size());
  Reading reading{.reused = *start};
  for (std::uint32_t position = *start; position < end;) {
    if (watch && !watch(position, end)) {
      reading.complete = false;
      return reading;
    }
    const std::uint32_t stop = next_chunk(position, end);
    const auto rows = step(tokens.subspan(position, stop - position), stop == end ? Logits::Last : Logits::None,
                           keeps_checkpoints_ && stop == last_boundary(end));
    if (!rows) return std::unexpected(rows.error());
    if (stop == end) logits_ = std::span(rows->row(0), rows->cols);
    reading.computed += stop - position;
    position = stop;
  }
  if (watch) (void)watch(end, end);
  return reading;
}

Result<void> Session::read_all(std::span<const Token> tokens, const RowsSink& sink) {
  if (tokens.empty()) return fail("there is nothing to read: no tokens");
  if (tokens.size() > context()) {
    return fail(fmt::format("{} tokens do not fit the context of {}", tokens.size(), context()));
  }
  reset();
  const auto created = pool_->create({.prompt = tokens, .reuse = false});
  if (!created) return fail(created.error().message());
  sequence_ = created->id;
  const std::size_t chunk = std::min(model_->max_rows(), model_->max_logits());
  while (!tokens.empty()) {
    const std::size_t count = std::min(chunk, tokens.size());
    const auto rows = step(tokens.first(count), Logits::All, false);
    if (!rows) return std::unexpected(rows.error());
    if (auto ok = sink(*rows); !ok) return ok;
    tokens = tokens.subspan(count);
    logits_ = std::span(rows->row(rows->rows - 1), rows->cols);
  }
  return {};
}

Result<void> Session::write(Token token) {
  if (!sequence_) return fail("there is nothing to continue: no tokens");
  if (length() == context()) return fail(fmt::format("the context of {} tokens is full", context()));
  logits_ = {};
  const auto rows = step(std::span(&token, 1), Logits::Last, false);
  if (!rows) return std::unexpected(rows.error());
  logits_ = std::span(rows->row(0), rows->cols);
  return {};
}

}  // namespace quire::engine
