// Finds special tokens that are spelled in a text ("<|im_end|>"), before the text is split into words.
//
// Who may call: one thread adds tokens; afterwards any number of threads may search.
// What holds: the leftmost match is found, and of several at the same place the longest. Restricted tokens are found
//   only if the caller allows them. A search is linear in the text: a position takes at most as many steps as the
//   longest token that could begin there, and one step if none can.
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

  // `text` is not empty and has not been added before.
  void add(std::string_view text, TokenId id, bool restricted);

  struct Match {
    std::size_t begin = 0;
    std::size_t end = 0;
    TokenId id = kNoToken;
  };

  // The first match at or after `from`. A restricted token must be allowed and must not overlap a range of `literal`.
  // These ranges are sorted and do not overlap.
  std::optional<Match> find(std::string_view text, std::size_t from, bool allow_restricted,
                            std::span<const TextRange> literal = {}) const;

 private:
  struct Node {
    TokenId id = kNoToken;
    bool restricted = false;
  };

  std::vector<Node> nodes_;                 // a trie; the first is its root
  FlatMap<std::uint32_t> children_;         // by node and byte
  std::array<bool, 256> begins_ = {};       // first bytes of all tokens
  std::array<bool, 256> begins_free_ = {};  // first bytes of unrestricted tokens
};

}  // namespace quire::text
