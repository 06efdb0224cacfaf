#include "quire/text/printable.h"

#include <random>
#include <string>

#include <boost/json.hpp>
#include <gtest/gtest.h>

#include "quire/base/utf8.h"

namespace quire::text {
namespace {

using namespace std::string_literals;

TEST(Printable, OrdinaryTextIsLeftAlone) {
  EXPECT_EQ(printable("Hello, wörld ½ 日本 😀"), "Hello, wörld ½ 日本 😀");
  EXPECT_EQ(printable(""), "");
}

TEST(Printable, WhatATerminalObeysIsEscaped) {
  EXPECT_EQ(printable("\x1b[31mred\x07"), "\\x1b[31mred\\x07");
  EXPECT_EQ(printable("a\nb\tc\r"), "a\\nb\\tc\\r");
  EXPECT_EQ(printable("\0"s), "\\x00");
  EXPECT_EQ(printable("\x7f"), "\\x7f");
  EXPECT_EQ(printable("\u009b31m"), "\\u{9b}31m");              // an escape sequence in one character
  EXPECT_EQ(printable("a\u202etxt.exe"), "a\\u{202e}txt.exe");  // right to left
  EXPECT_EQ(printable("\u200b\ufeff"), "\\u{200b}\\u{feff}");   // invisible
}

TEST(Printable, WhatIsNotUtf8IsEscapedByteByByte) {
  EXPECT_EQ(printable("a\xff\xc3"), "a\\xff\\xc3");
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");
}

TEST(Printable, LongTextIsCutBetweenCharacters) {
  EXPECT_EQ(printable("äöü", {.limit = 2}), "äö...");
  EXPECT_EQ(printable("äöü", {.limit = 3}), "äöü");
  EXPECT_EQ(printable("abc", {.limit = 1, .quotes = true}), "\"a\"...");
}

TEST(Printable, ItCanBeAsciiAndKeepLinesAndQuote) {
  EXPECT_EQ(printable("é😀", {.ascii = true}), "\\u{e9}\\u{1f600}");
  EXPECT_EQ(printable("a\n\tb\r\x1b", {.lines = true}), "a\n\tb\\r\\x1b");
  EXPECT_EQ(printable("say \"\\\"", {.quotes = true}), "\"say \\\"\\\\\\\"\"");
}

TEST(Printable, AnyBytesBecomeCleanUtf8) {
  std::mt19937 random(7);
  for (int i = 0; i < 2000; ++i) {
    std::string bytes(random() % 40, '\0');
    for (char& c : bytes) c = static_cast<char>(random() % 3 == 0 ? random() % 128 : random());
    const std::string shown = printable(bytes);
    EXPECT_EQ(utf8_valid_prefix(shown), shown.size());
    for (const char c : shown) EXPECT_FALSE((c >= 0 && c < 0x20) || c == 0x7f);
    const std::string json = json_line(boost::json::object{{"text", bytes}});
    boost::json::error_code error;
    boost::json::parse(json, error);
    EXPECT_FALSE(error) << json;
  }
}

TEST(Printable, ClippedTextDoesNotEndInHalfACharacter) {
  EXPECT_EQ(clipped("abc", 3), "abc");
  EXPECT_EQ(clipped("abc", 2), "ab");
  EXPECT_EQ(clipped("aä", 2), "a");
  EXPECT_EQ(clipped("😀", 3), "");
}

TEST(JsonLine, IsOneLineOfCleanJson) {
  EXPECT_EQ(json_line(boost::json::object{{"a", 1}, {"b", "x\ny"}}), "{\"a\":1,\"b\":\"x\\ny\"}\n");
  EXPECT_EQ(json_line(boost::json::value("\u009b\u202e\x7f")), "\"\\u009b\\u202e\\u007f\"\n");
  EXPECT_EQ(json_line(boost::json::value("\U000E0041")), "\"\\udb40\\udc41\"\n");
  EXPECT_EQ(json_line(boost::json::value("a\xff")), "\"a\uFFFD\"\n");
  EXPECT_EQ(json_line(boost::json::value("é😀")), "\"é😀\"\n");
}

}  // namespace
}  // namespace quire::text
