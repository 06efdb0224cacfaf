// What computes a step. The engine schedules and samples; between the two stands one of these: a model, or in tests
// something that only pretends to be one.
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
  virtual std::uint32_t max_rows() const = 0;    // tokens in a step
  virtual std::uint32_t max_logits() const = 0;  // rows in a step whose logits are wanted

  // Binds the batch to the pool, writes what the layers remember of its tokens there, and gives the logits that it
  // wants, in its order, valid until the next step. The pool has reserved the room; the engine commits afterwards.
  // After an error the step is void, and nothing that was written to the device since the last step can be trusted.
  virtual PoolResult<HostRows> forward(Batch& batch) = 0;
};

}  // namespace quire::engine
