#include "quire/text/byte_level.h"

#include <array>

#include "quire/base/utf8.h"

namespace quire::text {
namespace {

constexpr char32_t kFirstShifted = 0x100;
constexpr char32_t kEnd = kFirstShifted + 68;  // 68 bytes do not stand for themselves

constexpr bool stands_for_itself(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<char32_t, 256> of_byte = {};
  std::array<int, kEnd> of_character = {};  // -1: none
};

constexpr Alphabet make_alphabet() {
  Alphabet alphabet;
  alphabet.of_character.fill(-1);
  char32_t next = kFirstShifted;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const char32_t character = stands_for_itself(byte) ? byte : next++;
    alphabet.of_byte[byte] = character;
    alphabet.of_character[character] = static_cast<int>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = make_alphabet();

}  // namespace

std::string byte_level_spelling(std::uint8_t byte) {
  std::string spelled;
  append_utf8(spelled, kAlphabet.of_byte[byte]);
  return spelled;
}

std::optional<std::string> byte_level_bytes(std::string_view spelled) {
  std::string bytes;
  bytes.reserve(spelled.size());
  while (!spelled.empty()) {
    const Utf8Step step = utf8_step(spelled);
    if (step.kind != Utf8Kind::valid) return std::nullopt;
    const char32_t character = utf8_decode(spelled.substr(0, step.length));
    const int byte = character < kEnd ? kAlphabet.of_character[character] : -1;
    if (byte < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(static_cast<unsigned char>(byte)));
    spelled.remove_prefix(step.length);
  }
  return bytes;
}

}  // namespace quire::text
