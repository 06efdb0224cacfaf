// Makes text from files safe for an error message: one line, no control characters, not too long. For gguf and for code
// that reads files with it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace quire::gguf {

// In single quotes. Bytes that are not printable ASCII are escaped (\n, \xff). Text beyond `limit` bytes is cut off
// ("...").
std::string quoted(std::string_view text, std::size_t limit = 80);

// A path as given, with control characters escaped. It is not cut and not quoted, so that it can be pasted back.
std::string shown_path(std::string_view path);

}  // namespace quire::gguf
