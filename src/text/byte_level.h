// The alphabet of byte-level vocabularies: 256 printable characters, one per byte, so that any bytes can be written in
// a text file. Printable Latin-1 characters stand for themselves. The other bytes are U+0100 and up, in order: a space
// is "Ġ", a line feed "Ċ".
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

// The bytes of `spelled`. Empty if it has a character that is not in the alphabet.
std::optional<std::string> byte_level_bytes(std::string_view spelled);

}  // namespace quire::text
