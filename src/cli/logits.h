// `quire logits`: what a model computes for a list of token ids, for people who verify. No tokenizer is needed.
//
// What holds: a file gets little-endian floats, [vocabulary] for the last position, or [positions][vocabulary]. It is
//   complete, or it is not there.
// How it fails: with one line that names the file, the id, or what does not fit.
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
  std::string output;      // a file; empty: the likeliest tokens are printed
  std::uint32_t top = 10;  // so many of them for each position
  bool json = false;
};

// Everything there is to print.
Result<std::string> logits(const LogitsOptions& options, const Console& console);

}  // namespace quire::cli
