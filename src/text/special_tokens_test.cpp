#include "quire/text/special_tokens.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace quire::text {
namespace {

TEST(SpecialTokens, TheLeftmostIsFoundAndOfSeveralThereTheLongest) {
  SpecialTokens tokens;
  tokens.add("<a>", 1, false);
  tokens.add("<a>b", 2, false);
  tokens.add("a>", 3, false);
  const auto match = tokens.find("x<a>bc", 0, true);
  ASSERT_TRUE(match);
  EXPECT_EQ(match->begin, 1u);
  EXPECT_EQ(match->end, 5u);
  EXPECT_EQ(match->id, 2);
  EXPECT_EQ(tokens.find("x<a>c", 0, true)->id, 1);
  EXPECT_EQ(tokens.find("x<a>c", 2, true)->id, 3);
  EXPECT_FALSE(tokens.find("x<a>c", 3, true));
  EXPECT_FALSE(tokens.find("", 0, true));
}

TEST(SpecialTokens, RestrictedOnesAreFoundOnlyWhereAllowed) {
  SpecialTokens tokens;
  tokens.add("<|end|>", 1, true);
  tokens.add("<|end", 2, false);
  EXPECT_EQ(tokens.find("a<|end|>", 0, true)->id, 1);
  EXPECT_EQ(tokens.find("a<|end|>", 0, false)->id, 2);
}

TEST(SpecialTokens, AgreeWithTryingEveryTokenEverywhere) {
  std::mt19937 random(4);
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::string> texts;
    SpecialTokens tokens;
    for (int i = 0; i < 6; ++i) {
      std::string text(1 + random() % 4, 'a');
      for (char& c : text) c = static_cast<char>('a' + random() % 2);
      if (std::ranges::find(texts, text) != texts.end()) continue;
      tokens.add(text, static_cast<TokenId>(texts.size()), texts.size() % 2 == 0);
      texts.push_back(text);
    }
    std::string text(random() % 12, 'a');
    for (char& c : text) c = static_cast<char>('a' + random() % 3);
    const bool allow = random() % 2 == 0;
    TokenId expected = kNoToken;
    std::size_t place = 0;
    for (std::size_t begin = 0; begin < text.size() && expected == kNoToken; ++begin) {
      std::size_t longest = 0;
      for (std::size_t id = 0; id < texts.size(); ++id) {
        if (!allow && id % 2 == 0) continue;
        if (text.compare(begin, texts[id].size(), texts[id]) != 0 || texts[id].size() <= longest) continue;
        longest = texts[id].size();
        expected = static_cast<TokenId>(id);
        place = begin;
      }
    }
    const auto match = tokens.find(text, 0, allow);
    ASSERT_EQ(match.has_value(), expected != kNoToken);
    if (!match) continue;
    EXPECT_EQ(match->id, expected);
    EXPECT_EQ(match->begin, place);
  }
}

}  // namespace
}  // namespace quire::text
