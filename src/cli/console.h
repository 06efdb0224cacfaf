// Standard output and standard error with their styles, for commands that write while they work.
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
