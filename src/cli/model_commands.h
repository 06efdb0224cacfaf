// The command lines of the commands that run a model: run, chat, bench, logits.
//
// Each function adds a subcommand to `app` and returns the function to call if the user chose it. That function writes
// to the console while it works and returns the text that is left to print.
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

// `console` must outlive the returned function, which uses it.
std::function<Result<std::string>(const Style&)> add_run(CLI::App& app, const Console& console);
std::function<Result<std::string>(const Style&)> add_chat(CLI::App& app, const Console& console);
std::function<Result<std::string>(const Style&)> add_bench(CLI::App& app, const Console& console);
std::function<Result<std::string>(const Style&)> add_logits(CLI::App& app, const Console& console);

}  // namespace quire::cli
