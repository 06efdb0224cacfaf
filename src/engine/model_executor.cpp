#include "quire/engine/model_executor.h"

namespace quire::engine {

Result<std::unique_ptr<ModelExecutor>> ModelExecutor::create(model::Model& model, SequencePool& pool) {
  auto runner = model::Runner::create(model, pool);
  if (!runner) return std::unexpected(runner.error());
  return std::unique_ptr<ModelExecutor>(new ModelExecutor(model, std::move(*runner)));
}

}  // namespace quire::engine
