// Runs a model on a pool: binds a batch to the pool and computes it, or reserves, computes and commits in one call.
//
// Who may call: the thread that owns the pool. Nothing is allocated after create().
// How it fails: with the pool's error if there is no room, or with the device's. Nothing has been committed then.
#pragma once

#include <cstdint>
#include <vector>

#include "quire/model/model.h"
#include "quire/state/sequence_pool.h"

namespace quire::model {

class Runner {
 public:
  // Model and pool must outlive the runner. The model must have been prepared on the pool's device.
  static Result<Runner> create(Model& model, SequencePool& pool);

  // An empty batch, large enough for any step of this model.
  Batch make_batch() const;
  // The forward pass alone. The caller has reserved the pages and commits afterwards. A batch has at most
  // model.max_rows() tokens and max_logits() rows of logits.
  PoolResult<StepOutput> forward(Batch& batch, const StepWants& wants);
  // A whole step: reserve, compute, commit. Returns the logits that the batch wants, in its order.
  PoolResult<HostRows> run(Batch& batch);

 private:
  Runner(Model& model, SequencePool& pool);
  PoolResult<void> check(const Batch& batch) const;

  Model* model_;
  SequencePool* pool_;
  std::vector<std::uint32_t> all_rows_;  // of logits
};

}  // namespace quire::model
