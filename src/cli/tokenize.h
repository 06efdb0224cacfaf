// `quire tokenize`: text to token ids, and back with --decode.
//
// How it fails: with one line that names the model's file and what is wrong with its tokenizer, or the invalid id.
#pragma once

#include <cstddef>
#include <string>

#include "quire/base/error.h"
#include "quire/cli/style.h"

namespace quire::cli {

// The most text that is read from standard input. The ids and the output take a few times as much memory.
constexpr std::size_t kMaxTokenizeBytes = std::size_t{64} << 20;

struct TokenizeOptions {
  std::string model;
  std::string text;      // or the ids, with `decode`
  bool ids = false;      // only the ids, on one line
  bool special = false;  // "<|im_end|>" in the text is the special token; with `decode`, print special tokens
  bool no_bos = false;   // do not add the BOS and EOS that the model asks for
  bool decode = false;
  bool json = false;
};

// Returns the whole output.
Result<std::string> tokenize(const TokenizeOptions& options, const Style& style);

}  // namespace quire::cli
