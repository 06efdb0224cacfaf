// The model that comes with the program.
#pragma once

#include <string>

#include "quire/base/error.h"

namespace quire::cli {

// Its path. A program in the build tree uses the source tree. An installed program looks beside itself, then in the
// installation folder of the build. An error names the folders that were searched.
Result<std::string> bundled_model();

// The same for a program at this path.
Result<std::string> bundled_model(const std::string& program);

}  // namespace quire::cli
