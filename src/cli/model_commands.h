// The command line of the commands that run a model: run, chat, bench, logits. Each adds itself to the program's and
// gives what to call when it was chosen; what that gives is left to print, the rest went to the console while it
// worked.
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

// The console is used when the command is, and outlives it.
std::function<Result<std::string>(const Style&)> add_run(CLI::App& app, const Console& console);
std::function<Result<std::string>(const Style&)> add_chat(CLI::App& app, const Console& console);
std::function<Result<std::string>(const Style&)> add_bench(CLI::App& app, const Console& console);
std::function<Result<std::string>(const Style&)> add_logits(CLI::App& app, const Console& console);

}  // namespace quire::cli
