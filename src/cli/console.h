// What a command that talks while it works is given: where to write, and what it looks like there.
#pragma once

#include "quire/cli/output.h"
#include "quire/cli/style.h"

namespace quire::cli {

struct Console {
  Output& out;
  Output& err;
  Style out_style;
  Style err_style;
};

}  // namespace quire::cli
