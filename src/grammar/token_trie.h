// Inside of TokenTrie (matcher.h): the tokens that are text, as tries in depth-first order.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "quire/grammar/matcher.h"

namespace quire::grammar {

// Nodes in depth-first order: the children of a node follow it, and `end` is behind the last of its subtree. The root
// has no node; its children have depth 0.
struct Trie {
  std::vector<std::uint8_t> byte;
  std::vector<std::uint16_t> depth;
  std::vector<std::uint32_t> end;
  // The tokens of node i are tokens[first[i]] up to tokens[first[i + 1]]; those of its subtree up to first[end[i]].
  std::vector<std::uint32_t> first;
  std::vector<TokenId> tokens;
  std::uint32_t longest = 0;  // bytes of the longest token

  std::uint32_t size() const { return static_cast<std::uint32_t>(byte.size()); }
  // `entries` are sorted by their bytes.
  static Trie build(std::span<const std::pair<std::string_view, TokenId>> entries);
};

// Tokens of one kind and of at most so many characters. If every text of the kind can follow, then so can all of them,
// and nobody needs to look at each.
enum class SliceKind : std::uint8_t {
  Word,        // ASCII letters, digits, underscores
  SpacedWord,  // a space and then such
  Plain,       // printable ASCII without quotation marks and backslashes
  Characters,  // such, and any other characters of UTF-8, all whole
  Other,       // everything else
};

struct Slice {
  SliceKind kind = SliceKind::Other;
  std::uint32_t characters = 0;  // the most in a token; not for Other
  Trie trie;
  std::vector<std::uint32_t> mask;
};

struct TokenTrie::Impl {
  const text::Tokenizer* tokenizer = nullptr;
  std::uint32_t vocabulary = 0;
  // Tokens of up to kShortToken bytes: all of them in one trie, and the same in slices.
  Trie all;
  std::vector<Slice> slices;
  Trie longer;                              // the others
  std::vector<TokenId> ends;                // tokens that end an answer
  std::vector<std::uint32_t> free_special;  // mask: special tokens that do not end an answer
  std::vector<std::uint8_t> special;        // per token: special, or without bytes
};

inline constexpr std::uint32_t kShortToken = 32;
inline constexpr std::uint32_t kLongestToken = 4096;  // longer ones are never allowed

}  // namespace quire::grammar
