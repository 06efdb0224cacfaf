#include "quire/text/pieces.h"

#include <string>

#include <fmt/format.h>

#include "quire/text/byte_level.h"

namespace quire::text {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581, a space in sentencepiece's spelling

std::string with_spaces(std::string_view spelled) {
  std::string text;
  for (std::size_t at = 0; at < spelled.size();) {
    if (spelled.substr(at).starts_with(kSpaceMark)) {
      text += ' ';
      at += kSpaceMark.size();
    } else {
      text += spelled[at++];
    }
  }
  return text;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

}  // namespace

int byte_token_value(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return -1;
  const int high = hex_digit(text[3]);
  const int low = hex_digit(text[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

Result<Pieces> build_pieces(const Vocabulary& vocabulary) {
  Pieces pieces;
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const std::string& spelled = vocabulary.tokens[id];
    const TokenType type = vocabulary.types[id];
    if (type == TokenType::byte) {
      const int value = byte_token_value(spelled);
      if (value < 0) return fail(fmt::format("token {} is a byte, but spelled {}", id, in_quotes(spelled)));
      const char byte = static_cast<char>(static_cast<unsigned char>(value));
      pieces.add({&byte, 1});
    } else if (!is_mergeable(type)) {
      pieces.add(spelled);
    } else if (vocabulary.kind == VocabularyKind::sentencepiece) {
      pieces.add(with_spaces(spelled));
    } else {
      // A token that is not spelled in the byte alphabet was added to the vocabulary as plain text.
      const auto bytes = byte_level_bytes(spelled);
      pieces.add(bytes ? *bytes : spelled);
    }
  }
  return pieces;
}

}  // namespace quire::text
