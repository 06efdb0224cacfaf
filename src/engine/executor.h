// Computes the forward pass of a step. The engine schedules before it and samples after it. It is a model, or a fake in
// tests.
#pragma once

#include <cstdint>

#include "quire/backend/backend.h"
#include "quire/base/error.h"
#include "quire/state/sequence_pool.h"

namespace quire::engine {

class Executor {
 public:
  virtual ~Executor() = default;

  virtual std::uint32_t vocabulary() const = 0;
  virtual std::uint32_t max_rows() const = 0;    // the most tokens in a step
  virtual std::uint32_t max_logits() const = 0;  // the most rows of logits in a step

  // Binds the batch to the pool, writes keys, values and recurrent states there, and returns the logits that the batch
  // wants, in its order. They are valid until the next step. The caller has reserved the memory and commits afterwards.
  // After an error the step is void, and nothing that was written to the device since the last step can be trusted.
  virtual PoolResult<HostRows> forward(Batch& batch) = 0;
};

}  // namespace quire::engine
