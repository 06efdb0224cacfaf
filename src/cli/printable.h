// The program passes all text from files and users through printable() before printing; see quire/text/printable.h.
#pragma once

#include "quire/text/printable.h"

namespace quire::cli {

using text::clipped;
using text::json_line;
using text::printable;
using text::Printable;

}  // namespace quire::cli
