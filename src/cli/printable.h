// What the program prints of files and users goes through printable(); see quire/text/printable.h.
#pragma once

#include "quire/text/printable.h"

namespace quire::cli {

using text::clipped;
using text::json_line;
using text::printable;
using text::Printable;

}  // namespace quire::cli
