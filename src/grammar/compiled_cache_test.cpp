#include "quire/grammar/compiled_cache.h"

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "quire/text/tokenizer_testing.h"

namespace quire::grammar {
namespace {

struct CompiledCacheTest : ::testing::Test {
  text::Tokenizer tokenizer = text::testing::make(text::testing::byte_level_vocabulary({"a b"}));
  std::shared_ptr<const TokenTrie> trie = TokenTrie::create(tokenizer, static_cast<std::uint32_t>(tokenizer.size()));
  std::atomic<int> compilations = 0;

  CompiledCache::Compile of(std::string text) {
    return [this, text = std::move(text)]() -> Result<std::shared_ptr<Compiled>> {
      ++compilations;
      if (text.empty()) return fail("nothing to compile");
      Grammar grammar;
      grammar.set_start(grammar.text(text));
      return compile(std::move(grammar), trie);
    };
  }
};

TEST_F(CompiledCacheTest, TheSameKeyIsCompiledOnce) {
  CompiledCache cache;
  const auto first = cache.get("k", of("ab")), second = cache.get("k", of("ab")), other = cache.get("l", of("b"));
  EXPECT_EQ(*first, *second);
  EXPECT_NE(*first, *other);
  EXPECT_EQ(compilations, 2);
  EXPECT_EQ(cache.stats().hits, 1U);
  EXPECT_EQ(cache.stats().misses, 2U);
}

TEST_F(CompiledCacheTest, TheLeastRecentlyUsedGoesFirst) {
  CompiledCache cache({.count = 2});
  const auto a = *cache.get("a", of("a"));
  cache.get("b", of("b"));
  cache.get("a", of("a"));
  cache.get("c", of("c"));
  EXPECT_EQ(cache.stats().count, 2U);
  EXPECT_EQ(*cache.get("a", of("a")), a);
  EXPECT_EQ(compilations, 3);
  cache.get("b", of("b"));
  EXPECT_EQ(compilations, 4);
}

TEST_F(CompiledCacheTest, BytesAreBounded) {
  CompiledCache cache({.count = 1000, .bytes = 200'000});
  for (int i = 0; i < 100; ++i) cache.get(std::to_string(i), of("text " + std::to_string(i)));
  EXPECT_LT(cache.stats().bytes, 250'000U);
  EXPECT_GE(cache.stats().count, 1U);
  EXPECT_LT(cache.stats().count, 100U);
}

TEST_F(CompiledCacheTest, AFailureIsNotKept) {
  CompiledCache cache;
  EXPECT_EQ(cache.get("k", of("")).error().message, "nothing to compile");
  EXPECT_TRUE(cache.get("k", of("a")).has_value());
  EXPECT_EQ(compilations, 2);
}

TEST_F(CompiledCacheTest, ThreadsThatAskAtOnceShareOneCompilationAndItsMatchers) {
  CompiledCache cache;
  std::vector<std::shared_ptr<Compiled>> results(8);
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < results.size(); ++i) {
      threads.emplace_back([&, i] {
        results[i] = *cache.get("k", [&]() -> Result<std::shared_ptr<Compiled>> {
          ++compilations;
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
          Grammar grammar;
          grammar.set_start(grammar.repeat(grammar.text("ab"), 0, 500));
          return compile(std::move(grammar), trie, {.cache_bytes = 50'000});
        });
        Matcher matcher(results[i]);
        std::vector<std::uint32_t> bits(trie->mask_words());
        for (int step = 0; step < 300; ++step) {
          EXPECT_EQ(matcher.mask(bits), 2U);  // "a" and "ab"
          EXPECT_EQ(matcher.accept_bytes("ab"), 2U);
        }
      });
    }
  }
  for (const auto& result : results) EXPECT_EQ(result, results[0]);
  EXPECT_EQ(compilations, 1);
}

}  // namespace
}  // namespace quire::grammar
