// The program: parses the command line into typed options and runs the command.
//
// What holds: info, tokenize and render write their output when it is complete, so that a failure leaves nothing on
//   standard output. Commands that run a model write while they work. A failure is one line on standard error. It
//   begins with "quire: " and has no control characters.
// How it fails: exit code 2 for a wrong command line, 1 for everything else. Nothing is thrown. A closed pipe at the
//   output is not reported.
#pragma once

#include "quire/cli/output.h"
#include "quire/cli/style.h"

namespace quire::cli {

enum ExitCode : int { kSuccess = 0, kFailure = 1, kUsage = 2 };

// `style` belongs to `out`, `err_style` to `err`.
int run(int argc, const char* const* argv, Output& out, Output& err, const Style& style,
        const Style& err_style = {}) noexcept;

}  // namespace quire::cli
