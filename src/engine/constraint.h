// Which tokens an answer may have. The engine knows no grammar: a caller that wants answers of a certain shape gives it
// an object like this for each choice. The server makes them from compiled grammars (src/server/grammar_constraints.h).
//
// Who calls: the engine; mask() on a thread of its own, beside the forward pass. Calls of one object never overlap.
// What holds: all results depend only on the accepted tokens.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "quire/state/ids.h"

namespace quire::engine {

class Constraint {
 public:
  virtual ~Constraint() = default;

  // Sets the bits of the tokens that may come next, the lowest bit of a word first, and clears all others.
  virtual void mask(std::span<std::uint32_t> bits) = 0;
  // The token that comes next. False: it is not allowed.
  virtual bool accept(Token token) = 0;
  // Appends the tokens that must come next, if there is only one way to continue. They are not accepted yet. They go
  // into the answer without sampling.
  virtual void forced(std::vector<Token>& out) = 0;
  // The answer is complete, and nothing can follow.
  virtual bool complete() const = 0;
  // Why no token is allowed any more: one line for a person. Empty: the constraint is not the reason.
  virtual std::string error() const = 0;
};

}  // namespace quire::engine
