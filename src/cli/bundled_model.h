// The model that comes with the program.
#pragma once

#include <string>

#include "quire/base/error.h"

namespace quire::cli {

// Its path: in the source tree for a program that runs from its build tree, else where it was installed, beside the
// program or where the build was told. An error names the places where it was looked for.
Result<std::string> bundled_model();

// The same for a program at this path.
Result<std::string> bundled_model(const std::string& program);

}  // namespace quire::cli
