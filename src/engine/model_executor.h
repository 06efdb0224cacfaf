// A model as the engine's executor.
#pragma once

#include <memory>
#include <utility>

#include "quire/engine/executor.h"
#include "quire/model/runner.h"

namespace quire::engine {

class ModelExecutor final : public Executor {
 public:
  // Model and pool outlive it; the model has been prepared.
  static Result<std::unique_ptr<ModelExecutor>> create(model::Model& model, SequencePool& pool);

  std::uint32_t vocabulary() const override { return model_->hyperparameters().vocabulary; }
  std::uint32_t max_rows() const override { return model_->max_rows(); }
  std::uint32_t max_logits() const override { return model_->max_logits(); }
  std::uint32_t hidden_width() const override { return model_->hyperparameters().embedding; }
  std::uint32_t adapters() const override { return static_cast<std::uint32_t>(model_->adapters().size()); }
  sampling::Limits sampling_limits() const override { return model_->sampling_limits(); }
  PoolResult<model::StepOutput> forward(Batch& batch, const model::StepWants& wants) override {
    return runner_.forward(batch, wants);
  }

 private:
  ModelExecutor(model::Model& model, model::Runner runner) : model_(&model), runner_(std::move(runner)) {}

  model::Model* model_;
  model::Runner runner_;
};

}  // namespace quire::engine
