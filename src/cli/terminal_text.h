// Text that a model wrote, piece by piece, to where it is read. A terminal gets nothing that it would obey.
#pragma once

#include <string_view>
#include <system_error>

#include "quire/cli/output.h"
#include "quire/cli/style.h"

namespace quire::cli {

// `text` is whole characters. Plain letters take nothing from the heap.
std::error_code write_text(Output& out, const Style& style, std::string_view text);

}  // namespace quire::cli
