#include "quire/grammar/regex_syntax.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "quire/grammar/char_set.h"

namespace quire::grammar {
namespace {

using testing::HasSubstr;

class RegexSyntaxTest : public testing::Test {
 protected:
  bool matches(std::string_view pattern, std::string_view text, const RegexOptions& options = {}) {
    const auto regex = parse_regex(regexes_, pattern, options);
    EXPECT_TRUE(regex.has_value()) << pattern << ": " << regex.error().message;
    return regex && regexes_.matches(*regex, text);
  }
  bool found(std::string_view pattern, std::string_view text) { return matches(pattern, text, {.whole = false}); }
  bool in_json(std::string_view pattern, std::string_view text) {
    return matches(pattern, text, {.whole = false, .json_string = true});
  }
  std::string refusal(std::string_view pattern) {
    const auto regex = parse_regex(regexes_, pattern);
    return regex ? "accepted" : regex.error().message;
  }

  Budget budget_{Limits{.steps = 400'000'000, .bytes = std::uint64_t{1} << 30}};
  RegexSet regexes_{budget_};
};

TEST_F(RegexSyntaxTest, AWholeMatchNeedsTheWholeText) {
  EXPECT_TRUE(matches("ab+c?", "abb"));
  EXPECT_TRUE(matches("ab+c?", "abc"));
  EXPECT_FALSE(matches("ab+c?", "xabc"));
  EXPECT_FALSE(matches("ab+c?", "ac"));
  EXPECT_TRUE(matches("", ""));
  EXPECT_FALSE(matches("", "a"));
  EXPECT_TRUE(matches("a|bc|", ""));
  EXPECT_TRUE(matches("(a|bc)*", "abcbca"));
  EXPECT_TRUE(matches("^abc$", "abc"));
}

TEST_F(RegexSyntaxTest, WithoutAnchorsAMatchMayStandAnywhere) {
  EXPECT_TRUE(found("b+", "abbc"));
  EXPECT_FALSE(found("b+", "ac"));
  EXPECT_TRUE(found("^b+", "bbc"));
  EXPECT_FALSE(found("^b+", "abbc"));
  EXPECT_TRUE(found("b+$", "abb"));
  EXPECT_FALSE(found("b+$", "abbc"));
  EXPECT_TRUE(found("^a|b$", "axx"));
  EXPECT_TRUE(found("^a|b$", "xxb"));
  EXPECT_FALSE(found("^a|b$", "xax"));
  EXPECT_TRUE(found("", "anything\n"));
}

TEST_F(RegexSyntaxTest, AnchorsHoldWhereverTheyStand) {
  EXPECT_TRUE(found("(^|,)a($|,)", "a"));
  EXPECT_TRUE(found("(^|,)a($|,)", "b,a,c"));
  EXPECT_FALSE(found("(^|,)a($|,)", "ba,c"));
  EXPECT_TRUE(found("x*^a", "a"));
  EXPECT_FALSE(found("x*^a", "xa"));
  EXPECT_FALSE(found("a^b", "ab"));
  EXPECT_TRUE(found("^(^ab)?c", "abc"));
  EXPECT_TRUE(found("^$", ""));
  EXPECT_FALSE(found("^$", "\n"));
  EXPECT_FALSE(found("a$b", "a"));
  EXPECT_TRUE(matches("\\Aa\\z", "a"));
}

TEST_F(RegexSyntaxTest, AnchorsHoldInsideOfRepetitions) {
  EXPECT_TRUE(found("^([^,]+(,|$)){3,}$", "a,b,c"));
  EXPECT_TRUE(found("^([^,]+(,|$)){3,}$", "a,b,c,"));
  EXPECT_FALSE(found("^([^,]+(,|$)){3,}$", "a,b"));
  EXPECT_FALSE(found("^([^,]+(,|$)){3,}$", "a,,b,c"));
  EXPECT_TRUE(found("^(/?([a-z]*)($|/))*$", "/ab/c"));
  EXPECT_FALSE(found("^(/?([a-z]*)($|/))*$", "ab c"));
  EXPECT_TRUE(found("^((^\\*|[a-z])\\.)*x$", "*.a.x"));
  EXPECT_FALSE(found("^((^\\*|[a-z])\\.)*x$", "a.*.x"));
}

TEST_F(RegexSyntaxTest, TheEndOfTheTextHoldsOnlyInTheLastTimeOfARepetition) {
  EXPECT_FALSE(found("^([a-z]+(,|$)){2}$", "ab"));
  EXPECT_FALSE(found("^([a-z]+(,|$)){2}$", "a"));
  EXPECT_TRUE(found("^([a-z]+(,|$)){2}$", "a,b"));
  EXPECT_TRUE(found("^([a-z]+(,|$)){2}$", "a,b,"));
  EXPECT_FALSE(matches("(a$|b){2,}", "aa"));
  EXPECT_TRUE(matches("(a$|b){2,}", "ba"));
  EXPECT_FALSE(matches("((a$)+b?){2}", "aa"));
  EXPECT_TRUE(matches("(a|$){3}", "a"));
}

TEST_F(RegexSyntaxTest, ClassesAreThoseOfEcmaScript) {
  EXPECT_TRUE(matches("[a-c\\d_-]+", "b7_-"));
  EXPECT_FALSE(matches("[a-c]", "d"));
  EXPECT_TRUE(matches("[^a-c]", "d"));
  EXPECT_TRUE(matches("[^a-c]", "é"));
  EXPECT_FALSE(matches("[^a-c]", "\xC3"));
  EXPECT_TRUE(matches("[\\w-.]+", "a-."));
  EXPECT_TRUE(matches("[a\\]b]+", "a]b"));
  EXPECT_TRUE(matches("[[]", "["));
  EXPECT_TRUE(matches("[^]", "\n"));
  EXPECT_FALSE(matches("a[]", "a"));
  EXPECT_TRUE(matches("[à-ü]+", "éö"));
  EXPECT_TRUE(matches("[\\b]", "\b"));
  EXPECT_TRUE(matches("\\d\\D\\w\\W\\s\\S", "1aa- x"));
  EXPECT_FALSE(matches("\\d", "٣"));
  EXPECT_FALSE(matches("\\w", "é"));
  EXPECT_TRUE(matches("\\s+", "\t \xC2\xA0\xE3\x80\x80\xEF\xBB\xBF"));
  EXPECT_TRUE(matches(".", "😀"));
  EXPECT_FALSE(matches(".", "\n"));
  EXPECT_FALSE(matches(".", "\xE2\x80\xA8"));
  EXPECT_TRUE(matches("(?s).", "\n"));
}

TEST_F(RegexSyntaxTest, EscapesNameCharacters) {
  EXPECT_TRUE(matches("\\x41\\u0042\\u{43}\\uD83D\\uDE00\\u{1F600}", "ABC😀😀"));
  EXPECT_TRUE(matches("\\cJ\\n\\t\\v\\f\\r\\0", std::string_view("\n\n\t\v\f\r\0", 7)));
  EXPECT_TRUE(matches("\\.\\/\\-\\@\\{\\}\\é", "./-@{}é"));
  EXPECT_TRUE(matches("\\^\\$", "^$"));
}

TEST_F(RegexSyntaxTest, RepetitionsAreCounted) {
  EXPECT_TRUE(matches("a{2,3}", "aaa"));
  EXPECT_FALSE(matches("a{2,3}", "aaaa"));
  EXPECT_FALSE(matches("a{2,3}", "a"));
  EXPECT_TRUE(matches("a{2,}?", "aaaaa"));
  EXPECT_TRUE(matches("a{2}b*?c+?", "aac"));
  EXPECT_TRUE(matches("a{", "a{"));
  EXPECT_TRUE(matches("a{x}", "a{x}"));
  EXPECT_TRUE(matches("a{1", "a{1"));
  EXPECT_TRUE(matches("a{0}b", "b"));
  EXPECT_TRUE(matches("(ab){1000}", [] {
    std::string text;
    for (int i = 0; i < 1000; ++i) text += "ab";
    return text;
  }()));
}

TEST_F(RegexSyntaxTest, GroupsMayHaveNamesAndFlags) {
  EXPECT_TRUE(matches("(?<year>\\d{4})-(?P<month>\\d\\d)(?:x|y)", "2024-05y"));
  EXPECT_TRUE(matches("(?i)aBc[d-f]", "AbCE"));
  EXPECT_TRUE(matches("a(?i:b)c", "aBc"));
  EXPECT_FALSE(matches("a(?i:b)c", "aBC"));
  EXPECT_TRUE(matches("a(?i)b|c", "C"));
  EXPECT_FALSE(matches("(?i)[^a]", "A"));
  EXPECT_TRUE(matches("(a(?i)b)c", "aBc"));
  EXPECT_FALSE(matches("(a(?i)b)c", "aBC"));
}

TEST_F(RegexSyntaxTest, LookAheadIsExact) {
  EXPECT_TRUE(found("^(?!foo|bar).+$", "fo"));
  EXPECT_TRUE(found("^(?!foo|bar).+$", "xfoo"));
  EXPECT_FALSE(found("^(?!foo|bar).+$", "bars"));
  EXPECT_TRUE(found("^(?!foo$)[a-z]+$", "foot"));
  EXPECT_FALSE(found("^(?!foo$)[a-z]+$", "foo"));
  EXPECT_TRUE(found("^(?=.*\\d)(?=.*[a-z]).{4,}$", "ab1c"));
  EXPECT_FALSE(found("^(?=.*\\d)(?=.*[a-z]).{4,}$", "abcd"));
  EXPECT_TRUE(found("a(?=b)", "xab"));
  EXPECT_FALSE(found("a(?=b)", "xac"));
  EXPECT_TRUE(found("a(?!b)", "abac"));
  EXPECT_TRUE(found("^((?!mode).)*$", "mod e"));
  EXPECT_FALSE(found("^((?!mode).)*$", "a mode"));
  EXPECT_FALSE(found("^((?!mode)(?!Mode).)*$", "Mode"));
}

TEST_F(RegexSyntaxTest, WhatIsNotRegularOrNotCommonIsRefusedByName) {
  EXPECT_THAT(refusal("(a)\\1"), HasSubstr("byte 3: back-references"));
  EXPECT_THAT(refusal("(?P=x)"), HasSubstr("back-references"));
  EXPECT_THAT(refusal("\\k<x>"), HasSubstr("back-references"));
  EXPECT_THAT(refusal("(?<=a)b"), HasSubstr("look-behind"));
  EXPECT_THAT(refusal("(?<!a)b"), HasSubstr("look-behind"));
  EXPECT_THAT(refusal("a\\b"), HasSubstr("word boundary"));
  EXPECT_THAT(refusal("(?>a)"), HasSubstr("atomic"));
  EXPECT_THAT(refusal("a++"), HasSubstr("possessive"));
  EXPECT_THAT(refusal("a{,3}"), HasSubstr("{0,n}"));
  EXPECT_THAT(refusal("[[:alpha:]]"), HasSubstr("[:name:]"));
  EXPECT_THAT(refusal("\\012"), HasSubstr("octal"));
  EXPECT_THAT(refusal("(?m)a"), HasSubstr("flag \"m\""));
  EXPECT_THAT(refusal("(^a|^)*b^"), HasSubstr("inside of a repetition"));
  EXPECT_THAT(refusal("((?!a)b)*c"), HasSubstr("inside of a repetition"));
}

TEST_F(RegexSyntaxTest, BadSyntaxIsNamedWithItsPlace) {
  EXPECT_THAT(refusal("a("), HasSubstr("byte 1: \"(\" without \")\""));
  EXPECT_THAT(refusal("a)"), HasSubstr("byte 1: \")\" without \"(\""));
  EXPECT_THAT(refusal("[a"), HasSubstr("byte 0: \"[\" without \"]\""));
  EXPECT_THAT(refusal("*a"), HasSubstr("without something to repeat"));
  EXPECT_THAT(refusal("{2}"), HasSubstr("without something to repeat"));
  EXPECT_THAT(refusal("a**"), HasSubstr("nothing to repeat"));
  EXPECT_THAT(refusal("[z-a]"), HasSubstr("range that ends before it begins"));
  EXPECT_THAT(refusal("a{3,2}"), HasSubstr("ends before it begins"));
  EXPECT_THAT(refusal("a\\"), HasSubstr("backslash at the end"));
  EXPECT_THAT(refusal("\\uD800"), HasSubstr("surrogates"));
  EXPECT_THAT(refusal("\\u12"), HasSubstr("four hexadecimal digits"));
  EXPECT_THAT(refusal("\\y"), HasSubstr("\"\\y\" is not supported"));
  EXPECT_THAT(refusal("\xFF"), HasSubstr("not UTF-8"));
  EXPECT_THAT(refusal("\\p{Nonsense}"), HasSubstr("no such class"));
  EXPECT_THAT(refusal("a{99999999999}"), HasSubstr("too large"));
  EXPECT_THAT(refusal(std::string(5000, '(')), HasSubstr("nested too deeply"));
}

TEST_F(RegexSyntaxTest, ClassesOfUnicodeHaveTheirMembers) {
  EXPECT_TRUE(matches("\\p{L}+", "aéßЖ字"));
  EXPECT_FALSE(matches("\\p{L}", "1"));
  EXPECT_TRUE(matches("\\p{Letter}\\p{Lu}\\p{Nd}", "éÉ٣"));
  EXPECT_TRUE(matches("\\p{Script=Greek}+", "αΩ"));
  EXPECT_FALSE(matches("\\p{Greek}", "a"));
  EXPECT_TRUE(matches("\\P{L}", "1"));
  EXPECT_FALSE(matches("\\P{L}", "é"));
  EXPECT_TRUE(matches("[\\p{Zs}A-Z]+", "A \xE3\x80\x80"));
  EXPECT_TRUE(matches("\\p{Cc}", std::string_view("\0", 1)));
  EXPECT_FALSE(matches("\\p{Cc}", " "));
  EXPECT_TRUE(matches("\\p{So}", "😀"));
  EXPECT_TRUE(matches("\\p{Co}", "\xEE\x80\x80"));
  EXPECT_TRUE(matches("\\p{Co}", "\xF4\x80\x80\x81"));
}

TEST_F(RegexSyntaxTest, InJsonEveryCharacterHasAllItsSpellings) {
  for (const char* text : {"a\\nb", "a\\u000ab", "a\\u000Ab", "\\u0061\\n\\u0062"}) {
    EXPECT_TRUE(in_json("^a\\nb$", text)) << text;
  }
  EXPECT_FALSE(in_json("^a\\nb$", "a\nb")) << "a raw line end is not allowed in JSON";
  for (const char* text : {"\\\"", "\\u0022"}) EXPECT_TRUE(in_json("^\"$", text)) << text;
  EXPECT_FALSE(in_json("^\"$", "\""));
  for (const char* text : {"\\\\", "\\u005c", "\\u005C"}) EXPECT_TRUE(in_json("^\\\\$", text)) << text;
  EXPECT_FALSE(in_json("^\\\\$", "\\"));
  for (const char* text : {"/", "\\/", "\\u002f"}) EXPECT_TRUE(in_json("^/$", text)) << text;
  for (const char* text : {"é", "\\u00e9", "\\u00E9"}) EXPECT_TRUE(in_json("^é$", text)) << text;
  for (const char* text : {"😀", "\\ud83d\\ude00", "\\uD83D\\uDE00"}) EXPECT_TRUE(in_json("^[😀-😂]$", text)) << text;
  for (const char* text : {"\\ud83d", "\\ude00", "\\ud83d\\ude03", "\\ud83d\\ude0", "\\ud83da"}) {
    EXPECT_FALSE(in_json("^[😀-😂]$", text)) << text;
    EXPECT_FALSE(in_json("^.$", text) && std::string_view(text) != "\\ud83d\\ude03") << text;
  }
  EXPECT_TRUE(in_json("^.{3}$", "\\\"\\u12345"));
  EXPECT_FALSE(in_json("^.$", "\\n"));
  EXPECT_FALSE(in_json("^.$", "\\u2028"));
  EXPECT_FALSE(in_json("^[^a]$", "\\u0061"));
  EXPECT_TRUE(in_json("^[^a]$", "\\u0062"));
  EXPECT_TRUE(in_json("b", "xx\\u0062\\t"));
  EXPECT_FALSE(in_json("^(?!foo).*$", "\\u0066oo"));
  EXPECT_FALSE(in_json("^\\x01$", "\x01"));
  EXPECT_TRUE(in_json("^\\x01$", "\\u0001"));
}

TEST_F(RegexSyntaxTest, EverySpellingOfEveryCharacterIsKnown) {
  const CharSet set({{0x05, 0x30}, {0xD000, 0xE0FF}, {0xFFF0, 0x10005}, {0x10800, 0x11400}, {0x11402, 0x11402}});
  const RegexId json = regex_of(regexes_, set, true);
  const RegexId utf8 = regex_of(regexes_, set, false);
  const auto unit = [](char32_t value, bool upper) {
    char out[8];
    std::snprintf(out, sizeof out, upper ? "\\u%04X" : "\\u%04x", static_cast<unsigned>(value));
    return std::string(out);
  };
  for (char32_t character = 0; character < 0x12000; ++character) {
    if (character >= 0xD800 && character < 0xE000) {
      EXPECT_FALSE(regexes_.matches(json, unit(character, false)));
      continue;
    }
    std::string raw;
    if (character < 0x80) {
      raw = static_cast<char>(character);
    } else if (character < 0x800) {
      raw = {static_cast<char>(0xC0 | (character >> 6)), static_cast<char>(0x80 | (character & 63))};
    } else if (character < 0x10000) {
      raw = {static_cast<char>(0xE0 | (character >> 12)), static_cast<char>(0x80 | ((character >> 6) & 63)),
             static_cast<char>(0x80 | (character & 63))};
    } else {
      raw = {static_cast<char>(0xF0 | (character >> 18)), static_cast<char>(0x80 | ((character >> 12) & 63)),
             static_cast<char>(0x80 | ((character >> 6) & 63)), static_cast<char>(0x80 | (character & 63))};
    }
    const bool in = set.has(character);
    ASSERT_EQ(regexes_.matches(utf8, raw), in) << std::hex << static_cast<unsigned>(character);
    const bool raw_allowed = character >= 0x20 && character != '"' && character != '\\';
    ASSERT_EQ(regexes_.matches(json, raw), in && raw_allowed) << std::hex << static_cast<unsigned>(character);
    for (const bool upper : {false, true}) {
      std::string escaped = unit(character, upper);
      if (character >= 0x10000) {
        escaped = unit(0xD800 + ((character - 0x10000) >> 10), upper) + unit(0xDC00 + (character & 0x3FF), upper);
      }
      ASSERT_EQ(regexes_.matches(json, escaped), in) << escaped;
    }
  }
}

TEST_F(RegexSyntaxTest, SpelledGivesEveryWayToWriteAText) {
  const RegexId regex = spelled(regexes_, "a\"é", true);
  EXPECT_TRUE(regexes_.matches(regex, "a\\\"é"));
  EXPECT_TRUE(regexes_.matches(regex, "\\u0061\\u0022\\u00e9"));
  EXPECT_FALSE(regexes_.matches(regex, "a\"é"));
  EXPECT_TRUE(regexes_.matches(spelled(regexes_, "a\"é", false), "a\"é"));
}

TEST_F(RegexSyntaxTest, AnExpressionThatIsTooLargeExhaustsTheBudget) {
  Budget small(Limits{.steps = 1000, .bytes = 1 << 20});
  RegexSet regexes(small);
  std::string pattern;
  for (int i = 0; i < 1000; ++i) pattern += "[a-z]x";
  const auto regex = parse_regex(regexes, pattern);
  EXPECT_TRUE(!regex || small.exhausted());
  std::string nested = "a$";
  for (int i = 0; i < 150; ++i) nested = "(" + nested + ")*";
  Budget usual;
  RegexSet others(usual);
  EXPECT_TRUE(!parse_regex(others, nested) || usual.exhausted());
}

}  // namespace
}  // namespace quire::grammar
