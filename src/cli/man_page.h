// `quire man [COMMAND]`: manual pages in roff, made from the descriptions that --help prints.
#pragma once

#include <string>
#include <string_view>

#include "quire/base/error.h"
#include "quire/cli/option_text.h"

namespace quire::cli {

// The page of a command; of the program, if `command` is empty. An unknown command is refused by name.
Result<std::string> man_page(const ProgramText& program, std::string_view command);

// Writes all pages to a folder, which is created: quire.1, quire-run.1, ...
Result<void> write_man_pages(const ProgramText& program, const std::string& folder);

}  // namespace quire::cli
