// Reads a file, or standard input for "-".
//
// Who may call: anyone; standard input can be read once.
// What holds: memory holds at most `limit` bytes and one block of input. Opening never waits: a named pipe without a
//   writer is refused. A pipe with a writer (bash's <(command)) is read to its end.
// How it fails: with one line that names the file ("standard input" for "-") and says why.
#pragma once

#include <cstddef>
#include <string>

#include "quire/base/error.h"

namespace quire::cli {

Result<std::string> read_input(const std::string& path, std::size_t limit);
// The same for what must be UTF-8. Otherwise it is refused with the offset of the first byte that is not.
Result<std::string> read_text(const std::string& path, std::size_t limit);

// The name for error messages.
std::string input_name(const std::string& path);

}  // namespace quire::cli
