#include "quire/engine/stop_matcher.h"

#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace quire::engine {
namespace {

TEST(StopMatcher, TextWithoutStopsGoesOutAtOnce) {
  StopMatcher matcher;
  EXPECT_EQ(matcher.push("abc"), "abc");
  EXPECT_EQ(matcher.push(""), "");
  EXPECT_EQ(matcher.finish(), "");
}

TEST(StopMatcher, WhatCouldBeginAStopWaitsUntilItCannot) {
  const std::vector<std::string> stops{"\n\nUser:"};
  StopMatcher matcher(stops);
  EXPECT_EQ(matcher.push("Hello\n"), "Hello");
  EXPECT_EQ(matcher.push("\nUs"), "");
  EXPECT_EQ(matcher.push("ually"), "\n\nUsually");
  EXPECT_EQ(matcher.push(" so\n\nUser"), " so");
  EXPECT_FALSE(matcher.matched());
  EXPECT_EQ(matcher.push(": hi"), "");
  EXPECT_TRUE(matcher.matched());
  EXPECT_EQ(matcher.which(), "\n\nUser:");
  EXPECT_EQ(matcher.push("more"), "");
}

TEST(StopMatcher, TheEndBringsWhatWasHeldBack) {
  const std::vector<std::string> stops{"END"};
  StopMatcher matcher(stops);
  EXPECT_EQ(matcher.push("the EN"), "the ");
  EXPECT_EQ(matcher.finish(), "EN");
  EXPECT_FALSE(matcher.matched());
}

TEST(StopMatcher, OfSeveralTheOneThatBeginsFirstEndsTheText) {
  const std::vector<std::string> stops{"cd", "bcd", "b"};
  StopMatcher matcher(stops);
  EXPECT_EQ(matcher.push("abcd"), "a");
  EXPECT_EQ(matcher.which(), "bcd");
}

TEST(StopMatcher, HoweverTextIsCutTheSameGoesOut) {
  std::mt19937 random(3);
  const std::vector<std::string> stops{"aab", "abab", "bbbb"};
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (int i = 0; i < 24; ++i) text += static_cast<char>('a' + random() % 3 % 2);
    // The definition is letter by letter: the first stop string that is complete ends the text.
    std::string whole;
    StopMatcher slow(stops);
    for (const char c : text) whole += slow.push(std::string_view(&c, 1));
    if (!slow.matched()) whole += slow.finish();
    std::size_t first = std::string::npos;
    for (const std::string& stop : stops) {
      const std::size_t at = text.find(stop);
      if (at != std::string::npos) first = std::min(first, at + stop.size());
    }
    ASSERT_EQ(slow.matched(), first != std::string::npos);
    ASSERT_EQ(text.substr(0, whole.size()) + std::string(slow.which()), text.substr(0, first));
  }
}

}  // namespace
}  // namespace quire::engine
