// `quire replay`: runs the journal of a server's pool against the reference model and says where they first differ.
//
// What holds: the summary goes to standard output in every case, also if the journal is damaged or differs.
// How it fails: with one line that names the file, the record and what differs or is wrong with it.
#pragma once

#include <functional>
#include <string>

#include "quire/base/error.h"
#include "quire/cli/console.h"
#include "quire/cli/style.h"

namespace CLI {
class App;
}

namespace quire::cli {

struct ReplayOptions {
  std::string path;
  bool json = false;
};

Result<std::string> replay(const ReplayOptions& options, const Console& console);

// Adds the command to the program's command line; see model_commands.h.
std::function<Result<std::string>(const Style&)> add_replay(CLI::App& app, const Console& console);

}  // namespace quire::cli
