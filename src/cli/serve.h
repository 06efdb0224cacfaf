// `quire serve`: the model behind an HTTP server, until a signal ends it.
//
// What holds: once the server listens, it writes one line for each of its addresses to standard output and nothing
//   else. Its log goes to standard error. SIGINT and SIGTERM end it gracefully, a second signal ends it at once.
// How it fails: with one line, before it listens; later only if the device is lost.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "quire/base/error.h"
#include "quire/cli/console.h"
#include "quire/cli/load.h"
#include "quire/cli/serve_log.h"
#include "quire/cli/style.h"
#include "quire/cli/tier_options.h"
#include "quire/engine/hosted_model.h"
#include "quire/server/server.h"

namespace CLI {
class App;
}

namespace quire::cli {

struct ServeOptions {
  ModelOptions model;
  server::ServerOptions server;
  std::vector<std::string> key_files;
  std::string template_path;  // a file with another chat template; empty: the model's
  ServeLog::Format log_format = ServeLog::Format::Text;
  std::uint32_t max_sequences = 64;
  std::uint32_t step_tokens = 256;
  std::uint32_t queue = 256;
  std::int32_t target_itl = -1;  // milliseconds; negative: the engine's default
  bool no_cache = false;
  std::string journal;  // file to write; empty: none
  TierOptions tiers;
};

Result<std::string> serve(ServeOptions options, const Console& console);
// The same with a model that is loaded. The files of keys and of the template, and the journal, are ready too: their
// options are not read.
Result<std::string> serve(std::unique_ptr<engine::HostedModel> host, ServeOptions options, const Console& console);

// Adds the command to the program's command line; see model_commands.h.
std::function<Result<std::string>(const Style&)> add_serve(CLI::App& app, const Console& console);

}  // namespace quire::cli
