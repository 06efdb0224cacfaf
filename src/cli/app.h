// The program: parses the command line into typed options and runs the command.
//
// What holds: info, tokenize, render and constrain write their output when it is complete, so that a failure leaves
// nothing on
//   standard output. Commands that run a model write while they work. A failure is one line on standard error. It
//   begins with "quire: " and has no control characters.
// How it fails: exit code 2 for a wrong command line, 3 if constrain found a text that is not admitted, 1 for
// everything
//   else. Nothing is thrown. A closed pipe at the output is not reported.
#pragma once

#include "quire/cli/output.h"
#include "quire/cli/style.h"

namespace quire::cli {

enum ExitCode : int { kSuccess = 0, kFailure = 1, kUsage = 2, kNotAdmitted = 3 };

// `style` belongs to `out`, `err_style` to `err`.
int run(int argc, const char* const* argv, Output& out, Output& err, const Style& style,
        const Style& err_style = {}) noexcept;

}  // namespace quire::cli
