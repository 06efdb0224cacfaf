// Pre-tokenizers of byte-level BPE: how text is cut into words before merging, no merge crossing a cut. Each is known
// by the name that GGUF files carry in tokenizer.ggml.pre, and is one regular expression, or several of which each cuts
// the pieces of the one before.
//
// The expressions are those of the models' own tokenizer.json, not the approximations that engines without a Unicode
// regular expression engine use: tekken and gpt-4o tell upper from lower case in every script.
//
// Who may call: a Pretokenizer does not change after create(); any number of threads may use it at once.
// What holds: the words' lengths add up to the text's and none is empty, whatever bytes the text has. What is not UTF-8
//   is in words of its own: a run of well-formed text and a run of other bytes never share a word, and each run is cut
//   as if it were the whole text. So nothing is lost or replaced, and any bytes survive a round trip.
// How it fails: an unknown name is an error that repeats it; there is no default.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "quire/base/error.h"
#include "quire/text/regex.h"

namespace quire::text {

class Pretokenizer {
 public:
  static Result<Pretokenizer> create(std::string_view name);

  // All names that create() knows, sorted.
  static std::vector<std::string_view> names();

  // What goes with the name, for lack of a GGUF key of its own: whether a word that is a token as a whole is taken as
  // it is, without merging, and whether texts begin with BOS unless the file says otherwise.
  bool ignore_merges() const { return ignore_merges_; }
  bool adds_bos() const { return adds_bos_; }

  // Appends the end of every word of `text`, which is shorter than 4 GiB.
  Result<void> split(std::string_view text, std::vector<std::uint32_t>& ends) const;

 private:
  Pretokenizer() = default;
  // Cuts well-formed text.
  Result<void> split_valid(std::string_view text, std::uint32_t base, Regex::Scratch& scratch,
                           std::vector<std::uint32_t>& ends) const;

  std::vector<Regex> patterns_;
  bool ignore_merges_ = false;
  bool adds_bos_ = false;
};

}  // namespace quire::text
