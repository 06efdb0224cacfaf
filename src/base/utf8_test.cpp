#include "quire/base/utf8.h"

#include <random>
#include <string>

#include <gtest/gtest.h>

namespace quire {
namespace {

std::string repaired(std::string_view text) {
  std::string out;
  append_repaired(out, text);
  return out;
}

TEST(Utf8, EveryCodePointSurvivesEncodingAndDecoding) {
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string text;
    append_utf8(text, c);
    const Utf8Step step = utf8_step(text);
    ASSERT_EQ(step.kind, Utf8Kind::valid) << std::hex << static_cast<unsigned>(c);
    ASSERT_EQ(step.length, text.size());
    ASSERT_EQ(utf8_decode(text), c);
  }
}

TEST(Utf8, OverlongFormsSurrogatesAndNumbersTooLargeAreInvalid) {
  for (const std::string_view text :
       {"\xC0\x80", "\xC1\xBF", "\xE0\x80\x80", "\xE0\x9F\xBF", "\xF0\x80\x80\x80", "\xF0\x8F\xBF\xBF", "\xED\xA0\x80",
        "\xED\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF", "\x80", "\xBF"}) {
    EXPECT_EQ(utf8_step(text).kind, Utf8Kind::invalid);
    EXPECT_EQ(utf8_valid_prefix(text), 0u);
  }
}

TEST(Utf8, TextThatEndsInsideACharacterIsIncomplete) {
  const std::string_view llama = "\xF0\x9F\xA6\x99";
  for (std::size_t length = 1; length < llama.size(); ++length) {
    const Utf8Step step = utf8_step(llama.substr(0, length));
    EXPECT_EQ(step.kind, Utf8Kind::incomplete);
    EXPECT_EQ(step.length, length);
    EXPECT_EQ(utf8_incomplete_tail("abc" + std::string(llama.substr(0, length))), length);
  }
  EXPECT_EQ(utf8_incomplete_tail(llama), 0u);
  EXPECT_EQ(utf8_incomplete_tail(""), 0u);
  EXPECT_EQ(utf8_incomplete_tail("abc"), 0u);
}

TEST(Utf8, BytesThatNothingCanCompleteDoNotWait) {
  EXPECT_EQ(utf8_incomplete_tail("a\x80"), 0u);
  EXPECT_EQ(utf8_incomplete_tail("\x80\x80\x80\x80"), 0u);
  EXPECT_EQ(utf8_incomplete_tail("\xC0"), 0u);
  EXPECT_EQ(utf8_incomplete_tail("\xE0\x80"), 0u);
  EXPECT_EQ(utf8_incomplete_tail("\xC3\xA9\xA9"), 0u);
}

TEST(Utf8, AValidPrefixEndsBeforeTheFirstBadByteWhereverItStands) {
  for (std::size_t before = 0; before < 40; ++before) {
    const std::string text = std::string(before, 'x') + "\xFF" + std::string(20, 'y');
    EXPECT_EQ(utf8_valid_prefix(text), before);
  }
}

TEST(Utf8, RepairPutsOneReplacementForEachMaximalSubpart) {
  EXPECT_EQ(repaired("a\xFF"
                     "b"),
            "a\uFFFD"
            "b");
  EXPECT_EQ(repaired("\xE4\xBD"), "\uFFFD");  // one character, cut short
  EXPECT_EQ(repaired("\xE4\xBD"
                     "A"),
            "\uFFFD"
            "A");
  EXPECT_EQ(repaired("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");  // no byte of a surrogate begins a valid character
  EXPECT_EQ(repaired("\xF0\x9F\xA6\xF0\x9F\xA6\x99"), "\uFFFD\U0001F999");
}

TEST(Utf8, WhateverIsRepairedIsValid) {
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {
    std::string text(random() % 12, '\0');
    for (char& c : text) c = static_cast<char>(random() % 4 == 0 ? random() % 128 : 0x80 + random() % 128);
    const std::string out = repaired(text);
    ASSERT_EQ(utf8_valid_prefix(out), out.size());
    const std::size_t valid = utf8_valid_prefix(text);
    ASSERT_EQ(out.substr(0, valid), text.substr(0, valid));
  }
}

}  // namespace
}  // namespace quire
