// `quire synth`: writes a model of a real shape with random weights as a GGUF file. quire/bench/synth decides what is
// in it.
//
// How it fails: with one line. Then no file is written, and a file that was there before is untouched.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "quire/base/error.h"
#include "quire/bench/synth/synth.h"
#include "quire/cli/console.h"
#include "quire/cli/style.h"

namespace CLI {
class App;
}

namespace quire::cli {

struct SynthOptions {
  synth::Shape shape;
  std::string type;
  std::string output;
  std::uint64_t seed = 1;
};

Result<std::string> synth(const SynthOptions& options, const Console& console);

// Adds the command to the program's command line; see model_commands.h.
std::function<Result<std::string>(const Style&)> add_synth(CLI::App& app, const Console& console);

}  // namespace quire::cli
