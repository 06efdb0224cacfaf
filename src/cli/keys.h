// `quire keys`: gives, lists, changes and revokes the keys in a file for `quire serve --keys`.
//
// What holds: a new key is printed once and stands nowhere else; the file has its hash. Running servers read the file
//   again when they get SIGHUP.
// How it fails: with one line; then the file is as it was.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "quire/base/error.h"
#include "quire/cli/console.h"
#include "quire/cli/style.h"

namespace CLI {
class App;
}

namespace quire::cli {

struct KeysOptions {
  std::string action;  // add, list, set, revoke
  std::string name;    // or an id, for set and revoke
  std::string file;
  bool json = false;
  // Empty: as it is, or the default
  std::optional<double> weight;
  std::optional<std::uint32_t> max_sequences, tokens_per_minute;
  std::optional<std::int32_t> max_priority;
  std::optional<std::uint64_t> floor_bytes, cap_bytes;
  std::optional<bool> admin;
};

Result<std::string> keys(const KeysOptions& options, const Console& console);

// Adds the command to the program's command line; see model_commands.h.
std::function<Result<std::string>(const Style&)> add_keys(CLI::App& app, const Console& console);

}  // namespace quire::cli
