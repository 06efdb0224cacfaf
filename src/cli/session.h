// `quire session`: session files (src/session). `info` shows and checks one, `save` computes a prompt and writes what
// the model remembers of it, `load` continues a text from there without computing it again.
//
// What holds: info needs no model. save writes beside the file and renames. load gives the text that `quire run` gives
//   for the same tokens and options. Of a server's file it uses the tokens, the state and the adapter. It says on
//   standard error if the file has an unfinished answer or default options, whose options it does not use.
// How it fails: with one line that names the file and what is wrong with it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "quire/base/error.h"
#include "quire/cli/console.h"
#include "quire/cli/constraint_options.h"
#include "quire/cli/load.h"
#include "quire/cli/style.h"
#include "quire/engine/sampler.h"

namespace CLI {
class App;
}

namespace quire::cli {

struct SessionOptions {
  std::string action;  // info, save, load
  std::string file;
  ModelOptions model;
  // save
  std::string prompt;
  bool special = false;  // "<|im_end|>" in the prompt is the special token
  // load
  std::uint32_t limit = 0;  // tokens; 0: none
  engine::SamplerOptions sampler;
  std::vector<std::string> stops;
  ConstraintOptions constraint;
  bool json = false;
};

Result<std::string> session_command(const SessionOptions& options, const Console& console);

// Adds the command to the program's command line; see model_commands.h.
std::function<Result<std::string>(const Style&)> add_session(CLI::App& app, const Console& console);

}  // namespace quire::cli
