// Byte-level BPE (GGUF's "gpt2"). A pre-tokenizer splits the text into words. Each word is split into bytes, which are
// merged in the order of the vocabulary's list of merges.
//
// Who may call: any number of threads may encode at the same time; nothing changes after create().
// What holds: every byte of the text, valid UTF-8 or not, is in exactly one token, in order. Merges that would produce
//   a control token are left out, so no text can spell one. Time is O(n log n) in the longest word. There is no cache,
//   so the result does not depend on earlier calls. Words that are one token are looked up in a table. The table holds
//   only words whose merges were checked to give that token.
// How it fails: create() names a merge that is malformed or has a part that is not a token. encode() names a byte that
//   has no token, if there is no unknown token either.
#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "quire/base/error.h"
#include "quire/text/flat_map.h"
#include "quire/text/merge.h"
#include "quire/text/pieces.h"
#include "quire/text/pretokenizer.h"
#include "quire/text/vocabulary.h"

namespace quire::text {

class ByteLevelBpe {
 public:
  // The vocabulary has passed check_vocabulary() and has a type for each token. `pieces` are its pieces and must
  // outlive this object. `spelled` holds its tokens as the file spells them.
  static Result<ByteLevelBpe> create(const Vocabulary& vocabulary, const Pieces& pieces, const TokenIndex& spelled);

  Result<void> encode(std::string_view text, std::vector<TokenId>& out) const;

  bool adds_bos() const { return pretokenizer_.adds_bos(); }

 private:
  ByteLevelBpe(Pretokenizer pretokenizer, std::size_t merges, std::size_t tokens)
      : pretokenizer_(std::move(pretokenizer)), merges_(merges), words_(tokens) {}

  Result<void> add_merges(const Vocabulary& vocabulary, const TokenIndex& spelled);
  void add_words(const Vocabulary& vocabulary, const Pieces& pieces);
  // The tokens of a word, in `merger.symbols`.
  void merge_word(std::string_view word, Merger& merger) const;

  Pretokenizer pretokenizer_;
  std::array<TokenId, 256> byte_ids_ = {};  // kNoToken: no token for this byte
  FlatMap<Merge> merges_;                   // by pair_key()
  TokenIndex words_;                        // words that are one token
  TokenId unk_ = kNoToken;
};

}  // namespace quire::text
