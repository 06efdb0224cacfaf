#include "quire/text/stream_decoder.h"

#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "quire/base/utf8.h"
#include "quire/text/tokenizer_testing.h"

namespace quire::text {
namespace {

using testing::byte_level_vocabulary;
using testing::make;
using testing::sentencepiece_vocabulary;

constexpr TokenId kByteToken = 3;  // sentencepiece_vocabulary(): the token of byte 0

std::vector<TokenId> bytes_as_ids(std::string_view text, TokenId first = 0) {
  std::vector<TokenId> ids;
  for (const char c : text) ids.push_back(first + static_cast<unsigned char>(c));
  return ids;
}

// An incomplete character waits: each output is whole characters.
TEST(StreamDecoder, AnyCutOfAnyCharactersGivesWholeCharactersInOrder) {
  const std::string text = "aé你🦙\u0301z";
  // There is a token for every part of the text, so that any split is a sequence of ids.
  std::vector<testing::Added> parts;
  std::vector<std::pair<std::string, TokenId>> known;
  for (std::size_t begin = 0; begin < text.size(); ++begin) {
    for (std::size_t length = 2; begin + length <= text.size(); ++length) {
      std::string spelled;
      for (const char c : text.substr(begin, length)) spelled += byte_level_spelling(static_cast<std::uint8_t>(c));
      known.emplace_back(text.substr(begin, length), static_cast<TokenId>(256 + parts.size()));
      parts.push_back({spelled, TokenType::normal});
    }
  }
  const Tokenizer tokenizer = make(byte_level_vocabulary({}, parts));
  const auto id_of = [&](const std::string& part) -> TokenId {
    if (part.size() == 1) return static_cast<unsigned char>(part[0]);
    for (const auto& [bytes, id] : known) {
      if (bytes == part) return id;
    }
    return kNoToken;
  };
  for (unsigned cuts = 0; cuts < 1u << (text.size() - 1); ++cuts) {
    StreamDecoder decoder(tokenizer);
    std::string together;
    std::size_t begin = 0;
    for (std::size_t end = 1; end <= text.size(); ++end) {
      if (end < text.size() && (cuts >> (end - 1) & 1) == 0) continue;
      const std::string out = decoder.push(id_of(text.substr(begin, end - begin)));
      ASSERT_EQ(utf8_valid_prefix(out), out.size());
      together += out;
      // Whole characters are never held back.
      ASSERT_EQ(together.size(), utf8_valid_prefix(text.substr(0, end)));
      ASSERT_EQ(decoder.pending(), together.size() < end);
      begin = end;
    }
    ASSERT_EQ(together, text);
    ASSERT_EQ(decoder.flush(), "");
  }
}

TEST(StreamDecoder, HalfACharacterComesOutWithFlush) {
  const Tokenizer tokenizer = make(byte_level_vocabulary({}));
  StreamDecoder raw(tokenizer);
  StreamDecoder repairing(tokenizer, {.repair_utf8 = true});
  for (const TokenId id : bytes_as_ids("\xF0\x9F\xA6")) {
    EXPECT_EQ(raw.push(id), "");
    EXPECT_EQ(repairing.push(id), "");
  }
  EXPECT_EQ(raw.flush(), "\xF0\x9F\xA6");
  EXPECT_EQ(repairing.flush(), "\uFFFD");
  EXPECT_EQ(raw.flush(), "");
}

TEST(StreamDecoder, BytesThatFormNoCharacterDoNotWaitForever) {
  const Tokenizer tokenizer = make(byte_level_vocabulary({}));
  StreamDecoder decoder(tokenizer, {.repair_utf8 = true});
  EXPECT_EQ(decoder.push(0xE4), "");
  EXPECT_EQ(decoder.push('A'), "\uFFFDA");
  EXPECT_EQ(decoder.push(0xFF), "\uFFFD");
  StreamDecoder raw(tokenizer);
  EXPECT_EQ(raw.push(0xE4), "");
  EXPECT_EQ(raw.push('A'),
            "\xE4"
            "A");
}

TEST(StreamDecoder, WhatComesInPartsIsWhatDecodeGives) {
  std::mt19937 random(5);
  for (const bool sentencepiece : {false, true}) {
    const std::vector<testing::Added> added = {{"<|c|>", TokenType::control}, {"<u>", TokenType::user_defined}};
    const Tokenizer tokenizer = make(sentencepiece ? sentencepiece_vocabulary({{"\u2581", -1}, {"\u2581a", -2}}, added)
                                                   : byte_level_vocabulary({"Ġ a"}, added));
    for (int round = 0; round < 3000; ++round) {
      const DecodeOptions options = {
          .render_special = random() % 2 == 0, .at_start = random() % 2 == 0, .repair_utf8 = random() % 2 == 0};
      std::vector<TokenId> ids(random() % 12);
      for (TokenId& id : ids) id = static_cast<TokenId>(random() % 300) - 10;
      StreamDecoder decoder(tokenizer, options);
      std::string together;
      for (const TokenId id : ids) {
        const std::string out = decoder.push(id);
        if (options.repair_utf8) {
          ASSERT_EQ(utf8_valid_prefix(out), out.size());
        }
        together += out;
      }
      together += decoder.flush();
      ASSERT_EQ(together, tokenizer.decode(ids, options));
    }
  }
}

TEST(StreamDecoder, IdsOutOfRangeArePassedOver) {
  const Tokenizer tokenizer = make(byte_level_vocabulary({}));
  const std::vector<TokenId> ids = {
      'a', -1, 256, std::numeric_limits<TokenId>::max(), std::numeric_limits<TokenId>::min(), 'b'};
  EXPECT_EQ(tokenizer.decode(ids), "ab");
  EXPECT_EQ(tokenizer.decode(ids, {.render_special = true, .repair_utf8 = true}), "ab");
}

TEST(StreamDecoder, SpecialTokensAreWrittenOutOnlyIfAskedFor) {
  const Tokenizer tokenizer = make(byte_level_vocabulary(
      {}, {{"<|im_end|>", TokenType::control}, {"<tool>", TokenType::user_defined}, {"[PAD]", TokenType::unused}}));
  const std::vector<TokenId> ids = {'a', 256, 257, 258, 'b'};
  EXPECT_EQ(tokenizer.decode(ids), "a<tool>b");
  EXPECT_EQ(tokenizer.decode(ids, {.render_special = true}), "a<|im_end|><tool>[PAD]b");
}

TEST(StreamDecoder, ASpecialTokenInsideACharacterThatIsLeftOutDoesNotBreakIt) {
  const Tokenizer tokenizer = make(byte_level_vocabulary({}, {{"<|c|>", TokenType::control}}));
  EXPECT_EQ(tokenizer.decode(std::vector<TokenId>{0xC3, 256, 0xA9}), "é");
}

TEST(StreamDecoder, TheSpaceThatEncodingPutBeforeATextIsTakenAwayOnce) {
  const Tokenizer tokenizer = make(sentencepiece_vocabulary({{"\u2581", -1}, {"\u2581a", -2}, {"a", -3}}));
  const TokenId space = kByteToken + 256;
  const TokenId space_a = space + 1;
  EXPECT_EQ(tokenizer.decode(std::vector<TokenId>{space_a, space_a}), "a a");
  EXPECT_EQ(tokenizer.decode(std::vector<TokenId>{1, space_a}), "a");  // BOS has no text
  EXPECT_EQ(tokenizer.decode(std::vector<TokenId>{space, space_a}), " a");
  EXPECT_EQ(tokenizer.decode(std::vector<TokenId>{space_a}, {.at_start = false}), " a");
  EXPECT_EQ(tokenizer.decode(std::vector<TokenId>{1, space_a}, {.render_special = true}), "<s> a");
}

TEST(StreamDecoder, NoSpaceIsTakenAwayWhereNoneWasPut) {
  Vocabulary vocabulary = sentencepiece_vocabulary({{"\u2581a", -2}});
  vocabulary.add_space_prefix = false;
  const Tokenizer tokenizer = make(std::move(vocabulary));
  EXPECT_EQ(tokenizer.decode(std::vector<TokenId>{kByteToken + 256}), " a");
  const Tokenizer bpe = make(byte_level_vocabulary({}));
  EXPECT_EQ(bpe.decode(std::vector<TokenId>{' ', 'a'}), " a");
}

TEST(StreamDecoder, ByteTokensJoinIntoCharacters) {
  const Tokenizer tokenizer = make(sentencepiece_vocabulary({}));
  StreamDecoder decoder(tokenizer, {.at_start = false});
  std::string out;
  for (const TokenId id : bytes_as_ids("你", kByteToken)) out = decoder.push(id);
  EXPECT_EQ(out, "你");
}

TEST(StreamDecoder, AfterFlushItIsAsNew) {
  const Tokenizer tokenizer = make(sentencepiece_vocabulary({{"\u2581a", -2}}));
  StreamDecoder decoder(tokenizer);
  const TokenId space_a = kByteToken + 256;
  EXPECT_EQ(decoder.push(space_a), "a");
  EXPECT_EQ(decoder.push(space_a), " a");
  EXPECT_EQ(decoder.flush(), "");
  EXPECT_EQ(decoder.push(space_a), "a");
}

}  // namespace
}  // namespace quire::text
