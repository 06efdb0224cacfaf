// `quire run`: goes on with a text. No template: the prompt is read as it is.
//
// What holds: text is written as it is decoded, cut only between characters. At the end the standard error says what
//   was read and written, how fast, and what the pool held; with `json` nothing is streamed and one line says it all.
// How it fails: with one line, before anything was written, unless the model itself breaks down.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "quire/base/error.h"
#include "quire/cli/console.h"
#include "quire/cli/load.h"
#include "quire/engine/sampler.h"

namespace quire::cli {

constexpr std::size_t kMaxPromptBytes = std::size_t{64} << 20;

struct RunOptions {
  ModelOptions model;
  std::string prompt;
  bool special = false;     // "<|im_end|>" in the prompt is the token
  bool echo = false;        // write the prompt too
  std::uint32_t limit = 0;  // tokens; 0: none
  engine::SamplerOptions sampler;
  bool json = false;
};

// What is left to print when it is done.
Result<std::string> run_prompt(const RunOptions& options, const Console& console);

}  // namespace quire::cli
