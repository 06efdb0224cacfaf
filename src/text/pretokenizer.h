// Pre-tokenizers of byte-level BPE. They split text into words; merges never cross a word boundary. A pre-tokenizer has
// the name that GGUF files give in tokenizer.ggml.pre. It is one regular expression, or several: each splits the words
// of the previous one.
//
// The expressions are those of the models' own tokenizer.json, not the approximations of engines without Unicode
// regular expressions: tekken and gpt-4o distinguish upper and lower case in every script.
//
// Who may call: any number of threads may use it at the same time; nothing changes after create().
// What holds: for any bytes, the lengths of the words add up to the length of the text, and no word is empty. Valid
//   UTF-8 and other bytes never share a word, and each run is split as if it were the whole text. So nothing is lost or
//   replaced, and any bytes survive a round trip.
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

  // Properties that have no GGUF key and depend on the name: whether a word that is a token is used without merging,
  // and whether texts begin with BOS if the file does not say.
  bool ignore_merges() const { return ignore_merges_; }
  bool adds_bos() const { return adds_bos_; }

  // Appends the end of every word of `text`. The text is shorter than 4 GiB.
  Result<void> split(std::string_view text, std::vector<std::uint32_t>& ends) const;

 private:
  Pretokenizer() = default;
  // Splits valid UTF-8.
  Result<void> split_valid(std::string_view text, std::uint32_t base, Regex::Scratch& scratch,
                           std::vector<std::uint32_t>& ends) const;

  std::vector<Regex> patterns_;
  bool ignore_merges_ = false;
  bool adds_bos_ = false;
};

}  // namespace quire::text
