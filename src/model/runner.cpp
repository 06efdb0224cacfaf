#include "quire/model/runner.h"

namespace quire::model {

Result<Runner> Runner::create(Model& model, Backend& backend, SequencePool& pool) {
  if (model.max_rows() == 0) return fail("the model has not been prepared for any step");
  Runner runner(model, backend, pool);
  const std::size_t parts = std::min<std::size_t>(model.max_rows(), pool.config().max_sequences);
  runner.tokens_.reserve(model.max_rows());
  runner.positions_.reserve(model.max_rows());
  runner.wanted_.reserve(model.max_logits());
  runner.parts_.reserve(parts);
  runner.kv_.reserve(parts * pool.layout().groups.size());
  runner.states_.reserve(parts);
  runner.demands_.reserve(parts);
  for (const PageShape& group : pool.layout().groups) runner.layer_bytes_.push_back(group.layer_bytes());
  return runner;
}

PoolResult<Rows> Runner::run(std::span<const Work> work) {
  if (auto ok = check(work); !ok) return std::unexpected(ok.error());
  demands_.clear();
  for (const Work& item : work) demands_.push_back({item.id, static_cast<std::uint32_t>(item.tokens.size())});
  if (auto ok = pool_->reserve(demands_); !ok) return std::unexpected(ok.error());
  const auto rows = forward(work);
  if (!rows) return rows;
  for (const Work& item : work) {
    if (auto ok = pool_->commit(item.id, item.tokens, item.checkpoint); !ok) return std::unexpected(ok.error());
  }
  return rows;
}

PoolResult<void> Runner::check(std::span<const Work> work) const {
  std::size_t rows = 0, logits = 0;
  for (const Work& item : work) {
    rows += item.tokens.size();
    logits += item.logits == Work::Logits::All ? item.tokens.size() : item.logits == Work::Logits::Last ? 1 : 0;
    if (item.tokens.empty())
      return std::unexpected(PoolError::invalid_argument("a step without tokens for a sequence"));
    for (const Token token : item.tokens) {
      if (token < 0 || static_cast<std::uint32_t>(token) >= model_->numbers().vocabulary) {
        return std::unexpected(PoolError::invalid_argument("a token that is not in the vocabulary"));
      }
    }
  }
  if (rows > model_->max_rows())
    return std::unexpected(PoolError::too_long("tokens in a step", rows, model_->max_rows()));
  if (logits > model_->max_logits()) {
    return std::unexpected(PoolError::too_long("rows of logits in a step", logits, model_->max_logits()));
  }
  return {};
}

PoolResult<Rows> Runner::forward(std::span<const Work> work) {
  if (auto ok = check(work); !ok) return std::unexpected(ok.error());
  tokens_.clear();
  positions_.clear();
  wanted_.clear();
  parts_.clear();
  kv_.clear();
  states_.clear();
  for (const Work& item : work) {
    const auto count = static_cast<std::uint32_t>(item.tokens.size());
    const auto first = static_cast<std::uint32_t>(tokens_.size());
    const std::uint32_t position = *pool_->length(item.id);
    parts_.push_back({first, count, position});
    for (std::uint32_t i = 0; i < count; ++i) {
      tokens_.push_back(item.tokens[i]);
      positions_.push_back(position + i);
      const bool want = item.logits == Work::Logits::All || (item.logits == Work::Logits::Last && i + 1 == count);
      if (want) wanted_.push_back(first + i);
    }
    if (pool_->layout().has_recurrent()) {
      const auto state = pool_->state_view(item.id);
      if (!state) return std::unexpected(state.error());
      states_.push_back(*state);
    }
  }
  for (std::uint32_t group = 0; group < pool_->layout().groups.size(); ++group) {
    for (const Work& item : work) {
      const auto view = pool_->kv_view(item.id, group, 0);
      if (!view) return std::unexpected(view.error());
      kv_.push_back(*view);
    }
  }
  return model_->forward(*backend_,
                         {.tokens = tokens_,
                          .positions = positions_,
                          .parts = parts_,
                          .kv = kv_,
                          .layer_bytes = layer_bytes_,
                          .states = states_},
                         wanted_);
}

}  // namespace quire::model
