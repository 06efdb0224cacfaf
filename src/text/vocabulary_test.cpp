// Reads vocabularies from valid and invalid GGUF files.
#include "quire/text/vocabulary.h"

#include <cstdint>
#include <functional>
#include <limits>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/gguf/gguf.h"
#include "quire/gguf/writer.h"
#include "quire/text/tokenizer.h"
#include "quire/text/tokenizer_testing.h"

namespace quire::text {
namespace {

using testing::byte_level_vocabulary;
using ::testing::HasSubstr;
using testing::sentencepiece_vocabulary;

// Writes a vocabulary as a file. The test may leave out keys and write others.
struct FileOf {
  Vocabulary vocabulary;
  std::set<std::string> without = {};
  std::function<void(gguf::Writer&)> more = [](gguf::Writer&) {};
  std::string model = "";

  Result<Vocabulary> read() const {
    gguf::Writer writer;
    const auto wanted = [this](const char* key) { return !without.contains(key); };
    const bool bpe = vocabulary.kind == VocabularyKind::byte_level_bpe;
    if (wanted("model")) writer.add("tokenizer.ggml.model", model.empty() ? (bpe ? "gpt2" : "llama") : model);
    if (bpe && wanted("pre")) writer.add("tokenizer.ggml.pre", vocabulary.pre);
    if (wanted("tokens")) add_strings(writer, "tokenizer.ggml.tokens", vocabulary.tokens);
    if (wanted("types")) {
      std::vector<std::int32_t> types;
      for (const TokenType type : vocabulary.types) types.push_back(static_cast<std::int32_t>(type));
      writer.add_array<std::int32_t>("tokenizer.ggml.token_type", types);
    }
    if (!bpe && wanted("scores")) writer.add_array<float>("tokenizer.ggml.scores", vocabulary.scores);
    if (bpe && wanted("merges")) add_strings(writer, "tokenizer.ggml.merges", vocabulary.merges);
    more(writer);
    const auto image = writer.to_memory();
    if (!image) return std::unexpected(image.error());
    const auto file = gguf::File::from_memory(*image, "test.gguf");
    if (!file) return std::unexpected(file.error());
    return read_vocabulary(*file);
  }

  std::string why_refused() const {
    const auto read_it = read();
    return read_it ? "(it was read)" : read_it.error().message;
  }

  static void add_strings(gguf::Writer& writer, std::string_view key, const std::vector<std::string>& strings) {
    const std::vector<std::string_view> views(strings.begin(), strings.end());
    writer.add_array<std::string_view>(key, views);
  }
};

TEST(Vocabulary, EverythingInTheFileIsRead) {
  FileOf file{.vocabulary = byte_level_vocabulary({"a b"}, {{"<|end|>", TokenType::control}}, "qwen2")};
  file.more = [](gguf::Writer& writer) {
    writer.add("tokenizer.ggml.bos_token_id", std::uint32_t{257});
    writer.add("tokenizer.ggml.eos_token_id", std::uint32_t{257});
    writer.add("tokenizer.ggml.eot_token_id", std::uint32_t{1});
    writer.add("tokenizer.ggml.eom_token_id", std::uint32_t{2});
    writer.add("tokenizer.ggml.unknown_token_id", std::uint32_t{3});
    writer.add("tokenizer.ggml.padding_token_id", std::uint32_t{4});
    writer.add("tokenizer.ggml.add_bos_token", true);
    writer.add("tokenizer.ggml.add_eos_token", false);
  };
  const auto v = file.read();
  ASSERT_TRUE(v) << v.error().message;
  EXPECT_EQ(v->kind, VocabularyKind::byte_level_bpe);
  EXPECT_EQ(v->pre, "qwen2");
  EXPECT_EQ(v->tokens, file.vocabulary.tokens);
  EXPECT_EQ(v->types, file.vocabulary.types);
  EXPECT_EQ(v->merges, file.vocabulary.merges);
  EXPECT_EQ(v->bos, 257);
  EXPECT_EQ(v->eos, 257);
  EXPECT_EQ(v->eot, 1);
  EXPECT_EQ(v->eom, 2);
  EXPECT_EQ(v->unk, 3);
  EXPECT_EQ(v->pad, 4);
  EXPECT_EQ(v->add_bos, true);
  EXPECT_EQ(v->add_eos, false);
  EXPECT_EQ(v->add_space_prefix, std::nullopt);
}

TEST(Vocabulary, ASentencePieceFileNeedNotNameItsFirstThreeTokens) {
  const auto v = FileOf{.vocabulary = sentencepiece_vocabulary({{"a", -1}})}.read();
  ASSERT_TRUE(v) << v.error().message;
  EXPECT_EQ(v->unk, 0);
  EXPECT_EQ(v->bos, 1);
  EXPECT_EQ(v->eos, 2);
  EXPECT_EQ(v->pad, kNoToken);
  EXPECT_FALSE(v->strip_after_special);
}

TEST(Vocabulary, AByteLevelFileThatNamesNoSpecialTokensHasNone) {
  const auto v = FileOf{.vocabulary = byte_level_vocabulary({})}.read();
  ASSERT_TRUE(v) << v.error().message;
  EXPECT_EQ(v->bos, kNoToken);
  EXPECT_EQ(v->eos, kNoToken);
}

TEST(Vocabulary, AByteLevelFileNeedNotHaveTypes) {
  const auto v = FileOf{.vocabulary = byte_level_vocabulary({}), .without = {"types"}}.read();
  ASSERT_TRUE(v) << v.error().message;
  EXPECT_TRUE(v->types.empty());
}

TEST(Vocabulary, ScoresMayBeWholeNumbers) {
  FileOf file{.vocabulary = sentencepiece_vocabulary({{"a", -1}}), .without = {"scores"}};
  file.more = [&](gguf::Writer& writer) {
    const std::vector<std::int32_t> scores(file.vocabulary.tokens.size(), -7);
    writer.add_array<std::int32_t>("tokenizer.ggml.scores", scores);
  };
  const auto v = file.read();
  ASSERT_TRUE(v) << v.error().message;
  EXPECT_EQ(v->scores.back(), -7.0f);
}

TEST(Vocabulary, PhiThreeIsKnownByItsArchitectureOrItsName) {
  FileOf file{.vocabulary = sentencepiece_vocabulary({})};
  file.more = [](gguf::Writer& writer) { writer.add("general.architecture", "phi3"); };
  EXPECT_TRUE(file.read()->strip_after_special);
  file.more = [](gguf::Writer& writer) { writer.add("general.name", "My Phi-3 mini"); };
  EXPECT_TRUE(file.read()->strip_after_special);
  file.more = [](gguf::Writer& writer) { writer.add("general.name", "Mistral"); };
  EXPECT_FALSE(file.read()->strip_after_special);
}

TEST(Vocabulary, WhatIsMissingIsNamed) {
  const Vocabulary bpe = byte_level_vocabulary({"a b"});
  const Vocabulary spm = sentencepiece_vocabulary({{"a", -1}});
  EXPECT_THAT((FileOf{.vocabulary = bpe, .without = {"model"}}.why_refused()), HasSubstr("tokenizer.ggml.model"));
  EXPECT_THAT((FileOf{.vocabulary = bpe, .without = {"pre"}}.why_refused()), HasSubstr("tokenizer.ggml.pre"));
  EXPECT_THAT((FileOf{.vocabulary = bpe, .without = {"tokens"}}.why_refused()), HasSubstr("tokenizer.ggml.tokens"));
  EXPECT_THAT((FileOf{.vocabulary = bpe, .without = {"merges"}}.why_refused()), HasSubstr("tokenizer.ggml.merges"));
  EXPECT_THAT((FileOf{.vocabulary = spm, .without = {"scores"}}.why_refused()), HasSubstr("tokenizer.ggml.scores"));
  EXPECT_THAT((FileOf{.vocabulary = spm, .without = {"types"}}.why_refused()), HasSubstr("tokenizer.ggml.token_type"));
  EXPECT_THAT((FileOf{.vocabulary = bpe, .without = {"pre"}}.why_refused()), HasSubstr("test.gguf"));
}

TEST(Vocabulary, ATokenizerModelThatIsNotSupportedIsNamed) {
  const FileOf file{.vocabulary = byte_level_vocabulary({}), .model = "bert"};
  EXPECT_EQ(file.why_refused(),
            "test.gguf: tokenizer.ggml.model is \"bert\"; only \"gpt2\" and \"llama\" are supported");
}

TEST(Vocabulary, CountsThatDisagreeAreNamed) {
  Vocabulary v = sentencepiece_vocabulary({{"a", -1}});
  v.scores.pop_back();
  EXPECT_EQ(FileOf{.vocabulary = v}.why_refused(),
            "test.gguf: tokenizer.ggml.scores has 259 entries, tokenizer.ggml.tokens has 260");
  v = byte_level_vocabulary({});
  v.types.push_back(TokenType::normal);
  EXPECT_EQ(FileOf{.vocabulary = v}.why_refused(),
            "test.gguf: tokenizer.ggml.token_type has 257 entries, tokenizer.ggml.tokens has 256");
  v = byte_level_vocabulary({});
  v.tokens.clear();
  EXPECT_EQ(FileOf{.vocabulary = v}.why_refused(), "test.gguf: tokenizer.ggml.tokens is empty");
}

TEST(Vocabulary, IdsOutOfRangeTypesThatDoNotExistAndScoresThatAreNoNumbersAreNamed) {
  FileOf file{.vocabulary = byte_level_vocabulary({})};
  file.more = [](gguf::Writer& writer) { writer.add("tokenizer.ggml.eos_token_id", std::uint32_t{256}); };
  EXPECT_EQ(file.why_refused(), "test.gguf: tokenizer.ggml.eos_token_id is 256, but there are 256 tokens");
  file.more = [](gguf::Writer& writer) { writer.add("tokenizer.ggml.eos_token_id", std::int32_t{-1}); };
  EXPECT_THAT(file.why_refused(), HasSubstr("eos_token_id is -1"));

  file = {.vocabulary = byte_level_vocabulary({})};
  file.vocabulary.types[5] = static_cast<TokenType>(9);
  EXPECT_EQ(file.why_refused(), "test.gguf: tokenizer.ggml.token_type: token 5 has the unknown type 9");

  file = {.vocabulary = sentencepiece_vocabulary({})};
  file.vocabulary.scores[7] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(file.why_refused(), "test.gguf: tokenizer.ggml.scores: the score of token 7 is not a number");
}

TEST(Vocabulary, KeysOfTheWrongTypeAreNamed) {
  FileOf file{.vocabulary = byte_level_vocabulary({}), .without = {"tokens"}};
  file.more = [](gguf::Writer& writer) { writer.add("tokenizer.ggml.tokens", "all of them"); };
  EXPECT_THAT(file.why_refused(), HasSubstr("tokenizer.ggml.tokens"));
  file = {.vocabulary = byte_level_vocabulary({})};
  file.more = [](gguf::Writer& writer) { writer.add("tokenizer.ggml.add_bos_token", "yes"); };
  EXPECT_THAT(file.why_refused(), HasSubstr("tokenizer.ggml.add_bos_token"));
}

TEST(Vocabulary, ATokenThatIsAbsurdlyLongIsRefused) {
  Vocabulary v = byte_level_vocabulary({});
  v.tokens[9] = std::string(100'000, 'x');
  EXPECT_THAT(FileOf{.vocabulary = v}.why_refused(), HasSubstr("token 9 is 100000 bytes long"));
}

TEST(Vocabulary, TextInErrorsIsCutAndPrintable) {
  EXPECT_EQ(in_quotes("a\n\"\xFF é"), "\"a\\x0A\\x22\\xFF é\"");
  EXPECT_EQ(in_quotes(std::string(100, 'x')), "\"" + std::string(48, 'x') + "...\"");
}

}  // namespace
}  // namespace quire::text
