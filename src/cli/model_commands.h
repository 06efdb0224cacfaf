// The command lines of the commands that run a model: run, chat, bench, logits.
//
// Each function adds a subcommand to `app` and returns the function to call if the user chose it. That function writes
// to the console while it works and returns the text that is left to print.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "quire/base/error.h"
#include "quire/cli/console.h"
#include "quire/cli/style.h"
#include "quire/engine/sampler.h"

namespace CLI {
class App;
}

namespace quire::cli {

// `console` must outlive the returned function, which uses it.
std::function<Result<std::string>(const Style&)> add_run(CLI::App& app, const Console& console);
std::function<Result<std::string>(const Style&)> add_chat(CLI::App& app, const Console& console);
std::function<Result<std::string>(const Style&)> add_bench(CLI::App& app, const Console& console);
std::function<Result<std::string>(const Style&)> add_logits(CLI::App& app, const Console& console);

// What commands that write text share.
// Without --seed the seed is random, so that two runs differ. The report prints it.
void add_sampler_options(CLI::App& command, engine::SamplerOptions& options, std::vector<std::string>& stops);
// A text in a file; "-": standard input. Without one line break at its end. Refused if it is not UTF-8.
Result<std::string> read_prompt(const std::string& file);

}  // namespace quire::cli
