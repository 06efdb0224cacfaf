#include "quire/grammar/matcher.h"

#include <bitset>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "quire/text/tokenizer_testing.h"

namespace quire::grammar {
namespace {

using text::testing::byte_level_vocabulary;
using text::testing::make;

struct Model {
  text::Tokenizer tokenizer;
  std::shared_ptr<const TokenTrie> trie;
  TokenId end, tool, other;

  static text::Vocabulary vocabulary(std::vector<std::string> merges) {
    text::Vocabulary v = byte_level_vocabulary(std::move(merges), {{"<|end|>", text::TokenType::control},
                                                                   {"<tool>", text::TokenType::control},
                                                                   {"<other>", text::TokenType::control},
                                                                   {"<user>", text::TokenType::user_defined}});
    v.eos = static_cast<TokenId>(v.tokens.size() - 4);
    return v;
  }
  explicit Model(std::vector<std::string> merges) : tokenizer(make(vocabulary(std::move(merges)))) {
    trie = TokenTrie::create(tokenizer, static_cast<std::uint32_t>(tokenizer.size()) + 7);
    end = *tokenizer.find("<|end|>");
    tool = *tokenizer.find("<tool>");
    other = *tokenizer.find("<other>");
  }
  TokenId id(std::string_view spelling) const { return tokenizer.find(spelling).value(); }
};

std::shared_ptr<Compiled> compiled(Grammar grammar, const Model& model, const CompileOptions& options = {}) {
  auto result = compile(std::move(grammar), model.trie, options);
  if (!result) {
    ADD_FAILURE() << result.error().message;
    std::abort();
  }
  return *result;
}

class Mask {
 public:
  Mask(Matcher& matcher, const Model& model) : words_(model.trie->mask_words()) { count_ = matcher.mask(words_); }
  bool has(TokenId token) const {
    const auto bit = static_cast<std::uint32_t>(token);
    return (words_[bit / 32] >> (bit % 32) & 1U) != 0;
  }
  std::uint32_t count() const { return count_; }
  bool operator==(const Mask&) const = default;

 private:
  std::vector<std::uint32_t> words_;
  std::uint32_t count_ = 0;
};

// Random grammars, and by plain enumeration what they admit: texts and prefixes of texts up to kLongest bytes.

constexpr std::size_t kLongest = 5;
constexpr std::size_t kTexts = 364;  // of the letters a, b, c

// A set of texts up to kLongest bytes: bits at a number for each text, shorter ones first.
class Texts {
 public:
  static std::size_t number(std::string_view text) {
    std::size_t value = 0;
    for (const char c : text) value = value * 3 + static_cast<std::size_t>(c - 'a');
    return first(text.size()) + value;
  }
  bool contains(std::string_view text) const {
    return std::ranges::all_of(text, [](char c) { return c >= 'a' && c <= 'c'; }) && bits_.test(number(text));
  }
  void insert(std::string_view text) { bits_.set(number(text)); }
  void merge(const Texts& other) { bits_ |= other.bits_; }
  std::size_t size() const { return bits_.count(); }
  friend Texts joined(const Texts& left, const Texts& right) {
    Texts out;
    for (std::size_t l = 0, power_l = 1; l <= kLongest; ++l, power_l *= 3) {
      for (std::size_t i = 0; i < power_l; ++i) {
        if (!left.bits_.test(first(l) + i)) continue;
        for (std::size_t r = 0, power_r = 1; l + r <= kLongest; ++r, power_r *= 3) {
          for (std::size_t j = 0; j < power_r; ++j) {
            if (right.bits_.test(first(r) + j)) out.bits_.set(first(l + r) + i * power_r + j);
          }
        }
      }
    }
    return out;
  }

 private:
  static std::size_t first(std::size_t length) {
    std::size_t before = 0;
    for (std::size_t i = 0, power = 1; i < length; ++i, power *= 3) before += power;
    return before;
  }
  std::bitset<kTexts> bits_;
};

class World {
 public:
  explicit World(unsigned seed) : random(seed) {
    RegexSet& r = grammar.regexes();
    const RegexId a = r.text("a"), b = r.text("b");
    const RegexId some = r.bytes(ByteSet::range('a', 'b')), any = r.bytes(ByteSet::range('a', 'c'));
    const std::vector<RegexId> pool{a,
                                    b,
                                    r.text("ab"),
                                    r.text("c"),
                                    r.repeat(a, 1),
                                    r.repeat(some, 0),
                                    r.repeat(r.text("ab"), 0, 2),
                                    r.repeat(any, 1, 2),
                                    r.concat({r.text("a"), r.repeat(b, 0), r.text("a")}),
                                    r.optional(r.text("ca")),
                                    r.minus(r.repeat(some, 1, 3), r.concat({a, RegexSet::kEverything})),
                                    r.all_of({r.repeat(any, 0, 3), r.concat({RegexSet::kEverything, b})}),
                                    r.minus(r.repeat(any, 2, 2), r.repeat(any, 1)),
                                    RegexSet::kEmpty};
    const unsigned terminals = 2 + below(3), rules = 1 + below(4), repeats = below(3);
    for (unsigned i = 0; i < terminals; ++i)
      symbols.push_back(grammar.terminal(pool[below(static_cast<unsigned>(pool.size()))]));
    std::vector<SymbolId> made;
    for (unsigned i = 0; i < rules; ++i) made.push_back(grammar.rule());
    symbols.insert(symbols.end(), made.begin(), made.end());
    for (unsigned i = 0; i < repeats; ++i) {
      const std::uint32_t least = below(3);
      const std::uint32_t most = below(3) == 0 ? kUnbounded : least + below(3);
      std::optional<SymbolId> separator;
      if (below(2) == 0) separator = one();
      symbols.push_back(grammar.repeat(one(), least, most, separator));
    }
    for (const SymbolId rule : made) {
      for (unsigned alternatives = 1 + below(3); alternatives > 0; --alternatives) {
        std::vector<SymbolId> parts;
        for (unsigned i = below(4); i > 0; --i) parts.push_back(one());
        grammar.add(rule, parts);
      }
    }
    grammar.set_start(made[0]);
    enumerate();
  }

  SymbolId one() { return symbols[below(static_cast<unsigned>(symbols.size()))]; }
  unsigned below(unsigned end) { return static_cast<unsigned>(random() % end); }

  Grammar grammar;
  std::vector<SymbolId> symbols;
  std::mt19937 random;
  std::vector<Texts> texts, prefixes;
  std::vector<bool> productive;

 private:
  void enumerate() {
    const std::size_t n = grammar.symbols().size();
    texts.resize(n);
    prefixes.resize(n);
    productive.assign(n, false);
    // Terminals by derivatives, which have a test of their own.
    RegexSet& r = grammar.regexes();
    for (std::size_t id = 0; id < n; ++id) {
      const Symbol& symbol = grammar.symbols()[id];
      if (symbol.kind != Symbol::Kind::Terminal) continue;
      productive[id] = !r.matches_nothing(symbol.regex);
      std::vector<std::pair<std::string, RegexId>> queue{{"", symbol.regex}};
      for (std::size_t i = 0; i < queue.size(); ++i) {
        const auto [text, rest] = queue[i];
        if (r.matches_nothing(rest)) continue;
        prefixes[id].insert(text);
        if (r.matches_empty(rest)) texts[id].insert(text);
        if (text.size() == kLongest) continue;
        for (const char c : {'a', 'b', 'c'})
          queue.emplace_back(text + c, r.derivative(rest, static_cast<std::uint8_t>(c)));
      }
    }
    for (bool changed = true; changed;) {
      changed = false;
      for (std::size_t id = 0; id < n; ++id) {
        if (!productive[id] && is_productive(grammar.symbols()[id])) changed = productive[id] = true;
      }
    }
    for (bool changed = true; changed;) {
      changed = false;
      for (std::size_t id = 0; id < n; ++id) {
        const std::size_t before = texts[id].size() + prefixes[id].size();
        round(grammar.symbols()[id], texts[id], prefixes[id]);
        changed = changed || texts[id].size() + prefixes[id].size() != before;
      }
    }
  }

  bool is_productive(const Symbol& symbol) const {
    if (symbol.kind == Symbol::Kind::Repeat) {
      return symbol.least == 0 ||
             (productive[symbol.of] && (symbol.least == 1 || !symbol.separator || productive[*symbol.separator]));
    }
    return std::ranges::any_of(symbol.alternatives, [&](const auto& parts) {
      return std::ranges::all_of(parts, [&](SymbolId part) { return productive[part]; });
    });
  }

  void add_sequence(const std::vector<SymbolId>& parts, Texts& to, Texts& to_prefixes) const {
    if (!std::ranges::all_of(parts, [&](SymbolId part) { return productive[part]; })) return;
    Texts so_far;
    so_far.insert("");
    for (const SymbolId part : parts) {
      to_prefixes.merge(joined(so_far, prefixes[part]));
      so_far = joined(so_far, texts[part]);
    }
    to_prefixes.merge(so_far);
    to.merge(so_far);
  }

  void round(const Symbol& symbol, Texts& to, Texts& to_prefixes) const {
    if (symbol.kind == Symbol::Kind::Rule) {
      for (const auto& parts : symbol.alternatives) add_sequence(parts, to, to_prefixes);
    }
    if (symbol.kind != Symbol::Kind::Repeat) return;
    std::vector<SymbolId> parts;
    const std::uint32_t most = std::min<std::uint32_t>(symbol.most, symbol.least + kLongest + 1);
    for (std::uint32_t count = 0; count <= most; ++count) {
      if (count > 1 && symbol.separator) parts.push_back(*symbol.separator);
      if (count > 0) parts.push_back(symbol.of);
      if (count >= symbol.least) add_sequence(parts, to, to_prefixes);
    }
  }
};

TEST(Matcher, AllowsExactlyTheTokensThatCanBeContinued) {
  const Model model({"a b", "b c", "ab c", "c a", "a a", "b a", "aa b", "abc a", "ba ba", "c c"});
  unsigned grammars = 0, masks = 0, refused = 0;
  for (unsigned seed = 0; seed < 1500; ++seed) {
    World world(seed);
    const SymbolId start = world.grammar.start();
    const Texts texts = world.texts[start], prefixes = world.prefixes[start];
    const bool productive = world.productive[start];
    auto made = compile(std::move(world.grammar), model.trie);
    ASSERT_EQ(made.has_value(), productive) << "seed " << seed;
    if (!made) {
      ++refused;
      continue;
    }
    ++grammars;
    for (int round = 0; round < 3; ++round) {
      Matcher matcher(*made);
      std::string text;
      for (int step = 0; step < 8; ++step) {
        const Mask mask(matcher, model);
        ++masks;
        ASSERT_EQ(mask.has(model.end), texts.contains(text)) << "seed " << seed << " after '" << text << "'";
        ASSERT_EQ(matcher.may_end(), texts.contains(text)) << "seed " << seed;
        std::vector<TokenId> possible;
        for (TokenId token = 0; token < static_cast<TokenId>(model.trie->vocabulary()); ++token) {
          const std::string_view piece = model.tokenizer.piece(token);
          if (token == model.end || text.size() + piece.size() > kLongest) continue;
          const bool special = model.tokenizer.is_special(token) || piece.empty();
          const bool wanted = !special && prefixes.contains(text + std::string(piece));
          ASSERT_EQ(mask.has(token), wanted) << "seed " << seed << " after '" << text << "' token '" << piece << "'";
          Matcher copy = matcher;
          ASSERT_EQ(copy.accept(token), wanted) << "seed " << seed;
          if (wanted) possible.push_back(token);
        }
        if (possible.empty()) break;
        const TokenId next = possible[world.below(static_cast<unsigned>(possible.size()))];
        ASSERT_TRUE(matcher.accept(next));
        text += model.tokenizer.piece(next);
      }
    }
  }
  EXPECT_GT(grammars, 1000U);
  EXPECT_GT(refused, 20U);
  EXPECT_GT(masks, 3000U);
}

TEST(Matcher, WhatIsAllowedDoesNotDependOnTheCache) {
  const Model model({"a b", "b c", "ab c", "c a", "a a"});
  for (unsigned seed = 0; seed < 300; ++seed) {
    World first(seed), second(seed);
    if (!first.productive[first.grammar.start()]) continue;
    // So small that it is emptied at every call.
    const auto small = compiled(std::move(first.grammar), model, {.cache_bytes = 1});
    const auto large = compiled(std::move(second.grammar), model);
    Matcher a(small), b(large);
    for (int step = 0; step < 12; ++step) {
      const Mask mask(a, model);
      ASSERT_TRUE(mask == Mask(b, model)) << "seed " << seed << " step " << step;
      std::vector<TokenId> possible;
      for (TokenId token = 0; token < static_cast<TokenId>(model.tokenizer.size()); ++token) {
        if (mask.has(token) && token != model.end) possible.push_back(token);
      }
      if (possible.empty()) break;
      const TokenId next = possible[second.below(static_cast<unsigned>(possible.size()))];
      ASSERT_TRUE(a.accept(next));
      ASSERT_TRUE(b.accept(next));
    }
  }
}

// JSON with free white space, like the translation of a schema.
Grammar json(std::uint32_t longest_string) {
  Grammar g;
  RegexSet& r = g.regexes();
  const RegexId plain = r.any_of({r.characters(0x20, 0x21), r.characters(0x23, 0x5B), r.characters(0x5D, 0x10FFFF)});
  const RegexId escape = r.concat({r.text("\\"), r.bytes(ByteSet::range('n', 't') | ByteSet::range('"', '"'))});
  const RegexId body = r.repeat(r.any_of({plain, escape}), 0, longest_string);
  const SymbolId string = g.terminal(r.concat({r.text("\""), body, r.text("\"")}));
  const RegexId digit = r.bytes(ByteSet::range('0', '9'));
  const SymbolId number =
      g.terminal(r.concat({r.optional(r.text("-")),
                           r.any_of({r.text("0"), r.concat({r.bytes(ByteSet::range('1', '9')), r.repeat(digit, 0)})}),
                           r.optional(r.concat({r.text("."), r.repeat(digit, 1)}))}));
  const SymbolId space = g.terminal(r.repeat(r.bytes(ByteSet::range(' ', ' ') | ByteSet::range('\n', '\n')), 0, 8));
  const SymbolId value = g.rule();
  const SymbolId comma = g.sequence({g.text(","), space});
  const SymbolId pair = g.sequence({string, g.text(":"), space, value, space});
  g.add(value, {g.text("{"), space, g.repeat(pair, 0, kUnbounded, comma), g.text("}")});
  g.add(value, {g.text("["), space, g.repeat(g.sequence({value, space}), 0, 100, comma), g.text("]")});
  for (const SymbolId symbol : {string, number, g.text("true"), g.text("false"), g.text("null")})
    g.add(value, {symbol});
  g.set_start(value);
  return g;
}

// A vocabulary of words, with and without spaces, quotation marks and characters of several bytes inside.
std::vector<std::string> word_merges() {
  std::mt19937 random(5);
  std::vector<std::string> pieces;
  const auto spelled = [](std::string_view bytes) {
    std::string out;
    for (const char c : bytes) out += text::byte_level_spelling(static_cast<std::uint8_t>(c));
    return out;
  };
  for (const std::string_view c :
       {"a", "e", "n", "t", "r", "_", "4", " ", "\"", ",", ":", "{", "}", "[", "]", "\\", "\n", "."})
    pieces.push_back(spelled(c));
  std::vector<std::string> merges;
  std::set<std::string> seen;
  const auto add = [&](const std::string& left, const std::string& right) {
    if (left.size() + right.size() > 60 || !seen.insert(left + right).second) return;
    merges.push_back(left + " " + right);
    pieces.push_back(left + right);
  };
  add(spelled("\xC3"), spelled("\xA9"));
  add(spelled("\xE2"), spelled("\x82"));
  add(spelled("\xE2\x82"), spelled("\xAC"));
  while (merges.size() < 3000) add(pieces[random() % pieces.size()], pieces[random() % pieces.size()]);
  return merges;
}

TEST(Matcher, TheFastWayAgreesWithLookingAtEveryToken) {
  const Model model(word_merges());
  std::mt19937 random(3);
  std::vector<std::uint32_t> fast(model.trie->mask_words()), slow(model.trie->mask_words());
  for (const std::uint32_t longest : {3U, 10U, 40U, 1000U, kUnbounded}) {
    const auto grammar = compiled(json(longest), model);
    for (int round = 0; round < 30; ++round) {
      Matcher matcher(grammar);
      for (int step = 0; step < 40; ++step) {
        const std::uint32_t count = matcher.mask(fast);
        ASSERT_EQ(matcher.mask_slowly(slow), count) << "longest " << longest << " round " << round << " step " << step;
        ASSERT_EQ(fast, slow);
        if (count == 0 || matcher.must_end()) break;
        // Any allowed token but the end.
        std::vector<TokenId> allowed;
        for (TokenId token = 0; token < model.end; ++token) {
          if ((fast[static_cast<std::uint32_t>(token) / 32] >> (token % 32) & 1) != 0) allowed.push_back(token);
        }
        if (allowed.empty()) break;
        ASSERT_TRUE(matcher.accept(allowed[random() % allowed.size()]));
      }
    }
  }
}

TEST(Matcher, LongListsAndDeepNestingTakeLinearWork) {
  const Model model({"a b"});
  const auto work = [&](bool right_recursive, bool deep, int size) {
    Grammar g;
    const SymbolId list = g.rule(), value = g.rule();
    g.add(value, {g.text("a")});
    g.add(value, {g.text("["), list, g.text("]")});
    if (right_recursive) {
      g.add(list, {value});
      g.add(list, {value, g.text(","), list});
    } else {
      g.add(list, {g.repeat(value, 1, 20'000, g.text(","))});
    }
    g.set_start(value);
    const auto grammar = compiled(std::move(g), model);
    Matcher matcher(grammar);
    std::string text;
    for (int i = 0; i < size; ++i) text += deep ? "[" : i == 0 ? "[a" : ",a";
    if (deep) text += "a" + std::string(static_cast<std::size_t>(size), ']');
    EXPECT_EQ(matcher.accept_bytes(text), text.size());
    EXPECT_TRUE(deep == matcher.must_end());
    const Mask mask(matcher, model);
    EXPECT_EQ(mask.has(model.id(",")), !deep);
    EXPECT_EQ(mask.has(model.id("]")), !deep);
    EXPECT_LT(matcher.bytes(), 1000U);
    EXPECT_LT(compiled_bytes(*grammar), (std::size_t{33} << 20));
    return matcher.work();
  };
  for (const bool right_recursive : {false, true}) {
    const std::uint64_t list = work(right_recursive, false, 1'000);
    EXPECT_LT(work(right_recursive, false, 10'000), list * 11);
    const std::uint64_t nested = work(right_recursive, true, 1'000);
    EXPECT_LT(work(right_recursive, true, 10'000), nested * 11);
  }
  // An unbounded list needs nothing new for its elements at all.
  EXPECT_LT(work(true, false, 10'000), 1'000U);
}

TEST(Matcher, CountsElements) {
  const Model model({});
  Grammar g;
  g.set_start(g.repeat(g.text("ab"), 2, 3, g.text(",")));
  const auto grammar = compiled(std::move(g), model);
  for (const auto& [text, ok] : std::vector<std::pair<std::string, bool>>{
           {"ab", false}, {"ab,ab", true}, {"ab,ab,ab", true}, {"ab,ab,ab,", false}, {"", false}}) {
    Matcher matcher(grammar);
    const bool all = matcher.accept_bytes(text) == text.size();
    EXPECT_EQ(all && matcher.may_end(), ok) << text;
  }
}

TEST(Matcher, SpecialTokensComeOnlyWhereTheGrammarNamesThem) {
  const Model model({"a b"});
  Grammar g;
  g.set_start(g.sequence({g.text("a"), g.token("<tool>"), g.text("b")}));
  Matcher matcher(compiled(std::move(g), model));
  EXPECT_FALSE(Mask(matcher, model).has(model.tool));
  EXPECT_FALSE(matcher.accept(model.tool));
  ASSERT_TRUE(matcher.accept(model.id("a")));
  EXPECT_EQ(Mask(matcher, model).count(), 1U);
  EXPECT_TRUE(Mask(matcher, model).has(model.tool));
  EXPECT_EQ(matcher.forced(), std::vector<TokenId>{model.tool});
  EXPECT_FALSE(matcher.accept(model.other));
  // The spelling in bytes is something else.
  EXPECT_FALSE(matcher.accept(model.id("<")));
  ASSERT_TRUE(matcher.accept(model.tool));
  ASSERT_TRUE(matcher.accept(model.id("b")));
  EXPECT_TRUE(matcher.must_end());
  EXPECT_EQ(Mask(matcher, model).count(), 1U);
  EXPECT_TRUE(Mask(matcher, model).has(model.end));
  EXPECT_FALSE(matcher.accept(model.id("a")));
  EXPECT_TRUE(matcher.accept(model.end));
  EXPECT_TRUE(matcher.may_end());
}

TEST(Matcher, ATokenThatTheVocabularyDoesNotHaveIsText) {
  const Model model({"a b"});
  Grammar g;
  g.set_start(g.sequence({g.token("<none>"), g.token("<user>")}));
  Matcher matcher(compiled(std::move(g), model));
  EXPECT_EQ(matcher.forced_bytes(), "<none><user>");
  EXPECT_EQ(matcher.accept_bytes("<none>"), 6U);
  EXPECT_TRUE(matcher.accept(model.id("<user>")));
  EXPECT_TRUE(matcher.must_end());
}

TEST(Matcher, FreeTextEndsAtAMark) {
  const Model model({"a b", "< t", "a <", "t >", "> b"});
  Grammar g;
  const std::vector<std::string> marks{"<t>"};
  const SymbolId free = g.free_text(marks);
  g.set_start(g.sequence({free, g.optional(g.sequence({g.text("<t>"), g.text("b"), g.token("<tool>")}))}));
  const auto grammar = compiled(std::move(g), model);
  Matcher matcher(grammar);
  EXPECT_TRUE(matcher.may_end());
  {
    const Mask mask(matcher, model);
    EXPECT_TRUE(mask.has(model.other));
    EXPECT_FALSE(mask.has(model.tool));  // named by the grammar, elsewhere
    EXPECT_TRUE(mask.has(model.end));
    EXPECT_EQ(mask.count(), 256U + 5 + 1 + 1 + 1);  // bytes, merges, <user>, <other>, the end
  }
  ASSERT_TRUE(matcher.accept(model.id("a<")));
  {
    Matcher after_special = matcher;
    ASSERT_TRUE(after_special.accept(model.other));
    // "a<" <other> "t>": the mark begins anew.
    ASSERT_TRUE(after_special.accept(model.id("t>")));
    EXPECT_TRUE(after_special.accept(model.id("a")));
    EXPECT_TRUE(after_special.may_end());
  }
  ASSERT_TRUE(matcher.accept(model.id("t")));
  EXPECT_TRUE(matcher.may_end());
  const Mask inside(matcher, model);
  EXPECT_TRUE(inside.has(model.id(">b")));
  EXPECT_TRUE(inside.has(model.id("ab")));
  ASSERT_TRUE(matcher.accept(model.id(">")));
  EXPECT_FALSE(matcher.may_end());
  const Mask mask(matcher, model);
  EXPECT_EQ(mask.count(), 1U);
  EXPECT_TRUE(mask.has(model.id("b")));
}

TEST(Matcher, ForcedTokensAreTheTokenizersOwnAndLeaveWhatMayMerge) {
  const Model model({"a b", "c d", "ab cd", "cd e"});
  Grammar g;
  // "abcd" and then x or e: "cd" may become "cde", and "abcd" is one token.
  g.set_start(g.sequence({g.text("xxabcd"), g.choice({g.text("x"), g.text("e")})}));
  Matcher matcher(compiled(std::move(g), model));
  EXPECT_EQ(matcher.forced_bytes(), "xxabcd");
  EXPECT_EQ(matcher.forced(), (std::vector<TokenId>{model.id("x"), model.id("x")}));
  Grammar h;
  h.set_start(h.sequence({h.text("xxabcd"), h.choice({h.text("x"), h.text("y")})}));
  Matcher other(compiled(std::move(h), model));
  const std::vector<TokenId> forced = other.forced();
  EXPECT_EQ(forced, (std::vector<TokenId>{model.id("x"), model.id("x"), model.id("abcd")}));
  for (const TokenId token : forced) EXPECT_TRUE(other.accept(token));
  EXPECT_TRUE(other.forced().empty());
  Grammar whole;
  whole.set_start(whole.text("abcde"));
  Matcher to_the_end(compiled(std::move(whole), model));
  EXPECT_EQ(to_the_end.forced(), (std::vector<TokenId>{model.id("abcd"), model.id("e")}));
}

TEST(Matcher, NothingIsForcedInsideACharacter) {
  const Model model({});
  Grammar g;
  g.set_start(g.text("\xE2\x82\xAC!"));
  Matcher matcher(compiled(std::move(g), model));
  EXPECT_EQ(matcher.forced().size(), 4U);
  ASSERT_EQ(matcher.accept_bytes("\xE2"), 1U);
  EXPECT_EQ(matcher.forced_bytes(), "\x82\xAC!");
  EXPECT_TRUE(matcher.forced().empty());
}

TEST(Matcher, SentencePieceSpacesAreBytes) {
  text::Vocabulary v = text::testing::sentencepiece_vocabulary({{"\xE2\x96\x81", -1},
                                                                {"a", -2},
                                                                {"b", -3},
                                                                {"\xE2\x96\x81"
                                                                 "a",
                                                                 -0.5},
                                                                {"ab", -0.6}});
  v.add_space_prefix = true;
  const text::Tokenizer tokenizer = make(std::move(v));
  const auto trie = TokenTrie::create(tokenizer, static_cast<std::uint32_t>(tokenizer.size()));
  Grammar g;
  g.set_start(g.text("ab ab"));
  Matcher matcher(*compile(std::move(g), trie));
  const std::vector<TokenId> forced = matcher.forced();
  std::string bytes;
  for (const TokenId token : forced) {
    bytes += tokenizer.piece(token);
    EXPECT_TRUE(matcher.accept(token));
  }
  EXPECT_EQ(bytes, "ab ab");
  EXPECT_TRUE(matcher.must_end());
}

TEST(Matcher, AnAbsurdlyAmbiguousGrammarFailsAndSaysSo) {
  const Model model({"a a"});
  Grammar g;
  // Every split of the text into nested parts is a different item.
  const SymbolId s = g.rule();
  g.add(s, {g.text("a"), s, g.terminal(g.regexes().repeat(g.regexes().text("b"), 0, 1))});
  g.add(s, {g.text("a")});
  g.set_start(s);
  Matcher matcher(compiled(std::move(g), model));
  const std::string text(5'000, 'a');
  EXPECT_LT(matcher.accept_bytes(text), text.size());
  EXPECT_TRUE(matcher.failed());
  EXPECT_EQ(Mask(matcher, model).count(), 0U);
  EXPECT_FALSE(matcher.may_end());
}

TEST(Matcher, MemoryIsBoundedHoweverLongTheAnswer) {
  const Model model({"a b"});
  Grammar g;
  RegexSet& r = g.regexes();
  // Counters make a new state of every byte.
  const SymbolId text =
      g.terminal(r.concat({r.text("<"), r.repeat(r.bytes(ByteSet::range('a', 'b')), 0, 100'000), r.text(">")}));
  g.set_start(g.repeat(g.sequence({text, g.repeat(g.text("ab"), 0, 50'000)}), 1));
  const auto grammar = compiled(std::move(g), model, {.cache_bytes = std::size_t{1} << 20});
  Matcher matcher(grammar);
  ASSERT_EQ(matcher.accept_bytes("<"), 1U);
  std::size_t most = 0;
  const std::string part(500, 'a');
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(matcher.accept_bytes(part), part.size());
    EXPECT_EQ(Mask(matcher, model).count(), 4U);  // a, b, ab, >
    most = std::max(most, compiled_bytes(*grammar));
  }
  ASSERT_EQ(matcher.accept_bytes(">"), 1U);
  for (int i = 0; i < 10'000; ++i) ASSERT_EQ(matcher.accept_bytes("ab"), 2U);
  EXPECT_EQ(Mask(matcher, model).count(), 4U);  // a, ab, <, the end
  EXPECT_LT(most, std::size_t{4} << 20);
  EXPECT_LT(matcher.bytes(), 1000U);
}

TEST(Matcher, AHostileGrammarIsRefusedWithinTheBudget) {
  const Model model({});
  Grammar g;
  RegexSet& r = g.regexes();
  const RegexId letter = r.bytes(ByteSet::range('a', 'b'));
  // The letters so far from the end are all different: exponentially many states, and no text at all.
  std::vector<RegexId> parts;
  for (std::uint32_t i = 10; i < 40; ++i) {
    parts.push_back(r.concat({r.repeat(letter, 0), r.text(i % 2 == 0 ? "a" : "b"), r.repeat(letter, i, i)}));
    parts.push_back(r.concat({r.repeat(letter, 0), r.text("ab"), r.repeat(letter, i * 3, i * 5)}));
  }
  g.set_start(g.terminal(r.all_of(parts)));
  const auto result = compile(std::move(g), model.trie);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().message, "the grammar is too large");
}

TEST(Matcher, AGrammarThatAdmitsNothingIsRefused) {
  const Model model({});
  Grammar g;
  const SymbolId s = g.rule();
  g.add(s, {g.text("a"), s});
  g.set_start(s);
  const auto result = compile(std::move(g), model.trie);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().message, "no text fits the constraint");
}

}  // namespace
}  // namespace quire::grammar
