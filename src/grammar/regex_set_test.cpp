// Expressions against a naive matcher: random expressions, all short texts.
#include "quire/grammar/regex_set.h"

#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace quire::grammar {
namespace {

// The meaning of an expression, told twice: as an id of the set and as a tree that is matched by trying everything.
struct Tree {
  enum class Op { Bytes, Text, Concat, Any, All, Not, Repeat } op = Op::Bytes;
  ByteSet set;
  std::string text;
  std::vector<Tree> parts;
  unsigned least = 0, most = 0;

  bool matches(std::string_view in) const {
    switch (op) {
      case Op::Bytes: return in.size() == 1 && set.has(static_cast<std::uint8_t>(in[0]));
      case Op::Text: return in == text;
      case Op::Concat:
        for (std::size_t i = 0; i <= in.size(); ++i) {
          if (parts[0].matches(in.substr(0, i)) && parts[1].matches(in.substr(i))) return true;
        }
        return false;
      case Op::Any: return parts[0].matches(in) || parts[1].matches(in);
      case Op::All: return parts[0].matches(in) && parts[1].matches(in);
      case Op::Not: return !parts[0].matches(in);
      case Op::Repeat: return repeated(in, least, most);
    }
    return false;
  }

 private:
  bool repeated(std::string_view in, unsigned from, unsigned to) const {
    if (in.empty() && (from == 0 || parts[0].matches(in))) return true;
    if (to == 0) return false;
    for (std::size_t i = 1; i <= in.size(); ++i) {
      if (parts[0].matches(in.substr(0, i)) &&
          repeated(in.substr(i), from == 0 ? 0 : from - 1, to == kUnbounded ? to : to - 1))
        return true;
    }
    // Empty matches fill up what is still required.
    return false;
  }
};

class Pair {
 public:
  Pair(RegexSet& set, unsigned seed) : set_(set), random_(seed) {}

  std::pair<Tree, RegexId> make(unsigned depth) {
    Tree tree;
    const unsigned op = depth == 0 ? below(2) : below(9);
    if (op == 0) {
      tree.op = Tree::Op::Bytes;
      for (const char c : {'a', 'b', 'c'}) {
        if (below(2) == 0) tree.set.add(static_cast<std::uint8_t>(c));
      }
      return {tree, set_.bytes(tree.set)};
    }
    if (op == 1) {
      tree.op = Tree::Op::Text;
      for (unsigned i = below(3); i > 0; --i) tree.text += static_cast<char>('a' + below(3));
      return {tree, set_.text(tree.text)};
    }
    auto [left, left_id] = make(depth - 1);
    if (op == 2) {
      tree.op = Tree::Op::Not;
      tree.parts = {left};
      return {tree, set_.complement(left_id)};
    }
    if (op <= 4) {
      tree.op = Tree::Op::Repeat;
      tree.least = below(3);
      tree.most = below(3) == 0 ? kUnbounded : tree.least + below(3);
      tree.parts = {left};
      return {tree, set_.repeat(left_id, tree.least, tree.most)};
    }
    auto [right, right_id] = make(depth - 1);
    tree.parts = {left, right};
    if (op == 5) {
      tree.op = Tree::Op::All;
      return {tree, set_.all_of({left_id, right_id})};
    }
    if (op == 6) {
      tree.op = Tree::Op::Any;
      return {tree, set_.any_of({left_id, right_id})};
    }
    tree.op = Tree::Op::Concat;
    return {tree, set_.concat({left_id, right_id})};
  }

  unsigned below(unsigned end) { return static_cast<unsigned>(random_() % end); }

 private:
  RegexSet& set_;
  std::mt19937 random_;
};

std::vector<std::string> short_texts(std::size_t longest) {
  std::vector<std::string> texts{""};
  for (std::size_t at = 0; at < texts.size(); ++at) {
    if (texts[at].size() == longest) break;
    for (const char c : {'a', 'b', 'c'}) texts.push_back(texts[at] + c);
  }
  return texts;
}

TEST(RegexSet, MatchesWhatANaiveMatcherMatches) {
  const std::vector<std::string> texts = short_texts(5);
  for (unsigned seed = 0; seed < 1500; ++seed) {
    Budget budget;
    RegexSet set(budget);
    Pair pair(set, seed);
    const auto [tree, id] = pair.make(1 + seed % 4);
    bool some = false;
    for (const std::string& text : texts) {
      const bool wanted = tree.matches(text);
      some = some || wanted;
      ASSERT_EQ(set.matches(id, text), wanted) << "seed " << seed << " text " << text;
    }
    if (some) {
      EXPECT_FALSE(set.matches_nothing(id)) << "seed " << seed;
    }
    EXPECT_FALSE(budget.exhausted());
  }
}

TEST(RegexSet, SaysExactlyWhichExpressionsMatchNothing) {
  // An expression that is not empty by its derivatives has a text, found by following derivatives that are not empty.
  unsigned nothing = 0;
  for (unsigned seed = 0; seed < 500; ++seed) {
    Budget budget;
    RegexSet set(budget);
    Pair pair(set, seed);
    const RegexId a = pair.make(3).second, b = pair.make(3).second;
    RegexId at = set.all_of({a, b});
    if (set.matches_nothing(at)) {
      ++nothing;
      for (const std::string& text : short_texts(5)) ASSERT_FALSE(set.matches(a, text) && set.matches(b, text)) << seed;
      continue;
    }
    std::string text;
    for (int step = 0; step < 50 && !set.matches_empty(at); ++step) {
      RegexId next = RegexSet::kNothing;
      for (const char c : {'b', 'a', 'c', 'd'}) {
        const RegexId tried = set.derivative(at, static_cast<std::uint8_t>(c));
        if (set.matches_nothing(tried)) continue;
        next = tried;
        if (set.matches_empty(tried)) break;
      }
      ASSERT_NE(next, RegexSet::kNothing) << "seed " << seed << ": a dead end";
      at = next;
    }
  }
  EXPECT_GT(nothing, 20U);
}

TEST(RegexSet, BytesOfOneClassHaveTheSameDerivative) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    Budget budget;
    RegexSet set(budget);
    Pair pair(set, seed);
    const RegexId id = pair.make(3).second;
    const RegexSet::Classes classes = set.classes(id);
    std::vector<RegexId> of(classes.count, 0xFFFFFFFF);
    for (unsigned byte = 0; byte < 256; ++byte) {
      ASSERT_LT(classes.of[byte], classes.count);
      RegexId& expected = of[classes.of[byte]];
      const RegexId derived = set.derivative(id, static_cast<std::uint8_t>(byte));
      if (expected == 0xFFFFFFFF) expected = derived;
      ASSERT_EQ(derived, expected) << seed;
    }
  }
}

TEST(RegexSet, ACounterCostsNoMoreThanItsDigits) {
  Budget budget;
  RegexSet set(budget);
  const RegexId a = set.text("a");
  const RegexId many = set.repeat(a, 99'000, 100'000);
  const std::uint64_t before = budget.steps();
  EXPECT_FALSE(set.matches_nothing(many));
  EXPECT_LT(budget.steps() - before, 100U);
  EXPECT_FALSE(set.matches(many, std::string(98'999, 'a')));
  EXPECT_TRUE(set.matches(many, std::string(99'000, 'a')));
  EXPECT_TRUE(set.matches(many, std::string(100'000, 'a')));
  EXPECT_FALSE(set.matches(many, std::string(100'001, 'a')));
}

TEST(RegexSet, AmbiguousCountersStayFew) {
  Budget budget;
  RegexSet set(budget);
  const RegexId either = set.any_of({set.text("a"), set.text("aa"), set.text("aaa")});
  RegexId at = set.repeat(either, 0, 10'000);
  for (int i = 0; i < 5'000; ++i) at = set.derivative(at, 'a');
  EXPECT_TRUE(set.matches_empty(at));
  EXPECT_LT(budget.steps(), 4'000'000U);
  EXPECT_FALSE(budget.exhausted());
}

TEST(RegexSet, AUnionKeepsWhatIsARepetitionInTwoWays) {
  Budget budget;
  RegexSet set(budget);
  const RegexId a = set.text("a");
  const RegexId few = set.repeat(a, 2, 3);  // of a, and what the last one repeats
  const RegexId any = set.any_of({a, few, set.repeat(few, 2, 4)});
  for (std::size_t length = 0; length < 15; ++length) {
    EXPECT_EQ(set.matches(any, std::string(length, 'a')), length >= 1 && length <= 12) << length;
  }
}

TEST(RegexSet, WithinAHorizonCountersCannotBeTold) {
  Budget budget;
  RegexSet set(budget);
  const RegexId letters = set.bytes(ByteSet::range('a', 'b'));
  const RegexId id = set.concat({set.repeat(letters, 7, 100), set.text("c")});
  const RegexId other = set.concat({set.repeat(letters, 6, 99), set.text("c")});
  EXPECT_EQ(set.within(id, 5), set.within(other, 5));
  EXPECT_NE(id, other);
  for (const std::string& text : short_texts(5)) {
    RegexId exact = id, near = set.within(id, 5);
    for (const char c : text) {
      exact = set.derivative(exact, static_cast<std::uint8_t>(c));
      near = set.derivative(near, static_cast<std::uint8_t>(c));
    }
    ASSERT_EQ(set.matches_empty(exact), set.matches_empty(near)) << text;
    ASSERT_EQ(set.matches_nothing(exact), set.matches_nothing(near)) << text;
  }
}

TEST(RegexSet, ImportedExpressionsMeanTheSame) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    Budget budget, other_budget;
    RegexSet set(budget), other(other_budget);
    Pair pair(set, seed);
    const RegexId id = pair.make(3).second;
    other.text("something else first");
    const RegexId copy = other.import(set, id);
    for (const std::string& text : short_texts(4)) {
      ASSERT_EQ(set.matches(id, text), other.matches(copy, text)) << seed << text;
    }
  }
}

std::string utf8(char32_t c) {
  std::string out;
  const auto put = [&](char32_t byte) { out += static_cast<char>(byte); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6);
    put(0x80 | (c & 63));
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12);
    put(0x80 | (c >> 6 & 63));
    put(0x80 | (c & 63));
  } else {
    put(0xF0 | c >> 18);
    put(0x80 | (c >> 12 & 63));
    put(0x80 | (c >> 6 & 63));
    put(0x80 | (c & 63));
  }
  return out;
}

TEST(RegexSet, CharactersAreTheUtf8OfTheRange) {
  Budget budget(Limits{.steps = 1'000'000'000, .bytes = 1'000'000'000});
  RegexSet set(budget);
  const std::vector<char32_t> edges{0,      0x41,   0x7F,   0x80,   0x7FF,   0x800,   0xFFF,   0x1000,  0xD7FF,
                                    0xD800, 0xDFFF, 0xE000, 0xFFFF, 0x10000, 0x10FFF, 0x3FFFF, 0x40000, 0x10FFFF};
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    char32_t first = edges[random() % edges.size()], last = edges[random() % edges.size()];
    if (round % 3 == 0) first = random() % 0x110000;
    if (round % 3 == 1) last = random() % 0x110000;
    if (first > last) std::swap(first, last);
    const RegexId id = set.characters(first, last);
    for (int i = 0; i < 100; ++i) {
      char32_t c = i < 18 ? edges[static_cast<std::size_t>(i)] : random() % 0x110000;
      if (i % 5 == 0) c = first;
      if (i % 5 == 1) c = last;
      if (i % 5 == 2 && last < 0x10FFFF) c = last + 1;
      const bool surrogate = c >= 0xD800 && c <= 0xDFFF;
      ASSERT_EQ(set.matches(id, utf8(c)), c >= first && c <= last && !surrogate)
          << std::hex << static_cast<unsigned>(first) << ' ' << static_cast<unsigned>(last) << ' '
          << static_cast<unsigned>(c);
    }
  }
}

TEST(RegexSet, AnExhaustedBudgetEndsEverything) {
  Budget budget(Limits{.steps = 20'000, .bytes = 1'000'000});
  RegexSet set(budget);
  // Needs more states than the budget allows: the tenth letter from the end of both is different.
  std::vector<RegexId> parts;
  const RegexId any = set.repeat(set.bytes(ByteSet::range('a', 'c')), 0);
  for (unsigned i = 12; i < 24; ++i)
    parts.push_back(set.concat({any, set.text("a"), set.repeat(set.bytes(ByteSet::range('a', 'c')), i, i)}));
  parts.push_back(set.concat({any, set.text("b"), set.repeat(set.bytes(ByteSet::range('a', 'c')), 12, 12)}));
  EXPECT_TRUE(set.matches_nothing(set.all_of(parts)));
  EXPECT_TRUE(budget.exhausted());
  EXPECT_EQ(set.text("x"), RegexSet::kNothing);
  EXPECT_EQ(set.complement(RegexSet::kNothing), RegexSet::kNothing);
}

TEST(RegexSet, DeepNestingIsRefusedNotACrash) {
  Budget budget;
  RegexSet set(budget);
  RegexId at = set.text("a");
  for (int i = 0; i < 100'000; ++i) at = set.complement(set.concat({set.repeat(at, 0, 2), set.text("b")}));
  EXPECT_TRUE(budget.exhausted());
  Budget long_budget;
  RegexSet texts(long_budget);
  const std::string text(50'000, 'x');
  EXPECT_TRUE(texts.matches(texts.any_of({texts.text(text), texts.text(text + "y")}), text));
  EXPECT_FALSE(long_budget.exhausted());
}

}  // namespace
}  // namespace quire::grammar
