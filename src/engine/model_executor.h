// A model as the engine's executor.
#pragma once

#include <memory>
#include <vector>

#include "quire/engine/executor.h"
#include "quire/model/runner.h"

namespace quire::engine {

class ModelExecutor final : public Executor {
 public:
  // Model, backend and pool outlive it; the model has been prepared.
  static Result<std::unique_ptr<ModelExecutor>> create(model::Model& model, Backend& backend, SequencePool& pool);

  std::uint32_t vocabulary() const override { return model_->numbers().vocabulary; }
  std::uint32_t max_rows() const override { return model_->max_rows(); }
  std::uint32_t max_logits() const override { return model_->max_logits(); }
  PoolResult<Rows> forward(std::span<const Work> work) override;

 private:
  ModelExecutor(model::Model& model, model::Runner runner);

  model::Model* model_;
  model::Runner runner_;
  std::vector<model::Runner::Work> work_;  // scratch of a step
};

}  // namespace quire::engine
