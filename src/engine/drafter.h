// Guesses the next tokens of an answer. The engine computes the guesses beside the answer's own next token and keeps
// those that turn out right, so a guess can make an answer faster but never different.
//
// Who calls: the engine, on its thread, once in a step and for all choices together.
// How it fails: it does not. A drafter that has no guess, or no memory, proposes nothing.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "quire/backend/backend.h"
#include "quire/state/ids.h"

namespace quire::engine {

inline constexpr std::uint32_t kMostDrafts = 16;  // of one choice in one step

// What guesses rest on. How often they are right is learned for each kind.
inline constexpr std::uint32_t kDraftKinds = 6;

// What a drafter remembers of one choice. Destroyed with the choice.
class DrafterMemory {
 public:
  virtual ~DrafterMemory() = default;
};

// The drafts of one choice.
struct Drafts {
  // --- the question
  std::span<const Token> text;  // prompt and answer so far; only grows from call to call
  std::uint32_t longest = 0;    // the most tokens that text can have: the drafter may take memory for so many once
  std::uint32_t most = 0;       // drafts wanted at most
  // --- the answer: what probably follows `text`
  std::array<Token, kMostDrafts> tokens{};
  std::uint32_t count = 0;
  std::uint32_t kind = 0;  // below kDraftKinds
  // --- the drafter's own
  std::unique_ptr<DrafterMemory> memory;

  std::span<const Token> drafted() const { return std::span(tokens).first(count); }
};

class Drafter {
 public:
  virtual ~Drafter() = default;
  // Sets count, tokens and kind of each. In steady state it does not allocate from the heap.
  virtual void propose(std::span<Drafts* const> wanted) = 0;
  // How often the first guess of a kind is right, before anything was measured.
  virtual double expected(std::uint32_t kind) const = 0;
  // What a guess costs, in seconds, as measured; 0 if that is nothing beside a step of the model. What propose() does
  // once for a choice (its prompt) need not be in it. If it is not 0, the engine charges this for a guess and nothing
  // else, however long propose() took.
  virtual double seconds_per_token() const { return 0; }
  // Whether it wants to see the hidden states of the model (observe()).
  virtual bool observes() const { return false; }
  // After a step: the hidden states of the choice's tokens from `position` on, a row for each, prompt and drafts that
  // were right included. `drafts.text` has at least one token more. What came from a cache is never shown. What is
  // computed twice is shown twice.
  virtual void observe(Drafts& /*drafts*/, std::uint32_t /*position*/, const HostRows& /*hidden*/) {}
};

}  // namespace quire::engine
