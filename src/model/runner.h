// A model on a pool: a batch is bound to the pool and computed; or reserved, computed and committed in one call.
//
// Who may call: the thread that owns the pool. Nothing is allocated after create().
// How it fails: with the pool's error where there is no room, or the device's; then nothing has been committed.
#pragma once

#include "quire/model/model.h"
#include "quire/state/sequence_pool.h"

namespace quire::model {

class Runner {
 public:
  // Model and pool must outlive the runner. The model has been prepared, on the device that the pool is on.
  static Result<Runner> create(Model& model, SequencePool& pool);

  // An empty batch, large enough for any step of this model.
  Batch make_batch() const;
  // The forward pass alone. The caller has reserved the room and commits afterwards. Gives the logits that the batch
  // wants, in its order. At most model.max_rows() tokens and max_logits() rows of logits.
  PoolResult<HostRows> forward(Batch& batch);
  // A whole step: reserve, compute, commit.
  PoolResult<HostRows> run(Batch& batch);

 private:
  Runner(Model& model, SequencePool& pool) : model_(&model), pool_(&pool) {}
  PoolResult<void> check(const Batch& batch) const;

  Model* model_;
  SequencePool* pool_;
};

}  // namespace quire::model
