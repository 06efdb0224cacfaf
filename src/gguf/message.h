// Text from files made fit for an error message: one line, nothing a terminal would obey, not too long. For gguf and
// for those who read files with it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace quire::gguf {

// In single quotes, with what is not printable ASCII escaped (\n, \xff) and what is beyond `limit` bytes cut off
// ("...").
std::string quoted(std::string_view text, std::size_t limit = 80);

// A path as given, with control characters escaped. Not cut and not quoted: it may be pasted back.
std::string shown_path(std::string_view path);

}  // namespace quire::gguf
