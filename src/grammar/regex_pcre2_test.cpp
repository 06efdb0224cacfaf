// Random patterns and texts: parse_regex() and PCRE2 say the same.
#include <random>
#include <string>

#include "gtest/gtest.h"
#include "quire/grammar/regex_syntax.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace quire::grammar {
namespace {

class Pcre2 {
 public:
  explicit Pcre2(const std::string& pattern) {
    int code = 0;
    PCRE2_SIZE offset = 0;
    code_ = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                          PCRE2_UTF | PCRE2_DOLLAR_ENDONLY, &code, &offset, nullptr);
    data_ = pcre2_match_data_create(1, nullptr);
  }
  Pcre2(const Pcre2&) = delete;
  Pcre2& operator=(const Pcre2&) = delete;
  ~Pcre2() {
    pcre2_match_data_free(data_);
    pcre2_code_free(code_);
  }
  bool valid() const { return code_ != nullptr; }
  // 1, 0, or -1: too much backtracking.
  int found_in(const std::string& text) const {
    const int result = pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0, 0, data_, nullptr);
    if (result == PCRE2_ERROR_NOMATCH) return 0;
    return result >= 0 ? 1 : -1;
  }

 private:
  pcre2_code* code_ = nullptr;
  pcre2_match_data* data_ = nullptr;
};

class RandomPatterns {
 public:
  explicit RandomPatterns(std::uint64_t seed) : random_(seed) {}

  std::string pattern() {
    looks_ = 0;
    return choice(3, true);
  }
  std::string text() {
    static const std::vector<std::string> pieces = {"a", "b",  "c", "A", "1",  " ",       "\n",
                                                    "é", "字", "😀", "-", "ab", "\xC3\xBF"};
    std::string out;
    for (std::size_t i = below(7); i > 0; --i) out += pieces[below(pieces.size())];
    return out;
  }

 private:
  std::size_t below(std::size_t n) { return random_() % n; }

  std::string choice(int depth, bool top) {
    std::string out = sequence(depth, top);
    while (below(4) == 0) out += "|" + sequence(depth, top);
    return out;
  }
  // `top`: not inside of a repetition, where a look-ahead would be refused.
  std::string sequence(int depth, bool top) {
    std::string out;
    for (std::size_t i = below(4); i > 0; --i) {
      if (below(top ? 8 : 24) == 0) {
        static const std::vector<std::string> anchors = {"^", "$"};
        out += anchors[below(2)];
        continue;
      }
      if (top && depth > 0 && looks_ < 2 && below(8) == 0) {
        ++looks_;
        out += (below(2) == 0 ? "(?=" : "(?!") + choice(depth - 1, true) + ")";
        continue;
      }
      static const std::vector<std::string> repetitions = {"*",     "+",    "?",  "{2}", "{1,3}",
                                                           "{0,2}", "{2,}", "*?", "+?",  "??"};
      const bool repeated = below(3) == 0;
      out += atom(depth, top && !repeated);
      if (repeated) out += repetitions[below(repetitions.size())];
    }
    return out;
  }
  std::string atom(int depth, bool top) {
    static const std::vector<std::string> atoms = {
        "a",   "b",   "c",   "1",   "é",      "字",  "😀",     ".",      "[ab]",    "[^a]",       "[a-c]",  "[^\\n]",
        "\\d", "\\w", "\\W", "\\D", "[é-字]", "\\.", "\\x61", "[\\d-]", "[^\\wé]", "[\\x{0}-b]", "(?i:a)", "-"};
    if (depth > 0 && below(4) == 0) return (below(2) == 0 ? "(" : "(?:") + choice(depth - 1, top) + ")";
    std::string out = atoms[below(atoms.size())];
    return out;
  }

  std::mt19937_64 random_;
  int looks_ = 0;
};

// PCRE2 writes \x{0} where ECMAScript writes \u{0}.
std::string for_us(std::string pattern) {
  for (std::size_t at = pattern.find("\\x{"); at != std::string::npos; at = pattern.find("\\x{")) pattern[at + 1] = 'u';
  return pattern;
}

// The text as it stands in a JSON string, each character spelled in one of its ways.
std::string in_json(const std::string& text, std::mt19937_64& random) {
  std::string out;
  for (const char c : text) {
    char escaped[8];
    std::snprintf(escaped, sizeof escaped, random() % 2 == 0 ? "\\u%04x" : "\\u%04X", static_cast<unsigned char>(c));
    if (c == '\n') {
      out += random() % 2 == 0 ? "\\n" : escaped;
    } else if (static_cast<unsigned char>(c) < 0x80 && random() % 3 == 0) {
      out += escaped;
    } else {
      out += c;
    }
  }
  return out;
}

TEST(RegexPcre2Test, RandomPatternsMatchTheSameTextsAsInPcre2) {
  RandomPatterns random(20240611);
  std::mt19937_64 spelling(7);
  int compared = 0, matched = 0, patterns = 0, refused = 0;
  for (int i = 0; i < 2000; ++i) {
    const std::string pattern = random.pattern();
    const Pcre2 anywhere(pattern), whole("\\A(?:" + pattern + ")\\z");
    ASSERT_TRUE(anywhere.valid() && whole.valid()) << pattern;
    Budget budget(Limits{.steps = 20'000'000, .bytes = std::uint64_t{256} << 20});
    RegexSet regexes(budget);
    const auto our_anywhere = parse_regex(regexes, for_us(pattern), {.whole = false});
    const auto our_whole = parse_regex(regexes, for_us(pattern), {.whole = true});
    const auto our_json = parse_regex(regexes, for_us(pattern), {.whole = false, .json_string = true});
    if (!our_anywhere || !our_whole || !our_json) {
      ++refused;
      continue;
    }
    ++patterns;
    for (int j = 0; j < 12; ++j) {
      const std::string text = random.text();
      const int expected_anywhere = anywhere.found_in(text), expected_whole = whole.found_in(text);
      if (expected_anywhere < 0 || expected_whole < 0) continue;
      const bool found = regexes.matches(*our_anywhere, text);
      const bool all = regexes.matches(*our_whole, text);
      const bool json = regexes.matches(*our_json, in_json(text, spelling));
      if (budget.exhausted()) break;
      ASSERT_EQ(found, expected_anywhere == 1) << "pattern " << pattern << " in " << text;
      ASSERT_EQ(all, expected_whole == 1) << "pattern " << pattern << " as the whole of " << text;
      ASSERT_EQ(json, expected_anywhere == 1) << "pattern " << pattern << " in " << text << " as JSON";
      ++compared;
      matched += expected_anywhere + expected_whole;
    }
  }
  // The test is worth something only if there are many of both.
  EXPECT_GT(compared, 10'000);
  EXPECT_GT(matched, 1'500);
  EXPECT_LT(refused, patterns / 10);
}

}  // namespace
}  // namespace quire::grammar
