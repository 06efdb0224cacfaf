// The tokens that may come in a parser's state: masks over the vocabulary.
//
// The mask of a state is the union of those of its threads. The mask of a thread has two parts. The tokens that stay
// inside the terminal depend on the lexer's state alone; they are found once for each. Where the terminal may end
// inside a token, the rest of the token is tried in the row that follows. What can follow a border is little, usually.
//
// Who may call: one thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "quire/grammar/parser.h"
#include "quire/grammar/token_trie.h"

namespace quire::grammar {

class Masks {
 public:
  // Both outlive it.
  Masks(Parser& parser, const TokenTrie::Impl& vocabulary) : parser_(parser), vocabulary_(vocabulary) {}

  // Adds the bits of the tokens of the vocabulary's tries. False: some token leads to more than the parser's limits.
  bool add(StateId state, std::span<std::uint32_t> bits);
  // The same, by looking at every token. For tests.
  bool add_slowly(StateId state, std::span<std::uint32_t> bits);
  std::size_t bytes() const { return bytes_; }
  std::uint64_t visited() const { return visited_; }  // nodes of tries

 private:
  // Where a terminal may end inside tokens that do not all stay inside it.
  struct Border {
    const Trie* trie;
    std::uint32_t node, accepts;
  };
  struct Inside {
    std::vector<std::uint32_t> bits;
    std::vector<Border> borders;
  };

  const Inside& inside(LexState lex);
  void walk_inside(const Trie& trie, LexState from, Inside& out);
  void walk_slice(const Slice& slice, LexState from, Inside& out);
  template <typename Takes>
  void walk_inside(const Trie& trie, LexState from, bool all_set, Takes takes, Inside& out);
  std::uint32_t characters(LexState from, SliceKind kind);
  bool takes_all(LexState state, SliceKind kind);
  bool walk(const Trie& trie, std::uint32_t begin, std::uint32_t end, StateId from, std::span<std::uint32_t> bits);
  bool add_thread(const Thread& thread, std::span<std::uint32_t> bits);

  Parser& parser_;
  const TokenTrie::Impl& vocabulary_;
  std::unordered_map<LexState, Inside> inside_;
  std::unordered_map<std::uint64_t, std::vector<std::uint32_t>> threads_;  // row << 32 | lex
  // Per state and kind: whether every text of the kind may follow. 0: unknown, 1: no, 2: yes.
  std::vector<std::array<std::uint8_t, 4>> takes_all_;
  std::vector<StateId> path_;  // scratch: states by depth
  std::size_t bytes_ = 0;
  std::uint64_t visited_ = 0;
};

}  // namespace quire::grammar
