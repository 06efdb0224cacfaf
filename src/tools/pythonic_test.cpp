#include "quire/tools/pythonic.h"

#include <gtest/gtest.h>

namespace quire::tools {
namespace {

std::string converted(std::string_view text) {
  const auto keyword = read_keyword(text);
  return keyword ? keyword->key + "=" + keyword->value : "nothing";
}

TEST(Pythonic, LiteralsBecomeJson) {
  EXPECT_EQ(converted("city=\"Rome\""), "city=\"Rome\"");
  EXPECT_EQ(converted(" city = 'Rome' "), "city=\"Rome\"");
  EXPECT_EQ(converted("a=True"), "a=true");
  EXPECT_EQ(converted("a=None"), "a=null");
  EXPECT_EQ(converted("a=false"), "a=false");
  EXPECT_EQ(converted("a=-1_000"), "a=-1000");
  EXPECT_EQ(converted("a=.5"), "a=0.5");
  EXPECT_EQ(converted("a=1."), "a=1.0");
  EXPECT_EQ(converted("a=2.5e-3"), "a=2.5e-3");
  EXPECT_EQ(converted("a=[1, 'x', (2,), []]"), "a=[1, \"x\", [2], []]");
  EXPECT_EQ(converted("a={'k': {'l': \"m\"}, \"n\": 1,}"), "a={\"k\": {\"l\": \"m\"}, \"n\": 1}");
}

TEST(Pythonic, EscapesAndQuotesAreThoseOfPython) {
  EXPECT_EQ(converted(R"(a='it\'s "x"\n')"), R"(a="it's \"x\"\n")");
  EXPECT_EQ(converted(R"(a="\u00e9\x41\U0001F600")"), "a=\"\u00e9A\U0001F600\"");
  EXPECT_EQ(converted(R"(a="\ud83d\ude00")"), "a=\"\U0001F600\"");
  EXPECT_EQ(converted("a='''two\nlines'''"), "a=\"two\\nlines\"");
  EXPECT_EQ(converted(R"(a='\d')"), R"(a="\\d")");
  EXPECT_EQ(converted("a='x' 'y'"), "a=\"xy\"");
}

TEST(Pythonic, WhatIsNoLiteralIsRefused) {
  for (const char* const text : {"", "a", "a=", "\"x\"", "a=b", "a=f(1)", "a=1+2", "a=[1", "a={1: 2}", "a='x", "a=1x",
                                 "a=01", "a=--1", "a=1 2", "a=\"\\ud800\"", "=1"}) {
    EXPECT_EQ(converted(text), "nothing") << text;
  }
}

TEST(Pythonic, AKeyIsReadBackIfItIsOneWord) {
  for (const char* const key : {"a", "_", "class", "2nd", "gr\u00f6\u00dfe"}) {
    EXPECT_TRUE(is_keyword_key(key)) << key;
    EXPECT_EQ(converted(std::string(key) + "=1"), std::string(key) + "=1");
  }
  for (const char* const key : {"", "a-b", "a.b", "a b", " a", "a=b", "a,b", "\"a\""}) {
    EXPECT_FALSE(is_keyword_key(key)) << key;
    EXPECT_NE(converted(std::string(key) + "=1"), std::string(key) + "=1");
  }
}

TEST(Pythonic, AnArgumentEndsOutsideStringsAndBrackets) {
  const auto end = [](std::string_view text) {
    KeywordEnd ending;
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (ending.push(text[i])) return i;
    }
    return std::string_view::npos;
  };
  EXPECT_EQ(end("a=1, b=2)"), 3u);
  EXPECT_EQ(end("a=')', b)"), 5u);
  EXPECT_EQ(end("a='\\')', b)"), 7u);
  EXPECT_EQ(end("a=[1, (2, 3)])"), 13u);
  EXPECT_EQ(end("a=1"), std::string_view::npos);
}

}  // namespace
}  // namespace quire::tools
