// Writes a model's text to the output, piece by piece. On a terminal, control characters are escaped.
#pragma once

#include <string_view>
#include <system_error>

#include "quire/cli/output.h"
#include "quire/cli/style.h"

namespace quire::cli {

// `text` is whole characters. Plain letters need no heap allocation.
std::error_code write_text(Output& out, const Style& style, std::string_view text);

}  // namespace quire::cli
