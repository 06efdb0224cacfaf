// `quire run`: continues a text. There is no template: the prompt is used as it is.
//
// What holds: text is streamed while it is decoded, in whole characters. At the end, standard error shows the speed of
//   prefill and decode and how much of the pool was used. With `json` nothing is streamed; the output is one line.
// How it fails: with one line, before anything was written, unless the model fails during a step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "quire/base/error.h"
#include "quire/cli/ask.h"
#include "quire/cli/console.h"
#include "quire/cli/constraint_options.h"
#include "quire/cli/load.h"
#include "quire/engine/sampler.h"

namespace quire::cli {

constexpr std::size_t kMaxPromptBytes = std::size_t{64} << 20;

struct RunOptions {
  ModelOptions model;
  std::string prompt;
  bool special = false;     // "<|im_end|>" in the prompt is the special token
  bool echo = false;        // print the prompt too
  std::uint32_t limit = 0;  // tokens; 0: none
  engine::SamplerOptions sampler;
  std::vector<std::string> stops;  // end the text and are not part of it
  ConstraintOptions constraint;    // what the text must look like
  bool json = false;
};

// Returns what is left to print at the end.
Result<std::string> run_prompt(const RunOptions& options, const Console& console);

// The parts of it. The tokens of a prompt; `special`: as in RunOptions.
Result<std::vector<text::TokenId>> prompt_ids(const std::string& prompt, bool special,
                                              const text::Tokenizer& tokenizer);
// Streams the answer to a question, after `echo`, and reports. Returns what is left to print at the end.
Result<std::string> write_text_of(engine::HostedModel& host, const text::Tokenizer& tokenizer, Question question,
                                  const std::string& echo, bool as_json, const Console& console);

}  // namespace quire::cli
