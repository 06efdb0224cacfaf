// The alphabet in which byte-level vocabularies are spelled: 256 printable characters, one for each byte, so that any
// bytes can stand in a text file. Printable Latin-1 stands for itself, the other bytes in order for U+0100 and up: a
// space is "Ġ", a line feed "Ċ".
//
// Who may call: anyone, from any thread; there is no state.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace quire::text {

// The character that stands for `byte`, as UTF-8.
std::string byte_level_spelling(std::uint8_t byte);

// The bytes that `spelled` stands for, or nothing if it has a character that is not in the alphabet.
std::optional<std::string> byte_level_bytes(std::string_view spelled);

}  // namespace quire::text
