// `quire tokenize`: text to token ids, and back with --decode.
//
// How it fails: with one line that names the model's file and what in its tokenizer is wrong, or the id that is none.
#pragma once

#include <cstddef>
#include <string>

#include "quire/base/error.h"
#include "quire/cli/style.h"

namespace quire::cli {

// Of text that is read from standard input. The ids and what is printed of them take up to a few times as much.
constexpr std::size_t kMaxTokenizeBytes = std::size_t{64} << 20;

struct TokenizeOptions {
  std::string model;
  std::string text;      // or the ids, with `decode`
  bool ids = false;      // only the ids, on one line
  bool special = false;  // "<|im_end|>" in the text is the token; with `decode`, write such tokens out
  bool no_bos = false;   // leave out what the model's file wants before and behind every text
  bool decode = false;
  bool json = false;
};

// Everything there is to print.
Result<std::string> tokenize(const TokenizeOptions& options, const Style& style);

}  // namespace quire::cli
