// `quire simulate`: how much a pool of each size would find, and how long requests would wait, for the requests of a
// trace. The machinery is in quire/simulate.
//
// What holds: the rows are written when all are done. The same trace and options print the same text.
// How it fails: with one line: a wrong line of a trace (with its number), a pool in which nothing fits.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "quire/base/error.h"
#include "quire/cli/console.h"
#include "quire/simulate/costs.h"
#include "quire/simulate/simulation.h"

namespace CLI {
class App;
}

namespace quire::cli {

struct SimulateOptions {
  std::vector<std::string> traces;
  std::uint64_t limit = 0;  // requests; 0: all
  std::string model;        // a GGUF file, for its layout; empty: `shape`
  std::string shape = "llama-8b";
  std::string costs;  // a file; empty: `rates`
  simulate::Rates rates;
  std::vector<std::uint64_t> memory;
  std::vector<Eviction> policies;
  std::int32_t target_itl = -1;        // milliseconds; negative: the engine's default
  simulate::SimulationOptions engine;  // what is above replaces its layout, costs, memory, policy and target
  bool json = false;
};

Result<std::string> simulate(const SimulateOptions& options, const Console& console);

// Adds the command to the program's command line; see model_commands.h.
std::function<Result<std::string>(const Style&)> add_simulate(CLI::App& app, const Console& console);

}  // namespace quire::cli
