// The program: its command line, taken apart into typed options, and the command that they ask for.
//
// What holds: info, tokenize and render write when all of it is there, so that a failure leaves nothing on standard
//   output; commands that run a model write while they work. A failure is one line on standard error, beginning with
//   "quire: ", with nothing in it that a terminal would obey.
// How it fails: exit code 2 if the command line cannot be meant, 1 for everything else. Nothing is thrown. If nobody
//   reads the output any more (a closed pipe), nothing is said.
#pragma once

#include "quire/cli/output.h"
#include "quire/cli/style.h"

namespace quire::cli {

enum ExitCode : int { kSuccess = 0, kFailure = 1, kUsage = 2 };

// `style` is that of `out`, `err_style` that of `err`.
int run(int argc, const char* const* argv, Output& out, Output& err, const Style& style,
        const Style& err_style = {}) noexcept;

}  // namespace quire::cli
