// What computes a step. The engine schedules and samples; between the two stands one of these: a model, or in tests
// something that only pretends to be one.
#pragma once

#include <cstdint>
#include <span>

#include "quire/backend/backend.h"
#include "quire/base/error.h"
#include "quire/state/sequence_pool.h"

namespace quire::engine {

class Executor {
 public:
  virtual ~Executor() = default;

  virtual std::uint32_t vocabulary() const = 0;
  virtual std::uint32_t max_rows() const = 0;    // tokens in a step
  virtual std::uint32_t max_logits() const = 0;  // sequences in a step whose logits are wanted

  struct Work {
    SequenceId id;
    std::span<const Token> tokens;  // the sequence's next
    bool logits = false;            // of the last of them
  };
  // Writes what the layers remember of these tokens into the pool and gives the logits that are wanted, in the order of
  // the work, valid until the next step. The pool has reserved the room; the engine commits afterwards.
  virtual PoolResult<Rows> forward(std::span<const Work> work) = 0;
};

}  // namespace quire::engine
