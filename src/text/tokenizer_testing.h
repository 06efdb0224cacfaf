// For tests of the tokenizers: small vocabularies.
#pragma once

#include <cstdint>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/text/byte_level.h"
#include "quire/text/tokenizer.h"

namespace quire::text::testing {

struct Added {
  std::string text;
  TokenType type;
};

// Ids 0 to 255 are the bytes, in order; then the results of the merges, in order; then the added tokens.
inline Vocabulary byte_level_vocabulary(std::vector<std::string> merges, std::vector<Added> added = {},
                                        std::string pre = "gpt-2") {
  Vocabulary v;
  v.kind = VocabularyKind::byte_level_bpe;
  v.pre = std::move(pre);
  for (unsigned byte = 0; byte < 256; ++byte) v.tokens.push_back(byte_level_spelling(static_cast<std::uint8_t>(byte)));
  for (const std::string& merge : merges) {
    const std::size_t space = merge.find(' ');
    v.tokens.push_back(merge.substr(0, space) + merge.substr(space + 1));
  }
  v.types.assign(v.tokens.size(), TokenType::normal);
  for (const Added& token : added) {
    v.tokens.push_back(token.text);
    v.types.push_back(token.type);
  }
  v.merges = std::move(merges);
  return v;
}

struct Scored {
  std::string text;
  float score;
};

// Ids 0 to 2 are <unk>, <s> and </s>; 3 to 258 the bytes; then the given tokens; then the added ones.
inline Vocabulary sentencepiece_vocabulary(std::vector<Scored> tokens, std::vector<Added> added = {}) {
  Vocabulary v;
  v.kind = VocabularyKind::sentencepiece;
  const auto add = [&v](std::string text, TokenType type, float score) {
    v.tokens.push_back(std::move(text));
    v.types.push_back(type);
    v.scores.push_back(score);
  };
  add("<unk>", TokenType::unknown, 0);
  add("<s>", TokenType::control, 0);
  add("</s>", TokenType::control, 0);
  constexpr std::string_view kHex = "0123456789ABCDEF";
  for (unsigned byte = 0; byte < 256; ++byte) {
    add(std::string("<0x") + kHex[byte / 16] + kHex[byte % 16] + ">", TokenType::byte, 0);
  }
  for (Scored& token : tokens) add(std::move(token.text), TokenType::normal, token.score);
  for (Added& token : added) add(std::move(token.text), token.type, 0);
  v.unk = 0;
  v.bos = 1;
  v.eos = 2;
  return v;
}

inline Tokenizer make(Vocabulary vocabulary) {
  auto tokenizer = Tokenizer::create(std::move(vocabulary));
  if (!tokenizer) {
    ADD_FAILURE() << tokenizer.error().message;
    std::abort();
  }
  return std::move(*tokenizer);
}

inline std::string why_refused(Vocabulary vocabulary) {
  const auto tokenizer = Tokenizer::create(std::move(vocabulary));
  return tokenizer ? "(it was accepted)" : tokenizer.error().message;
}

inline constexpr EncodeOptions kPlain = {.add_special = false, .parse_special = false};
inline constexpr EncodeOptions kParse = {.add_special = false, .parse_special = true};

inline std::vector<TokenId> encode(const Tokenizer& tokenizer, std::string_view text, EncodeOptions options = kPlain) {
  auto ids = tokenizer.encode(text, options);
  if (!ids) {
    ADD_FAILURE() << ids.error().message;
    return {};
  }
  return std::move(*ids);
}

// The pieces of the text's tokens; special tokens as they are spelled.
inline std::vector<std::string> pieces_of(const Tokenizer& tokenizer, std::string_view text,
                                          EncodeOptions options = kPlain) {
  std::vector<std::string> pieces;
  for (const TokenId id : encode(tokenizer, text, options)) pieces.emplace_back(tokenizer.piece(id));
  return pieces;
}

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace quire::text::testing
