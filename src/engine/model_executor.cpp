#include "quire/engine/model_executor.h"

#include <utility>

namespace quire::engine {

ModelExecutor::ModelExecutor(model::Model& model, model::Runner runner) : model_(&model), runner_(std::move(runner)) {
  work_.reserve(model.max_rows());
}

Result<std::unique_ptr<ModelExecutor>> ModelExecutor::create(model::Model& model, Backend& backend,
                                                             SequencePool& pool) {
  auto runner = model::Runner::create(model, backend, pool);
  if (!runner) return std::unexpected(runner.error());
  return std::unique_ptr<ModelExecutor>(new ModelExecutor(model, std::move(*runner)));
}

PoolResult<Rows> ModelExecutor::forward(std::span<const Work> work) {
  using Logits = model::Runner::Work::Logits;
  work_.clear();
  for (const Work& item : work) work_.push_back({item.id, item.tokens, item.logits ? Logits::Last : Logits::None});
  return runner_.forward(work_);
}

}  // namespace quire::engine
