// Tests each pre-tokenizer with text that is hard to split. The expected words were derived by hand from the
// expressions. In addition, all expressions were compared with Python's regex module.
#include "quire/text/pretokenizer.h"

#include <algorithm>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/base/utf8.h"

namespace quire::text {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Words = std::vector<std::string>;

Words cut(const Pretokenizer& pretokenizer, std::string_view text) {
  std::vector<std::uint32_t> ends;
  const auto split = pretokenizer.split(text, ends);
  if (!split) return {"error: " + split.error().message};
  Words words;
  std::size_t begin = 0;
  for (const std::uint32_t end : ends) {
    words.emplace_back(text.substr(begin, end - begin));
    begin = end;
  }
  EXPECT_EQ(begin, text.size());
  return words;
}

Words cut(std::string_view name, std::string_view text) {
  const auto pretokenizer = Pretokenizer::create(name);
  if (!pretokenizer) return {"error: " + pretokenizer.error().message};
  return cut(*pretokenizer, text);
}

TEST(Pretokenizer, AnUnknownNameIsAnErrorThatRepeatsIt) {
  const auto made = Pretokenizer::create("llama-9\n");
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().message, "the pre-tokenizer \"llama-9\\x0A\" is unknown");
  EXPECT_FALSE(Pretokenizer::create(""));
}

TEST(Pretokenizer, EveryNameCanBeMadeAndIsListedOnce) {
  const auto names = Pretokenizer::names();
  EXPECT_TRUE(std::ranges::is_sorted(names));
  EXPECT_EQ(std::ranges::adjacent_find(names), names.end());
  for (const std::string_view name : names) {
    const auto made = Pretokenizer::create(name);
    EXPECT_TRUE(made) << name << ": " << made.error().message;
  }
}

TEST(Pretokenizer, Gpt2KeepsOneSpaceWithAWordAndCutsContractionsInLowerCaseOnly) {
  EXPECT_THAT(cut("gpt-2", "I'll don't DON'T"), ElementsAre("I", "'ll", " don", "'t", " DON", "'", "T"));
  EXPECT_THAT(cut("gpt-2", "Hello world!!"), ElementsAre("Hello", " world", "!!"));
  EXPECT_THAT(cut("gpt-2", "x12345 67"), ElementsAre("x", "12345", " 67"));
  EXPECT_THAT(cut("gpt-2", "a   b"), ElementsAre("a", "  ", " b"));
  EXPECT_THAT(cut("gpt-2", "a\n\nb"), ElementsAre("a", "\n", "\n", "b"));
  EXPECT_THAT(cut("gpt-2", "a \n "), ElementsAre("a", " \n "));
  EXPECT_THAT(cut("gpt-2", "\t\tx"), ElementsAre("\t", "\t", "x"));
}

TEST(Pretokenizer, Llama3CutsNumbersInThreesAndContractionsInAnyCase) {
  EXPECT_THAT(cut("llama-bpe", "1234567"), ElementsAre("123", "456", "7"));
  EXPECT_THAT(cut("llama-bpe", " 1234"), ElementsAre(" ", "123", "4"));
  EXPECT_THAT(cut("llama-bpe", "I'LL He's"), ElementsAre("I", "'LL", " He", "'s"));
  EXPECT_THAT(cut("llama-bpe", "x\u0663\u0663\u0663\u0663"), ElementsAre("x", "\u0663\u0663\u0663", "\u0663"));
}

TEST(Pretokenizer, Llama3LetsAWordTakeOneSignWithIt) {
  EXPECT_THAT(cut("llama-bpe", "(foo) .bar --baz"), ElementsAre("(foo", ")", " .", "bar", " --", "baz"));
  EXPECT_THAT(cut("llama-bpe", "\tfoo"), ElementsAre("\tfoo"));
  EXPECT_THAT(cut("llama-bpe", "\nfoo"), ElementsAre("\n", "foo"));
  EXPECT_THAT(cut("llama-bpe", "foo.\n\nbar"), ElementsAre("foo", ".\n\n", "bar"));
}

TEST(Pretokenizer, Llama3KeepsLineBreaksWithTheSpaceBeforeThem) {
  EXPECT_THAT(cut("llama-bpe", "a  \n \n  b"), ElementsAre("a", "  \n \n", " ", " b"));
  EXPECT_THAT(cut("llama-bpe", "a\r\n\r\nb"), ElementsAre("a", "\r\n\r\n", "b"));
  EXPECT_THAT(cut("llama-bpe", "a   "), ElementsAre("a", "   "));
  EXPECT_THAT(cut("llama-bpe", "    x"), ElementsAre("   ", " x"));
  EXPECT_THAT(cut("llama-bpe", "    1"), ElementsAre("   ", " ", "1"));
}

TEST(Pretokenizer, Llama3KnowsLettersAndSpacesOfAllScripts) {
  EXPECT_THAT(cut("llama-bpe", "我想在apple工作1314天"), ElementsAre("我想在apple工作", "131", "4", "天"));
  EXPECT_THAT(cut("llama-bpe", "a\u3000\u3000b"), ElementsAre("a", "\u3000", "\u3000b"));
  EXPECT_THAT(cut("llama-bpe", "🚀🚀 go"), ElementsAre("🚀🚀", " go"));
  // A combining mark is neither letter nor number: it begins a word or counts as punctuation.
  EXPECT_THAT(cut("llama-bpe", "e\u0301a"), ElementsAre("e", "\u0301a"));
  EXPECT_THAT(cut("llama-bpe", "e\u0301 "), ElementsAre("e", "\u0301", " "));
}

TEST(Pretokenizer, WhiteSpaceIsUnicodesAndHasNoMongolianVowelSeparator) {
  EXPECT_THAT(cut("llama-bpe", "\u180E\u180Ea"), ElementsAre("\u180E\u180E", "a"));
  EXPECT_THAT(cut("gpt-2", "a\u0085\u2028b"), ElementsAre("a", "\u0085", "\u2028", "b"));
}

TEST(Pretokenizer, Qwen2CutsEveryDigit) {
  EXPECT_THAT(cut("qwen2", "a 123"), ElementsAre("a", " ", "1", "2", "3"));
  EXPECT_THAT(cut("qwen2", "You're 42!\n"), ElementsAre("You", "'re", " ", "4", "2", "!\n"));
  EXPECT_THAT(cut("qwen2", "½x"), ElementsAre("½", "x"));
}

TEST(Pretokenizer, Qwen35CountsMarksAsLetters) {
  EXPECT_THAT(cut("qwen35", "e\u0301a 12"), ElementsAre("e\u0301a", " ", "1", "2"));
  EXPECT_THAT(cut("qwen2", "\u0915\u094D\u0937"), ElementsAre("\u0915", "\u094D\u0937"));
  EXPECT_THAT(cut("qwen35", "\u0915\u094D\u0937"), ElementsAre("\u0915\u094D\u0937"));
}

TEST(Pretokenizer, TekkenCutsWhereLowerCaseTurnsIntoUpperCaseInAnyScript) {
  EXPECT_THAT(cut("tekken", "camelCaseHTTPServer"), ElementsAre("camel", "Case", "HTTPServer"));
  EXPECT_THAT(cut("tekken", "HTTP"), ElementsAre("HTTP"));
  EXPECT_THAT(cut("tekken", "äÄäÄ"), ElementsAre("ä", "Ää", "Ä"));
  EXPECT_THAT(cut("tekken", "I'm 123 a//\n"), ElementsAre("I", "'m", " ", "1", "2", "3", " a", "//\n"));
  EXPECT_THAT(cut("tekken", "e\u0301E\u0301"), ElementsAre("e\u0301", "E\u0301"));
  EXPECT_THAT(cut("tekken", "你好World你World"), ElementsAre("你好World你", "World"));  // ideographs have no case
}

TEST(Pretokenizer, Gpt4oKeepsContractionsWithTheirWord) {
  EXPECT_THAT(cut("gpt-4o", "I'm Don'T xY's"), ElementsAre("I'm", " Don'T", " x", "Y's"));
  EXPECT_THAT(cut("llama4", "12345"), ElementsAre("123", "45"));
}

TEST(Pretokenizer, FamiliesThatCutDigitsFirstGiveThemNoSpace) {
  for (const std::string_view name : {"starcoder", "refact", "smollm", "command-r"}) {
    EXPECT_THAT(cut(name, "a 12 b's"), ElementsAre("a", " ", "1", "2", " b", "'s")) << name;
  }
}

TEST(Pretokenizer, FalconAndDefaultCutSignsFirstAndNumbersInThrees) {
  EXPECT_THAT(cut("falcon", "don't 12345"), ElementsAre("don", "'", "t", " ", "123", "45"));
  EXPECT_THAT(cut("default", "a`b 1234"), ElementsAre("a", "`", "b", " ", "123", "4"));
}

TEST(Pretokenizer, DeepSeekCutsTrailingSpaceAndCjkApart) {
  EXPECT_THAT(cut("deepseek-llm", "ab 你好 12  "), ElementsAre("ab", " ", "你好", " ", "12", "  "));
  EXPECT_THAT(cut("deepseek-v3", "foo(bar) 你好1234"), ElementsAre("foo", "(bar", ")", " ", "你好", "123", "4"));
  EXPECT_THAT(cut("deepseek-coder", "a\n 12,b"), ElementsAre("a", "\n", " ", "1", "2", ",", "b"));
}

TEST(Pretokenizer, EachRunOfBadBytesIsAWordAndDoesNotTouchTheTextBesideIt) {
  EXPECT_THAT(cut("llama-bpe", "ab\xFF\xFE cd"), ElementsAre("ab", "\xFF\xFE", " cd"));
  EXPECT_THAT(cut("llama-bpe", "\x80"), ElementsAre("\x80"));
  EXPECT_THAT(cut("llama-bpe", "é\xC3"), ElementsAre("é", "\xC3"));
  EXPECT_THAT(cut("starcoder", "1\xF0\x9F\xA6 2"), ElementsAre("1", "\xF0\x9F\xA6", " ", "2"));
}

TEST(Pretokenizer, NoTextHasNoWords) { EXPECT_TRUE(cut("llama-bpe", "").empty()); }

TEST(Pretokenizer, WordsCoverAnyBytesWhateverTheName) {
  std::mt19937 random(2);
  std::vector<std::string> texts;
  for (int i = 0; i < 300; ++i) {
    std::string text;
    const std::size_t length = random() % 40;
    while (text.size() < length) {
      switch (random() % 4) {
        case 0: text += static_cast<char>(random()); break;
        case 1: append_utf8(text, random() % 0xD800); break;
        case 2: text += " \n\t'"[random() % 4]; break;
        default: text += static_cast<char>('!' + random() % 90); break;
      }
    }
    texts.push_back(std::move(text));
  }
  for (const std::string_view name : Pretokenizer::names()) {
    const auto pretokenizer = Pretokenizer::create(name);
    ASSERT_TRUE(pretokenizer);
    for (const std::string& text : texts) {
      std::string together;
      for (const std::string& word : cut(*pretokenizer, text)) {
        ASSERT_FALSE(word.empty());
        together += word;
      }
      ASSERT_EQ(together, text) << name;
    }
  }
}

// No clock is read here: a quadratic algorithm would exceed the time limit of the test.
TEST(Pretokenizer, AMegabyteOfAnythingIsCutInNoTime) {
  constexpr std::size_t kBytes = 1'000'000;
  std::vector<std::string> texts;
  for (const std::string_view unit :
       {"a", "A",  "Aa", "7",  "a1",     "你",      " ",      "\n",   "\n ", "\t", "\r\n",
        "'", "'s", ".",  " .", "\u0301", "a\u0301", "\u00A0", "\xFF", "한",  "🚀",  "äÄ"}) {
    std::string text;
    while (text.size() < kBytes) text += unit;
    texts.push_back(text + "x");
  }
  // One name for each set of expressions.
  for (const std::string_view name :
       {"gpt-2", "llama-bpe", "qwen2", "qwen35", "seed-coder", "minicpm5", "tekken", "gpt-4o", "starcoder", "viking",
        "falcon", "default", "deepseek-llm", "deepseek-coder", "deepseek-v3"}) {
    const auto pretokenizer = Pretokenizer::create(name);
    ASSERT_TRUE(pretokenizer);
    for (const std::string& text : texts) {
      std::vector<std::uint32_t> ends;
      const auto split = pretokenizer->split(text, ends);
      ASSERT_TRUE(split) << name << ": " << split.error().message;
      ASSERT_EQ(ends.back(), text.size());
    }
  }
}

TEST(Pretokenizer, ManyThreadsMayUseOne) {
  const auto pretokenizer = Pretokenizer::create("llama-bpe");
  ASSERT_TRUE(pretokenizer);
  const std::string text = "It's 12345 degrees, isn't it? 你好 \xFF ok";
  const Words expected = cut(*pretokenizer, text);
  std::vector<int> wrong(4);
  std::vector<std::jthread> threads;
  for (int& count : wrong) {
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) count += cut(*pretokenizer, text) != expected;
    });
  }
  threads.clear();
  EXPECT_THAT(wrong, ::testing::Each(0));
}

TEST(Regex, APatternThatDoesNotCompileIsAnErrorWithItsPlace) {
  const auto regex = Regex::compile("a(b");
  ASSERT_FALSE(regex);
  EXPECT_THAT(regex.error().message, HasSubstr("'a(b' does not compile"));
}

TEST(Regex, AMatchThatWouldTakeForeverIsAnErrorAndEmptyMatchesAreNoPieces) {
  const auto exponential = Regex::compile("(?:a|aa|aaa)+$");
  ASSERT_TRUE(exponential);
  Regex::Scratch scratch;
  std::vector<std::uint32_t> ends;
  EXPECT_FALSE(exponential->split(std::string(200, 'a') + "b", 0, scratch, ends));

  const auto empty = Regex::compile("x*");
  ASSERT_TRUE(empty);
  ends.clear();
  ASSERT_TRUE(empty->split("aéxxb", 10, scratch, ends));
  EXPECT_THAT(ends, ElementsAre(13, 15, 16));
}

}  // namespace
}  // namespace quire::text
