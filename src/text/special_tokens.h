// Finds the tokens that stand in a text as they are spelled ("<|im_end|>"), before anything else looks at it.
//
// Who may call: it does not change once filled; any number of threads may search.
// What holds: the leftmost match is found, and of several at the same place the longest. Restricted tokens are found
//   only where the caller allows it. A search is linear in the text: a position takes as many steps as the longest
//   token that could begin there, and one if none can.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "quire/base/text_range.h"
#include "quire/text/flat_map.h"
#include "quire/text/vocabulary.h"

namespace quire::text {

class SpecialTokens {
 public:
  SpecialTokens();

  // `text` is not empty and not added yet.
  void add(std::string_view text, TokenId id, bool restricted);

  struct Match {
    std::size_t begin = 0;
    std::size_t end = 0;
    TokenId id = kNoToken;
  };

  // The first match at or behind `from`. Restricted tokens must be allowed, and may not touch a range of `literal`,
  // which are sorted and do not overlap.
  std::optional<Match> find(std::string_view text, std::size_t from, bool allow_restricted,
                            std::span<const TextRange> literal = {}) const;

 private:
  struct Node {
    TokenId id = kNoToken;
    bool restricted = false;
  };

  std::vector<Node> nodes_;                 // a trie; the first is its root
  FlatMap<std::uint32_t> children_;         // by node and byte
  std::array<bool, 256> begins_ = {};       // bytes that any token begins with
  std::array<bool, 256> begins_free_ = {};  // bytes that an unrestricted one begins with
};

}  // namespace quire::text
