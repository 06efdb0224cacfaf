// Reading what a user names: a file, or "-" for standard input.
//
// Who may call: anyone; standard input can be read once.
// What holds: no more than `limit` bytes and the block they are read in are ever in memory. Opening never waits: a pipe
//   that nobody writes to is refused, one that somebody writes to (bash's <(command)) is read to its end.
// How it fails: with one line that names the file ("standard input" for "-") and says why.
#pragma once

#include <cstddef>
#include <string>

#include "quire/base/error.h"

namespace quire::cli {

Result<std::string> read_input(const std::string& path, std::size_t limit);

// How errors call it.
std::string input_name(const std::string& path);

}  // namespace quire::cli
