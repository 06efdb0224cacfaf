// SentencePiece's BPE (GGUF's "llama"): text is cut into characters, and neighbours are merged into tokens, the token
// of the highest score first. A character that is no token becomes its bytes, if the vocabulary has byte tokens, and
// the unknown token otherwise; unknown characters side by side become one unknown token.
//
// The file spells a space U+2581. Here a space is a space, in tokens and in text, and U+2581 in a text is one too.
//
// Who may call: it does not change after it is made; any number of threads may encode at once.
// What holds: only normal, byte and unknown tokens come out, so no text can spell a control token. A byte that is not
//   part of well-formed UTF-8 is a character of its own. Time is O(n log n).
// How it fails: encode() names a byte that there is no token for, where there is no unknown token either.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "quire/base/error.h"
#include "quire/text/flat_map.h"
#include "quire/text/merge.h"
#include "quire/text/pieces.h"
#include "quire/text/vocabulary.h"

namespace quire::text {

class SentencePieceBpe {
 public:
  // The vocabulary passed check_vocabulary() and has a type for each token. `pieces` are its pieces, and outlive this.
  SentencePieceBpe(const Vocabulary& vocabulary, const Pieces& pieces);

  // With `space_prefix`, as if a space stood before the text.
  Result<void> encode(std::string_view text, bool space_prefix, std::vector<TokenId>& out) const;

 private:
  void find_words(const Pieces& pieces);
  // The end of the word at the front of `text`: no token reaches across it.
  std::size_t word_end(std::string_view text) const;
  // `first` is where the text's tokens begin in `out`.
  Result<void> encode_word(std::string_view word, Merger& merger, std::size_t first, std::vector<TokenId>& out) const;
  void merge_word(std::string_view word, Merger& merger) const;
  Result<void> encode_bytes(std::string_view bytes, std::size_t first, std::vector<TokenId>& out) const;

  TokenIndex tokens_;                       // those that merging may make
  std::vector<std::uint32_t> ranks_;        // by id: the order of the scores, the highest first
  std::vector<bool> is_word_;               // by id: merging its text gives the token itself
  std::size_t longest_ = 0;                 // of those tokens, in bytes
  std::array<bool, 256> joins_space_ = {};  // bytes after which some token goes on with a space
  std::array<TokenId, 256> byte_ids_ = {};  // kNoToken: there is none
  TokenId unk_ = kNoToken;
};

}  // namespace quire::text
