// SentencePiece's BPE (GGUF's "llama"). Text is split into characters, and neighbours are merged into tokens, the token
// with the highest score first. A character that is not a token becomes byte tokens, if the vocabulary has them, and
// otherwise the unknown token. Adjacent unknown characters become one unknown token.
//
// The file spells a space as U+2581. Here tokens and text have real spaces, and U+2581 in a text counts as a space too.
//
// Who may call: any number of threads may encode at the same time; nothing changes after construction.
// What holds: the result has only normal, byte and unknown tokens, so no text can spell a control token. A byte that is
//   not part of valid UTF-8 is treated as a character. Time is O(n log n).
// How it fails: encode() names a byte that has no token, if there is no unknown token either.
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
  // The vocabulary has passed check_vocabulary() and has a type for each token. `pieces` are its pieces and must
  // outlive this object.
  SentencePieceBpe(const Vocabulary& vocabulary, const Pieces& pieces);

  // `space_prefix`: encode as if the text began with a space.
  Result<void> encode(std::string_view text, bool space_prefix, std::vector<TokenId>& out) const;

 private:
  void find_words(const Pieces& pieces);
  // The end of the first word of `text`. No token crosses it.
  std::size_t word_end(std::string_view text) const;
  // `first` is the index of the text's first token in `out`.
  Result<void> encode_word(std::string_view word, Merger& merger, std::size_t first, std::vector<TokenId>& out) const;
  void merge_word(std::string_view word, Merger& merger) const;
  Result<void> encode_bytes(std::string_view bytes, std::size_t first, std::vector<TokenId>& out) const;

  TokenIndex tokens_;                       // tokens that merging can produce
  std::vector<std::uint32_t> ranks_;        // by id: 0 for the highest score, then in order
  std::vector<bool> is_word_;               // by id: merging its text gives this token
  std::size_t longest_ = 0;                 // longest of these tokens, in bytes
  std::array<bool, 256> joins_space_ = {};  // bytes that a space follows within some token
  std::array<TokenId, 256> byte_ids_ = {};  // kNoToken: no token for this byte
  TokenId unk_ = kNoToken;
};

}  // namespace quire::text
