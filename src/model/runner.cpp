#include "quire/model/runner.h"

#include <algorithm>
#include <numeric>

namespace quire::model {

Runner::Runner(Model& model, SequencePool& pool) : model_(&model), pool_(&pool), all_rows_(model.max_logits()) {
  std::iota(all_rows_.begin(), all_rows_.end(), 0);
}

Result<Runner> Runner::create(Model& model, SequencePool& pool) {
  if (model.max_rows() == 0) return fail("the model has not been prepared for any step");
  return Runner(model, pool);
}

Batch Runner::make_batch() const {
  return Batch(model_->max_rows(), std::min(model_->max_rows(), pool_->config().max_sequences),
               static_cast<std::uint32_t>(pool_->layout().groups.size()));
}

PoolResult<void> Runner::check(const Batch& batch) const {
  if (batch.rows() > model_->max_rows()) {
    return std::unexpected(PoolError::too_long("tokens in a step", batch.rows(), model_->max_rows()));
  }
  if (batch.wanted().size() > model_->max_logits()) {
    return std::unexpected(
        PoolError::too_long("rows of logits in a step", batch.wanted().size(), model_->max_logits()));
  }
  for (const BatchEntry& entry : batch.entries()) {
    if (entry.rows == 0) return std::unexpected(PoolError::invalid_argument("a step without tokens for a sequence"));
  }
  const std::uint32_t vocabulary = model_->hyperparameters().vocabulary;
  for (const Token token : batch.tokens()) {
    if (token < 0 || static_cast<std::uint32_t>(token) >= vocabulary) {
      return std::unexpected(PoolError::invalid_argument("a token that is not in the vocabulary"));
    }
  }
  return {};
}

PoolResult<StepOutput> Runner::forward(Batch& batch, const StepWants& wants) {
  if (auto ok = check(batch); !ok) return std::unexpected(ok.error());
  if (auto ok = pool_->bind(batch); !ok) return std::unexpected(ok.error());
  return model_->forward(batch, wants);
}

PoolResult<HostRows> Runner::run(Batch& batch) {
  if (auto ok = check(batch); !ok) return std::unexpected(ok.error());
  if (auto ok = pool_->reserve(batch.entries()); !ok) return std::unexpected(ok.error());
  const auto output = forward(batch, {.jobs = {}, .logits = std::span(all_rows_).first(batch.wanted().size())});
  if (!output) return std::unexpected(output.error());
  if (auto ok = pool_->commit(batch); !ok) return std::unexpected(ok.error());
  return output->logits;
}

}  // namespace quire::model
