// Options of `quire serve` from other places than the command line: QUIRE_* variables and a configuration file. They
// become arguments, so that they are checked like those that were typed.
//
// A file has lines `key = value`; a key is an option without its dashes. `#` begins a comment. A value is a word, a
// text in quotes, true or false for a flag, or [a list] for an option that may be given several times. The lines may
// stand below `[serve]`.
//
// What holds: flag > variable > file > default. An empty variable is no variable. In a variable, a comma separates the
//   values of an option that may be given several times. A QUIRE_PORT that begins with tcp:// is no variable either:
//   Kubernetes and Docker set it for a service named "quire".
// How it fails: with one line that names the file, line and key, or the variable.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/error.h"
#include "quire/cli/option_text.h"

namespace quire::cli {

// The variable of an option: "--max-body" is QUIRE_MAX_BODY.
std::string variable_of(std::string_view long_name);

// The value of an environment variable, or null.
using Environment = std::function<const char*(const std::string& name)>;

struct OptionSources {
  std::vector<std::string> arguments;          // to add behind those of the command line
  std::map<std::string, std::string> origins;  // "--port" -> "/etc/quire.toml:3: port", "QUIRE_PORT"
};

// `given` are the arguments after "serve".
Result<OptionSources> other_sources(const std::vector<OptionText>& options, const std::vector<std::string>& given,
                                    const Environment& environment);

// The file that is read without --config, if it is there: below $XDG_CONFIG_HOME or ~/.config. Empty if neither is
// known.
std::string default_config_path(const Environment& environment);

}  // namespace quire::cli
