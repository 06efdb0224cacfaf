// Guesses by looking up: where the last tokens of a conversation occurred before in it, what came next then. That is
// right surprisingly often where an answer repeats its prompt: summaries, edits of code, tables, JSON.
//
// Each choice has an index of all places by the three tokens that end there (places with the same hash form a chain,
// the last one first), and of the last place of each two. A look-up compares backwards from the places of the chain, a
// bounded number of them, and takes the longest match, of equal ones the last.
//
// The index takes 12 bytes for each token that the choice can have, when it first looks something up, and nothing
// later.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "quire/engine/drafter.h"

namespace quire::engine {

class NgramIndex final : public DrafterMemory {
 public:
  explicit NgramIndex(std::uint32_t longest);

  struct Match {
    std::uint32_t end = 0;     // the match ends before this position; what follows it is the guess
    std::uint32_t length = 0;  // tokens; 0: there is none
  };
  // The longest place before its end where the last tokens of `text` occur. `text` has grown since the last call.
  Match find(std::span<const Token> text);

 private:
  void add(std::span<const Token> text);

  std::uint32_t known_ = 0;             // positions before this one are in the index
  std::uint32_t mask_ = 0;              // of hashes
  std::vector<std::uint32_t> threes_;   // by hash: the last position that ends three tokens with this hash, plus 1
  std::vector<std::uint32_t> twos_;     // by hash: the same of two tokens
  std::vector<std::uint32_t> earlier_;  // by position: the one before it in its chain, plus 1
};

class NgramDrafter final : public Drafter {
 public:
  void propose(std::span<Drafts* const> wanted) override;
  double expected(std::uint32_t kind) const override;
  static void propose(Drafts& drafts);
};

}  // namespace quire::engine
