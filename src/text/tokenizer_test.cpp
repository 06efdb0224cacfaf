// Tests the tokenizer with vocabularies of a few lines.
#include "quire/text/tokenizer.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/text/tokenizer_testing.h"

namespace quire::text {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using namespace testing;  // of quire::text

// --- byte-level BPE ---------------------------------------------------------------------------------------------

TEST(ByteLevelBpe, MergesInTheOrderOfTheListAndNotFromTheLeft) {
  const Tokenizer tokenizer = make(byte_level_vocabulary({"b c", "a b", "ab c"}));
  EXPECT_THAT(pieces_of(tokenizer, "abc"), ElementsAre("a", "bc"));
  EXPECT_THAT(pieces_of(tokenizer, "ab"), ElementsAre("ab"));
}

TEST(ByteLevelBpe, NoMergeCrossesTheEndOfAWord) {
  const Tokenizer tokenizer = make(byte_level_vocabulary({"a Ġ", "Ġ b"}));
  EXPECT_THAT(pieces_of(tokenizer, "a b"), ElementsAre("a", " b"));
}

TEST(ByteLevelBpe, WhereThePretokenizerSaysSoAWordThatIsATokenIsNotMerged) {
  // No merge gives "abc", so only the lookup of the whole word finds it.
  const std::vector<std::string> merges = {"a b"};
  const std::vector<Added> added = {{"abc", TokenType::normal}};
  EXPECT_THAT(pieces_of(make(byte_level_vocabulary(merges, added, "qwen2")), "abc"), ElementsAre("ab", "c"));
  EXPECT_THAT(pieces_of(make(byte_level_vocabulary(merges, added, "llama-bpe")), "abc"), ElementsAre("abc"));
  EXPECT_THAT(pieces_of(make(byte_level_vocabulary(merges, added, "llama-bpe")), "abcd"), ElementsAre("ab", "c", "d"));
}

TEST(ByteLevelBpe, CharactersAreTheirBytesAndAnyBytesComeBack) {
  const Tokenizer tokenizer = make(byte_level_vocabulary({"Ã ©"}));
  EXPECT_THAT(encode(tokenizer, "é"), ElementsAre(256));
  EXPECT_THAT(encode(tokenizer, "è"), ElementsAre(0xC3, 0xA8));
  for (const std::string_view text : {"\xFF\xFE", "a\x80z", "\xC3", "\xE4\xBD", "\xF0\x9F\xA6"}) {
    EXPECT_EQ(tokenizer.decode(encode(tokenizer, text)), text);
  }
  EXPECT_EQ(tokenizer.decode(encode(tokenizer, std::string(3, '\0'))), std::string(3, '\0'));
}

TEST(ByteLevelBpe, AByteWithoutATokenBecomesTheUnknownTokenOrAnError) {
  Vocabulary vocabulary = byte_level_vocabulary({}, {{"<unk>", TokenType::unknown}});
  vocabulary.tokens['z'] = "[gone]";
  const Tokenizer without = make(vocabulary);
  const auto ids = without.encode("az");
  ASSERT_FALSE(ids);
  EXPECT_THAT(ids.error().message, HasSubstr("no token for the byte 0x7A"));
  vocabulary.unk = 256;
  EXPECT_THAT(encode(make(vocabulary), "az"), ElementsAre('a', 256));
}

TEST(ByteLevelBpe, TextThatCannotBeSpelledNeverBecomesAnEnd) {
  // As in StarCoder: one token is BOS, EOS and unknown.
  Vocabulary vocabulary = byte_level_vocabulary({}, {{"<|endoftext|>", TokenType::control}});
  vocabulary.tokens['z'] = "[gone]";
  vocabulary.bos = vocabulary.eos = vocabulary.unk = 256;
  EXPECT_FALSE(make(vocabulary).encode("z"));
}

TEST(ByteLevelBpe, ATokenThatIsNotSpelledInTheAlphabetIsItself) {
  const Tokenizer tokenizer = make(byte_level_vocabulary({}, {{"你好", TokenType::normal}}));
  EXPECT_EQ(tokenizer.piece(256), "你好");
}

TEST(ByteLevelBpe, BadMergesAreNamed) {
  const auto with_merge = [](std::string merge) {
    Vocabulary vocabulary = byte_level_vocabulary({"a b"});
    vocabulary.merges.push_back(std::move(merge));
    return why_refused(std::move(vocabulary));
  };
  EXPECT_EQ(with_merge("ab"), "tokenizer.ggml.merges: \"ab\" at 1 is not two tokens with a space between");
  for (const char* merge : {"", " ", " a", "a "}) EXPECT_THAT(with_merge(merge), HasSubstr("at 1 is not two tokens"));
  EXPECT_EQ(with_merge("xy a"), "tokenizer.ggml.merges: \"xy a\" at 1: \"xy\" is not a token");
  EXPECT_EQ(with_merge("a xy"), "tokenizer.ggml.merges: \"a xy\" at 1: \"xy\" is not a token");
  EXPECT_EQ(with_merge("x y"), "tokenizer.ggml.merges: \"x y\" at 1: \"xy\" is not a token");
}

TEST(ByteLevelBpe, AnUnknownPretokenizerIsNamed) {
  EXPECT_EQ(why_refused(byte_level_vocabulary({}, {}, "klingon")), "the pre-tokenizer \"klingon\" is unknown");
}

// --- SentencePiece ----------------------------------------------------------------------------------------------

TEST(SentencePiece, TheHighestScoreIsMergedFirstAndOfEqualsTheLeftmost) {
  const Tokenizer tokenizer = make(
      sentencepiece_vocabulary({{"a", -9}, {"b", -9}, {"c", -9}, {"ab", -2}, {"bc", -1}, {"aa", -3}, {"\u2581", -9}}));
  EXPECT_THAT(pieces_of(tokenizer, "abc"), ElementsAre(" ", "a", "bc"));
  EXPECT_THAT(pieces_of(tokenizer, "aaa"), ElementsAre(" ", "aa", "a"));
}

TEST(SentencePiece, ASpaceIsPutBeforeTheTextUnlessTheFileSaysOtherwise) {
  Vocabulary vocabulary = sentencepiece_vocabulary({{"a", -3}, {"\u2581", -2}, {"\u2581a", -1}});
  EXPECT_THAT(pieces_of(make(vocabulary), "a a"), ElementsAre(" a", " a"));
  EXPECT_THAT(pieces_of(make(vocabulary), " a"), ElementsAre(" ", " a"));
  vocabulary.add_space_prefix = false;
  EXPECT_THAT(pieces_of(make(vocabulary), "a a"), ElementsAre("a", " a"));
}

TEST(SentencePiece, TokensThatReachAcrossASpaceAreFoundToo) {
  Vocabulary vocabulary = sentencepiece_vocabulary(
      {{"a", -9}, {"b", -9}, {"\u2581", -9}, {"\u2581b", -5}, {"a\u2581b", -1}, {"a\u2581", -2}});
  vocabulary.add_space_prefix = false;
  EXPECT_THAT(pieces_of(make(vocabulary), "a bb a b"), ElementsAre("a b", "b", " ", "a b"));
}

TEST(SentencePiece, WhatIsNoTokenBecomesItsBytes) {
  Vocabulary vocabulary = sentencepiece_vocabulary({{"a", -1}});
  vocabulary.add_space_prefix = false;
  const Tokenizer tokenizer = make(vocabulary);
  EXPECT_THAT(encode(tokenizer, "é"), ElementsAre(3 + 0xC3, 3 + 0xA9));
  EXPECT_THAT(encode(tokenizer,
                     "\xFF"
                     "a"),
              ElementsAre(3 + 0xFF, 259));
  EXPECT_THAT(encode(tokenizer, "\n"), ElementsAre(3 + '\n'));
}

TEST(SentencePiece, WithoutBytesUnknownCharactersSideBySideAreOneUnknownToken) {
  Vocabulary vocabulary = sentencepiece_vocabulary({{"a", -1}, {"<0xC3>", -1}});
  vocabulary.types.assign(vocabulary.types.size(), TokenType::unused);  // no byte tokens
  vocabulary.types[0] = TokenType::unknown;
  vocabulary.types[259] = TokenType::normal;
  vocabulary.tokens[260] = "[spare]";
  vocabulary.add_space_prefix = false;
  EXPECT_THAT(encode(make(vocabulary), "éèaé"), ElementsAre(0, 259, 0));
  vocabulary.unk = kNoToken;
  const auto ids = make(vocabulary).encode("é");
  ASSERT_FALSE(ids);
  EXPECT_THAT(ids.error().message, HasSubstr("no token for \"é\""));
}

TEST(SentencePiece, ALiteralSpaceMarkIsASpace) {
  const Tokenizer tokenizer = make(sentencepiece_vocabulary({{"a", -3}, {"\u2581", -2}, {"\u2581a", -1}}));
  EXPECT_EQ(encode(tokenizer, "a\u2581a"), encode(tokenizer, "a a"));
}

TEST(SentencePiece, GemmasWayRunsOfSpacesAndLineBreaksAreUserDefinedTokensAndNoSpaceIsAdded) {
  Vocabulary vocabulary =
      sentencepiece_vocabulary({{"a", -3}, {"\u2581", -2}, {"\u2581a", -1}},
                               {{"  ", TokenType::user_defined}, {"\n\n", TokenType::user_defined}});
  vocabulary.add_space_prefix = false;
  const Tokenizer tokenizer = make(vocabulary);
  EXPECT_THAT(pieces_of(tokenizer, "a  a a\n\na   a"), ElementsAre("a", "  ", "a", " a", "\n\n", "a", "  ", " a"));
  EXPECT_EQ(tokenizer.decode(encode(tokenizer, " a  a")), " a  a");
}

TEST(SentencePiece, AByteTokenThatIsMisspelledIsNamed) {
  Vocabulary vocabulary = sentencepiece_vocabulary({});
  vocabulary.tokens[3] = "<0xZZ>";
  EXPECT_EQ(why_refused(vocabulary), "token 3 is a byte, but spelled \"<0xZZ>\"");
}

// --- special tokens ---------------------------------------------------------------------------------------------

Vocabulary chat_vocabulary() {
  Vocabulary vocabulary = byte_level_vocabulary(
      {"e n", "en d"},
      {{"<|im_start|>", TokenType::control}, {"<|im_end|>", TokenType::control}, {"<tool>", TokenType::user_defined}});
  vocabulary.eos = 259;
  return vocabulary;
}

TEST(SpecialTokenParsing, ControlTokensInTextAreTextUnlessTheCallerAllowsThem) {
  const Tokenizer tokenizer = make(chat_vocabulary());
  const std::string text = "a<|im_end|>b";
  for (const TokenId id : encode(tokenizer, text)) EXPECT_NE(tokenizer.type(id), TokenType::control);
  EXPECT_EQ(tokenizer.decode(encode(tokenizer, text)), text);
  EXPECT_THAT(encode(tokenizer, text, kParse), ElementsAre('a', 259, 'b'));
  EXPECT_THAT(encode(tokenizer, "<|im_start|><|im_end|>", kParse), ElementsAre(258, 259));
  EXPECT_THAT(encode(tokenizer, "<|im_end|", kParse).back(), '|');
}

TEST(SpecialTokenParsing, PartsThatUsersWroteStayTextInATemplateThatIsParsed) {
  const Tokenizer tokenizer = make(chat_vocabulary());
  const auto control_tokens = [&](std::string_view text, std::vector<TextRange> literal) {
    const auto ids = encode(tokenizer, text, {.add_special = false, .parse_special = true, .literal = literal});
    EXPECT_EQ(tokenizer.decode(ids, {.render_special = true}), text);
    return std::ranges::count_if(ids, [&](TokenId id) { return tokenizer.type(id) == TokenType::control; });
  };
  //                        0            12          22          32
  const std::string text = "<|im_start|>a<|im_end|>b<|im_end|>";
  EXPECT_EQ(control_tokens(text, {}), 3);
  EXPECT_EQ(control_tokens(text, {{12, 24}}), 2);          // "a<|im_end|>b"
  EXPECT_EQ(control_tokens(text, {{0, 1}, {33, 34}}), 1);  // an overlap of one byte is enough, at either end
  EXPECT_EQ(control_tokens(text, {{0, 12}, {12, 40}}), 0);
  EXPECT_EQ(control_tokens(text, {{12, 13}, {23, 24}}), 3);  // adjacent ranges do not overlap
  EXPECT_EQ(control_tokens(text, {{5, 5}}), 2);
  // User-defined tokens are found inside literal ranges too.
  const std::vector<TextRange> all = {{0, 100}};
  EXPECT_THAT(encode(tokenizer, "a<tool>", {.add_special = false, .parse_special = true, .literal = all}),
              ElementsAre('a', 260));
}

TEST(SpecialTokenParsing, UserDefinedTokensAreAlwaysFound) {
  const Tokenizer tokenizer = make(chat_vocabulary());
  EXPECT_THAT(encode(tokenizer, "a<tool>b"), ElementsAre('a', 260, 'b'));
  EXPECT_THAT(encode(tokenizer, "a<tool>b", kParse), ElementsAre('a', 260, 'b'));
}

TEST(SpecialTokenParsing, NoMergeMakesAControlToken) {
  // The merges would produce the control token, and so would a pre-tokenizer that looks up whole words.
  for (const char* pre : {"gpt-2", "llama-bpe"}) {
    Vocabulary vocabulary = byte_level_vocabulary({"e n", "en d"}, {}, pre);
    vocabulary.types[257] = TokenType::control;
    const Tokenizer tokenizer = make(vocabulary);
    EXPECT_THAT(pieces_of(tokenizer, "end"), ElementsAre("en", "d"));
    EXPECT_THAT(encode(tokenizer, "end", kParse), ElementsAre(257));
  }
}

TEST(SpecialTokenParsing, SentencePieceTextCannotSpellControlUnknownOrByteTokens) {
  const Tokenizer tokenizer = make(sentencepiece_vocabulary(
      {{"<", -1}, {"s", -1}, {">", -1}, {"s>", -1}, {"<s", -1}, {"0", -1}, {"x", -1}, {"A", -1}, {"\u2581", -1}}));
  for (const std::string_view text : {"<s>", "</s>", "<unk>", "<0x0A>", "<0x41>"}) {
    const auto ids = encode(tokenizer, text);
    EXPECT_EQ(tokenizer.decode(ids), text);
    for (const TokenId id : ids) EXPECT_GT(id, 2);
  }
  EXPECT_THAT(encode(tokenizer, "<s>", kParse), ElementsAre(1));
  EXPECT_GT(encode(tokenizer, "<0x0A>", kParse).size(), 4u);
}

TEST(SpecialTokenParsing, ATokenKnownToEndATurnIsControlWhateverTheFileSays) {
  for (const TokenType type : {TokenType::user_defined, TokenType::normal, TokenType::undefined}) {
    const Tokenizer tokenizer = make(byte_level_vocabulary({}, {{"<|im_end|>", type}}));
    EXPECT_EQ(tokenizer.type(256), TokenType::control);
    EXPECT_TRUE(tokenizer.is_end_of_generation(256));
    EXPECT_GT(encode(tokenizer, "<|im_end|>").size(), 1u);
    EXPECT_THAT(encode(tokenizer, "<|im_end|>", kParse), ElementsAre(256));
    EXPECT_EQ(tokenizer.decode(std::vector<TokenId>{256}), "");
  }
}

TEST(SpecialTokenParsing, WhatTheFileNamesAsBeginOrEndIsNoUserDefinedToken) {
  Vocabulary vocabulary =
      byte_level_vocabulary({}, {{"[B]", TokenType::user_defined}, {"[E]", TokenType::user_defined}});
  vocabulary.bos = 256;
  vocabulary.eos = 257;
  EXPECT_EQ(encode(make(vocabulary), "[B][E]").size(), 6u);
  EXPECT_THAT(encode(make(vocabulary), "[B][E]", kParse), ElementsAre(256, 257));
}

TEST(SpecialTokenParsing, AnEndThatIsPlainTextStaysText) {
  Vocabulary vocabulary = byte_level_vocabulary({});
  vocabulary.eos = '\n';
  const Tokenizer tokenizer = make(vocabulary);
  EXPECT_TRUE(tokenizer.is_end_of_generation('\n'));
  EXPECT_THAT(encode(tokenizer, "a\n"), ElementsAre('a', '\n'));
}

TEST(SpecialTokenParsing, UnusedTokensAreNeverFound) {
  const Tokenizer tokenizer = make(byte_level_vocabulary({}, {{"[PAD]", TokenType::unused}}));
  EXPECT_EQ(encode(tokenizer, "[PAD]", kParse).size(), 5u);
}

TEST(SpecialTokenParsing, PhiThreesTokensSwallowTheWhiteSpaceBehindThem) {
  Vocabulary vocabulary = sentencepiece_vocabulary(
      {{"a", -3}, {"\u2581a", -1}}, {{"<|user|>", TokenType::control}, {"<|endoftext|>", TokenType::control}});
  vocabulary.strip_after_special = true;
  const Tokenizer tokenizer = make(vocabulary);
  EXPECT_THAT(pieces_of(tokenizer, "<|user|> \n\ta", kParse), ElementsAre("<|user|>", " a"));
  EXPECT_THAT(pieces_of(tokenizer, "<|user|>\n", kParse), ElementsAre("<|user|>"));
  EXPECT_THAT(pieces_of(tokenizer, "<|endoftext|>\n", kParse), ElementsAre("<|endoftext|>", " ", "\n"));
  EXPECT_EQ(tokenizer.decode(encode(tokenizer, "<|user|>\na")), "<|user|>\na");
}

// --- BOS and EOS ------------------------------------------------------------------------------------------------

TEST(BosAndEos, AreAddedAsTheFileSaysAndOnlyWhereTheCallerWantsThem) {
  Vocabulary vocabulary = chat_vocabulary();
  vocabulary.bos = 258;
  vocabulary.add_bos = true;
  vocabulary.add_eos = true;
  const Tokenizer tokenizer = make(vocabulary);
  EXPECT_THAT(encode(tokenizer, "a", {}), ElementsAre(258, 'a', 259));
  EXPECT_THAT(encode(tokenizer, "", {}), ElementsAre(258, 259));
  EXPECT_THAT(encode(tokenizer, "a"), ElementsAre('a'));
  EXPECT_THAT(encode(tokenizer, ""), ElementsAre());
  vocabulary.add_bos = vocabulary.add_eos = false;
  EXPECT_THAT(encode(make(vocabulary), "a", {}), ElementsAre('a'));
}

TEST(BosAndEos, WhereTheFileSaysNothingTheKindDecides) {
  EXPECT_THAT(encode(make(sentencepiece_vocabulary({})), "", {}), ElementsAre(1));
  Vocabulary vocabulary = chat_vocabulary();
  vocabulary.bos = 258;
  EXPECT_FALSE(make(vocabulary).adds_bos());
  vocabulary.pre = "llama-bpe";
  EXPECT_TRUE(make(vocabulary).adds_bos());
  EXPECT_FALSE(make(vocabulary).adds_eos());
  vocabulary.bos = kNoToken;
  EXPECT_FALSE(make(vocabulary).adds_bos());
}

TEST(BosAndEos, AFileThatWantsOneItDoesNotHaveIsRefused) {
  Vocabulary vocabulary = byte_level_vocabulary({});
  vocabulary.add_bos = true;
  EXPECT_THAT(why_refused(vocabulary), HasSubstr("no tokenizer.ggml.bos_token_id"));
  vocabulary.add_bos = false;
  vocabulary.add_eos = true;
  EXPECT_THAT(why_refused(vocabulary), HasSubstr("no tokenizer.ggml.eos_token_id"));
}

TEST(BosAndEos, EndsOfGenerationAreWhatTheFileNamesAndWhatIsKnownByName) {
  Vocabulary vocabulary = chat_vocabulary();
  vocabulary.eot = 5;
  vocabulary.eom = 6;
  const Tokenizer tokenizer = make(vocabulary);
  EXPECT_THAT(std::vector<TokenId>(tokenizer.end_of_generation().begin(), tokenizer.end_of_generation().end()),
              ElementsAre(5, 6, 259));
  EXPECT_TRUE(tokenizer.is_end_of_generation(259));
  EXPECT_FALSE(tokenizer.is_end_of_generation(258));
  EXPECT_FALSE(tokenizer.is_end_of_generation(-1));
}

// --- the rest ---------------------------------------------------------------------------------------------------

TEST(Tokenizer, TellsAboutItsTokens) {
  const Tokenizer tokenizer = make(chat_vocabulary());
  EXPECT_EQ(tokenizer.size(), 261u);
  EXPECT_EQ(tokenizer.piece(' '), " ");
  EXPECT_EQ(tokenizer.spelling(' '), "Ġ");
  EXPECT_EQ(tokenizer.piece(258), "<|im_start|>");
  EXPECT_EQ(tokenizer.find("<|im_end|>"), 259);
  EXPECT_EQ(tokenizer.find("Ġ"), ' ');
  EXPECT_EQ(tokenizer.find("nowhere"), std::nullopt);
  EXPECT_EQ(tokenizer.find(""), std::nullopt);
  EXPECT_EQ(tokenizer.eos(), 259);
  EXPECT_EQ(tokenizer.bos(), std::nullopt);
  EXPECT_EQ(tokenizer.pre(), "gpt-2");
  for (const TokenId id : {-1, 261, 1 << 30}) {
    EXPECT_EQ(tokenizer.piece(id), "");
    EXPECT_EQ(tokenizer.spelling(id), "");
    EXPECT_EQ(tokenizer.type(id), TokenType::undefined);
  }
}

TEST(Tokenizer, NoTokenStandsForMoreBytesThanItSays) {
  const auto check = [](Vocabulary vocabulary, std::size_t expected) {
    const auto tokenizer = Tokenizer::create(std::move(vocabulary));
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    EXPECT_EQ(tokenizer->max_token_bytes(), expected);
    const std::string marks = "\u2581\u2581\u2581", words = "aaaa aaaa a", end = "<|im_end|>";
    for (const std::string& text : {marks, words, end + end, marks + end + words + "\xff\xfe", std::string(100, 'a')}) {
      for (const bool special : {false, true}) {
        const auto ids = tokenizer->encode(text, {.add_special = false, .parse_special = special});
        ASSERT_TRUE(ids) << ids.error().message;
        EXPECT_GE(ids->size() * expected, text.size()) << text;
      }
    }
  };
  check(testing::byte_level_vocabulary({"a a", "aa aa"}, {{"<|im_end|>", TokenType::control}}), 10);
  check(testing::byte_level_vocabulary({"a a", "aa aa"}), 4);
  // A space can come from the three bytes of U+2581.
  check(testing::sentencepiece_vocabulary({{"\u2581", -1}, {"a", -2}, {"aa", -3}, {"<|im_end|", -4}}), 9 * 3);
}

TEST(Tokenizer, SomeVocabulariesHaveTokensForAnyNumberOfBytes) {
  Vocabulary strips = testing::byte_level_vocabulary({}, {{"<|end|>", TokenType::control}});
  strips.strip_after_special = true;
  EXPECT_EQ(Tokenizer::create(std::move(strips))->max_token_bytes(), 0u);
  Vocabulary no_bytes = testing::sentencepiece_vocabulary({{"a", -2}});
  no_bytes.types[10] = TokenType::unused;
  EXPECT_EQ(Tokenizer::create(std::move(no_bytes))->max_token_bytes(), 0u);
}

TEST(Tokenizer, TwoTokensOfOneSpellingAreRefused) {
  EXPECT_EQ(why_refused(byte_level_vocabulary({}, {{"a", TokenType::control}})),
            "tokenizer.ggml.tokens: tokens 97 and 256 are both \"a\"");
}

TEST(Tokenizer, EmptyTokensAreHarmless) {
  const Tokenizer tokenizer = make(
      byte_level_vocabulary({}, {{"", TokenType::normal}, {"", TokenType::control}, {"", TokenType::user_defined}}));
  EXPECT_THAT(encode(tokenizer, "ab", kParse), ElementsAre('a', 'b'));
  EXPECT_EQ(tokenizer.decode(std::vector<TokenId>{256, 257, 258}, {.render_special = true}), "");
}

TEST(Tokenizer, ContradictionsInAVocabularyStructAreNamed) {
  Vocabulary vocabulary = byte_level_vocabulary({});
  vocabulary.bos = 256;
  EXPECT_EQ(why_refused(vocabulary), "tokenizer.ggml.bos_token_id is 256, but there are 256 tokens");
  EXPECT_EQ(why_refused({}), "tokenizer.ggml.tokens is empty");
}

}  // namespace
}  // namespace quire::text
