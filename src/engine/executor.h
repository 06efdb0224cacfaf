// Computes the forward pass of a step and samples from its logits. The engine schedules before it and commits after it.
// It is a model, or a fake in tests.
#pragma once

#include <cstdint>

#include "quire/backend/backend.h"
#include "quire/base/error.h"
#include "quire/model/step.h"
#include "quire/state/sequence_pool.h"

namespace quire::engine {

class Executor {
 public:
  virtual ~Executor() = default;

  virtual std::uint32_t vocabulary() const = 0;
  virtual std::uint32_t max_rows() const = 0;               // the most tokens in a step
  virtual std::uint32_t max_logits() const = 0;             // the most rows of logits, or of hidden states, in a step
  virtual std::uint32_t hidden_width() const { return 0; }  // elements of a hidden state; 0: it shows none
  virtual std::uint32_t adapters() const { return 0; }      // how many there are; they are numbered from 1

  // What it samples by itself in one step. For the rest the engine asks for logits and samples on the host: the token
  // is the same. The default is an executor that only computes logits.
  virtual sampling::Limits sampling_limits() const { return {}; }

  // Binds the batch to the pool, writes keys, values and recurrent states there, and returns what the engine wants of
  // the step, valid until the next one. The caller has reserved the memory and commits afterwards. After an error the
  // step is void, and nothing that was written to the device since the last step can be trusted.
  virtual PoolResult<model::StepOutput> forward(Batch& batch, const model::StepWants& wants) = 0;
};

}  // namespace quire::engine
