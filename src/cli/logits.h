// `quire logits`: computes the logits of a list of token ids, to verify a model. No tokenizer is needed.
//
// What holds: the file holds little-endian floats: [vocabulary] for the last position, or [positions][vocabulary]. It
//   is complete or it does not exist.
// How it fails: with one line that names the file, the id, or the option that cannot be met.
#pragma once

#include <cstdint>
#include <string>

#include "quire/base/error.h"
#include "quire/cli/console.h"
#include "quire/cli/load.h"

namespace quire::cli {

struct LogitsOptions {
  ModelOptions model;
  std::string ids;         // "1,2,3"
  bool all = false;        // every position, not only the last
  std::string output;      // a file; empty: print the most likely tokens
  std::uint32_t top = 10;  // tokens to print per position
  bool json = false;
};

// Returns the whole output.
Result<std::string> logits(const LogitsOptions& options, const Console& console);

}  // namespace quire::cli
