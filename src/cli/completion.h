// `quire completion SHELL`: a script that completes commands, options and their values.
#pragma once

#include <string>
#include <string_view>

#include "quire/base/error.h"
#include "quire/cli/option_text.h"

namespace quire::cli {

// `shell` is bash, zsh or fish; another one is refused by name.
Result<std::string> completion(const ProgramText& program, std::string_view shell);

}  // namespace quire::cli
