// Long texts, random texts, many threads and broken vocabularies. No clock is read: a quadratic algorithm would exceed
// the time limit of the test.
#include <algorithm>
#include <bit>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/base/utf8.h"
#include "quire/gguf/gguf.h"
#include "quire/text/tokenizer.h"
#include "quire/text/tokenizer_testing.h"

namespace quire::text {
namespace {

using namespace testing;  // of quire::text

// Merges that make tokens of 2, 4, ... 64 equal letters, so that long runs need many merges.
Vocabulary doubling_byte_level() {
  std::vector<std::string> merges;
  for (const char letter : {'a', '7', '<'}) {
    for (std::size_t length = 1; length <= 32; length *= 2) {
      merges.push_back(std::string(length, letter) + " " + std::string(length, letter));
    }
  }
  for (const char* merge : {"t h", "th e", "Ġ the", "Ġ t", "Ä ģ", "ä ½"}) merges.push_back(merge);
  merges.insert(merges.end() - 4, "Ġ th");
  Vocabulary vocabulary = byte_level_vocabulary({}, {}, "llama-bpe");
  for (const std::string& merge : merges) {
    const std::size_t space = merge.find(' ');
    const std::string made = merge.substr(0, space) + merge.substr(space + 1);
    if (std::ranges::find(vocabulary.tokens, made) == vocabulary.tokens.end()) {
      vocabulary.tokens.push_back(made);
      vocabulary.types.push_back(TokenType::normal);
    }
  }
  vocabulary.merges = std::move(merges);
  vocabulary.tokens.push_back("<|im_end|>");
  vocabulary.types.push_back(TokenType::control);
  vocabulary.tokens.push_back("<<<<<<<<<<<<<<<<<<<<<<<<!");
  vocabulary.types.push_back(TokenType::user_defined);
  return vocabulary;
}

Vocabulary doubling_sentencepiece() {
  std::vector<Scored> tokens = {{"\u2581", -1}, {"\u2581\u2581", -2}, {"你", -3},       {"你你", -3},
                                {"th", -4},     {"the", -5},          {"\u2581the", -6}};
  for (const char letter : {'a', '7', '<', 't', 'h', 'e'}) {
    for (std::size_t length = 1; length <= 64; ++length) {
      tokens.push_back({std::string(length, letter), -static_cast<float>(length)});
    }
  }
  return sentencepiece_vocabulary(std::move(tokens),
                                  {{"<|im_end|>", TokenType::control}, {"<|tool|>", TokenType::user_defined}});
}

std::vector<Tokenizer> tokenizers() {
  std::vector<Tokenizer> all;
  all.push_back(make(doubling_byte_level()));
  all.push_back(make(doubling_sentencepiece()));
  for (const char* path :
       {QUIRE_SOURCE_DIR "/models/quire-demo-llama-q8_0.gguf", QUIRE_SOURCE_DIR "/testdata/vocab/byte-level.gguf",
        QUIRE_SOURCE_DIR "/testdata/vocab/sentencepiece.gguf"}) {
    const auto file = gguf::File::open(path);
    EXPECT_TRUE(file) << path;
    auto tokenizer = Tokenizer::from_gguf(*file);
    EXPECT_TRUE(tokenizer) << path;
    all.push_back(std::move(*tokenizer));
  }
  return all;
}

std::string repeated(std::string_view unit, std::size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += unit;
  return text;
}

TEST(TokenizerStress, AMegabyteWithoutASpaceIsEncodedInNoTimeAndComesBack) {
  constexpr std::size_t kBytes = 1'000'000;
  std::mt19937 random(6);
  std::vector<std::string> texts;
  for (const char* unit : {"a", "7", "0123456789", "你", "你好世界", " ", "\n", ".", "the", "<", "<|im_end|",
                           "<|im_end|>", "\xFF", "\xE4\xBD", "a\u0301", "🚀"}) {
    texts.push_back(repeated(unit, kBytes));
  }
  std::string letters(kBytes, 'a');
  for (char& c : letters) c = static_cast<char>('a' + random() % 26);
  texts.push_back(letters);
  std::string bytes(kBytes, '\0');
  for (char& c : bytes) c = static_cast<char>(random());
  // The one character that SentencePiece does not decode to itself.
  for (std::size_t at = 0; (at = bytes.find("\u2581", at)) != std::string::npos;) bytes[at] = 'x';
  texts.push_back(bytes);
  std::string ideographs;
  while (ideographs.size() < kBytes) append_utf8(ideographs, 0x4E00 + random() % 0x5000);
  texts.push_back(ideographs);

  for (const Tokenizer& tokenizer : tokenizers()) {
    for (const std::string& text : texts) {
      ASSERT_EQ(tokenizer.decode(encode(tokenizer, text)), text) << in_quotes(text);
      if (text[0] == '<') encode(tokenizer, text, kParse);
    }
  }
}

TEST(TokenizerStress, RandomCharactersAndBytesComeBack) {
  std::mt19937 random(7);
  const std::vector<Tokenizer> all = tokenizers();
  for (int round = 0; round < 4000; ++round) {
    std::string text;
    const std::size_t length = random() % 60;
    while (text.size() < length) {
      switch (random() % 6) {
        case 0: text += static_cast<char>(random()); break;
        case 1: append_utf8(text, random() % 0x2500); break;
        case 2: append_utf8(text, 0x10000 + random() % 0x10000); break;
        case 3: text += " \n\t'"[random() % 4]; break;
        case 4: text += std::string_view("<|im_end|>").substr(random() % 10); break;
        default: text += static_cast<char>('a' + random() % 26); break;
      }
    }
    for (const Tokenizer& tokenizer : all) {
      if (tokenizer.kind() == VocabularyKind::sentencepiece && text.find("\u2581") != std::string::npos) continue;
      const auto ids = encode(tokenizer, text);
      ASSERT_EQ(tokenizer.decode(ids), text) << in_quotes(text);
      for (const TokenId id : ids) ASSERT_FALSE(tokenizer.is_end_of_generation(id));
    }
  }
}

TEST(TokenizerStress, ManyThreadsGetWhatOneGets) {
  const std::vector<Tokenizer> all = tokenizers();
  const std::string text = repeated("The quick brown fox's 12 dogs -- 你好, \xFF\xFE! <|im_end|>\n", 3000);
  for (const Tokenizer& tokenizer : all) {
    const auto expected = encode(tokenizer, text, kParse);
    const std::string decoded = tokenizer.decode(expected);
    std::vector<int> wrong(4);
    std::vector<std::jthread> threads;
    for (int& count : wrong) {
      threads.emplace_back([&] {
        for (int i = 0; i < 30; ++i) {
          const auto ids = tokenizer.encode(text, kParse);
          count += !ids || *ids != expected || tokenizer.decode(*ids) != decoded;
        }
      });
    }
    threads.clear();
    EXPECT_THAT(wrong, ::testing::Each(0));
  }
}

// Any vocabulary works or is refused with a reason. There is no crash, and ids are in range.
TEST(TokenizerStress, BrokenVocabulariesAreRefusedOrWork) {
  std::mt19937 random(8);
  const auto pick = [&](std::size_t size) { return static_cast<std::size_t>(random() % size); };
  int refused = 0, worked = 0;
  for (int round = 0; round < 3000; ++round) {
    Vocabulary v = round % 2 == 0 ? doubling_byte_level() : doubling_sentencepiece();
    for (std::size_t changes = 1 + pick(3); changes > 0; --changes) {
      const std::size_t id = pick(v.tokens.size());
      switch (pick(11)) {
        case 0: v.tokens[id].clear(); break;
        case 1: v.tokens[id] += static_cast<char>(random()); break;
        case 2: v.tokens[id] = v.tokens[pick(v.tokens.size())]; break;
        case 3: v.types[id % v.types.size()] = static_cast<TokenType>(random() % 8); break;
        case 4:
          if (!v.merges.empty()) std::swap(v.merges[pick(v.merges.size())], v.tokens[id]);
          break;
        case 5:
          if (!v.merges.empty()) std::ranges::shuffle(v.merges, random);
          break;
        case 6:
          if (!v.scores.empty()) v.scores[id % v.scores.size()] = std::bit_cast<float>(static_cast<unsigned>(random()));
          break;
        case 7: v.unk = static_cast<TokenId>(random() % 300) - 2; break;
        case 8: v.eos = v.bos = static_cast<TokenId>(id); break;
        case 9: v.tokens.resize(pick(v.tokens.size()) + 1); break;
        default:
          v.kind =
              v.kind == VocabularyKind::sentencepiece ? VocabularyKind::byte_level_bpe : VocabularyKind::sentencepiece;
      }
    }
    const auto tokenizer = Tokenizer::create(std::move(v));
    if (!tokenizer) {
      EXPECT_FALSE(tokenizer.error().message.empty());
      ++refused;
      continue;
    }
    ++worked;
    for (const std::string_view text : {"", "the aaaaaaa 777 <|im_end|> 你好 \xFF\n", "<<<<<<<<<<<<<<<<<<<<<<<<<<!!"}) {
      for (const bool parse : {false, true}) {
        const auto ids = tokenizer->encode(text, {.add_special = true, .parse_special = parse});
        if (!ids) continue;
        for (const TokenId id : *ids) ASSERT_TRUE(id >= 0 && static_cast<std::size_t>(id) < tokenizer->size());
        tokenizer->decode(*ids, {.render_special = parse, .repair_utf8 = true});
      }
    }
  }
  EXPECT_GT(refused, 100);
  EXPECT_GT(worked, 100);
}

}  // namespace
}  // namespace quire::text
