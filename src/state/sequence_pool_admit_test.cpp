// Admission: a refusal changes nothing, a promise is kept, and layers with a window are counted by what they hold.
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "quire/state/sequence_pool.h"
#include "quire/state/toy_engine_testing.h"

namespace quire::testing {
namespace {

using Code = PoolError::Code;

constexpr std::uint32_t kChunk = 6;

struct Kind {
  const char* name;
  ToyModel model;
};
const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all = {{"Attention", ToyModel::attention()},
                                        {"Windowed", ToyModel::windowed(7)},
                                        {"WindowsOnly", ToyModel::windows_only(9)},
                                        {"Recurrent", ToyModel::recurrent()},
                                        {"Hybrid", ToyModel::hybrid()},
                                        {"Everything", ToyModel::everything(7)}};
  return all;
}

// A pool with some sequences that share prefixes, and cached content.
struct Life {
  Life(const ToyModel& model, std::uint64_t seed) : random(seed) {
    PoolConfig config{.layout = model.layout(),
                      .budget_bytes = (2u << 10) + below(6u << 10),
                      .max_sequences = 6,
                      .max_tokens = 80,
                      .checkpoint_interval = 8};
    engine = std::make_unique<ToyEngine>(device, config);
    for (std::uint32_t i = 0; i < 12; ++i) {
      auto sequence = engine->create(prompt());
      if (!sequence) continue;
      std::vector<Token> tokens = sequence->pending;
      for (std::uint32_t more = below(10); more > 0; --more) tokens.push_back(token());
      for (std::size_t at = 0; at < tokens.size(); at += kChunk) {
        const std::size_t end = std::min<std::size_t>(tokens.size(), at + kChunk);
        if (!engine->append(*sequence, {tokens.begin() + long(at), tokens.begin() + long(end)}, below(3) == 0)) break;
      }
      if (below(2) == 0) {
        running.push_back(*sequence);
      } else {
        EXPECT_TRUE(engine->pool().release(sequence->id));
      }
    }
  }
  std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); }
  Token token() { return static_cast<Token>(below(2)); }
  // Most prompts begin alike.
  std::vector<Token> prompt() {
    std::vector<Token> tokens(below(3) * 8, 1);
    for (std::uint32_t more = 1 + below(30); more > 0; --more) tokens.push_back(token());
    return tokens;
  }
  std::vector<BatchEntry> others(std::size_t from = 0) {
    std::vector<BatchEntry> entries;
    for (std::size_t i = from; i < running.size(); ++i) {
      const std::uint32_t left = 80 - static_cast<std::uint32_t>(running[i].tokens.size());
      entries.push_back({.sequence = running[i].id, .rows = std::min(left, below(20))});
    }
    return entries;
  }
  std::vector<std::uint64_t> kept() {
    const PoolStats stats = engine->pool().stats();
    std::vector<std::uint64_t> all = {stats.prefix_blocks, stats.blocks_evicted, stats.window_pages_evicted,
                                      stats.checkpoints_dropped, stats.states.cached};
    for (const ObjectCounts& pages : stats.pages) all.push_back(pages.cached);
    return all;
  }

  std::mt19937_64 random;
  HostDevice device;
  std::unique_ptr<ToyEngine> engine;
  std::vector<ToyEngine::Sequence> running;
};

class Admission : public ::testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Models, Admission, ::testing::ValuesIn(kinds()),
                         [](const auto& kind) { return std::string(kind.param.name); });

TEST_P(Admission, ARefusalEvictsNothingAndAPromiseIsKept) {
  int refusals = 0, admissions = 0, with_cache = 0;
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    SCOPED_TRACE(seed);
    Life life(GetParam().model, seed);
    SequencePool& pool = life.engine->pool();
    const std::vector<Token> prompt = life.prompt();
    const auto tokens = std::min(80u, static_cast<std::uint32_t>(prompt.size()) + life.below(30));
    const std::vector<BatchEntry> others = life.others();
    const auto before = life.kept();
    const bool promised = pool.can_admit({.prompt = prompt}, tokens, kChunk, others).has_value();
    ASSERT_EQ(life.kept(), before);
    const auto created = pool.admit({.prompt = prompt}, tokens, kChunk, others);
    ASSERT_EQ(created.has_value(), promised);
    ASSERT_TRUE(pool.check_integrity().has_value()) << pool.check_integrity().error();
    if (!created) {
      ASSERT_EQ(created.error().code, Code::Exhausted);
      ASSERT_EQ(life.kept(), before) << "a refusal evicts nothing";
      ++refusals;
      with_cache += before[0] > 0;
      continue;
    }
    ++admissions;
    // Everybody gets what was counted, chunk by chunk.
    struct Part {
      SequenceId id;
      std::uint32_t left;
    };
    std::vector<Part> parts = {{created->id, tokens - created->hit.tokens}};
    for (const BatchEntry& other : others) parts.push_back({other.sequence, other.rows});
    for (bool any = true; any;) {
      any = false;
      for (Part& part : parts) {
        const std::uint32_t rows = std::min(part.left, kChunk);
        if (rows == 0) continue;
        ASSERT_TRUE(pool.reserve(part.id, rows).has_value()) << part.left << " tokens are left";
        ASSERT_TRUE(pool.commit(part.id, std::vector<Token>(rows, 1)).has_value());
        part.left -= rows;
        any = true;
      }
    }
    ASSERT_TRUE(pool.check_integrity().has_value()) << pool.check_integrity().error();
  }
  EXPECT_GT(refusals, 20);
  EXPECT_GT(admissions, 20);
  EXPECT_GT(with_cache, 5);
}

TEST_P(Admission, WhatFitsOnceOthersHaveLeftIsForetold) {
  int fits_now = 0, fits_then = 0, never = 0, missed = 0;
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    SCOPED_TRACE(seed);
    Life life(GetParam().model, seed);
    SequencePool& pool = life.engine->pool();
    const std::vector<Token> prompt = life.prompt();
    const auto tokens = std::min(80u, static_cast<std::uint32_t>(prompt.size()) + life.below(40));
    const std::size_t leave =
        life.running.empty() ? 0 : 1 + life.below(static_cast<std::uint32_t>(life.running.size()));
    std::vector<SequenceId> leaving;
    for (std::size_t i = 0; i < leave; ++i) leaving.push_back(life.running[i].id);
    const std::vector<BatchEntry> others = life.others(leave);
    const bool now = pool.can_admit({.prompt = prompt}, tokens, kChunk, life.others()).has_value();
    const bool then = pool.can_admit({.prompt = prompt}, tokens, kChunk, others, leaving).has_value();
    for (const SequenceId id : leaving) ASSERT_TRUE(pool.release(id).has_value());
    const bool admitted = pool.admit({.prompt = prompt}, tokens, kChunk, others).has_value();
    ASSERT_TRUE(admitted || !then) << "it was foretold";
    missed += admitted && !then;
    fits_now += now;
    fits_then += then && !now;
    never += !admitted;
  }
  EXPECT_GT(fits_now, 10);
  EXPECT_GT(fits_then, 10);
  EXPECT_LT(missed, 20) << "fits, and the pool had said that it would not";
}

// Two prompts of 60 tokens: with windows of 8 they hold 3 pages of that layer at a time, not 15.
TEST(AdmissionOfWindows, ARunningPromptCountsByWhatItHoldsAtOnce) {
  const ToyModel model{{LayerDesc::attention(1, 4, ElementType::F16, 8)}, 4};
  PoolConfig config{.layout = model.layout(), .max_sequences = 4, .max_tokens = 64};
  config.budget_bytes = 10 * config.layout.groups[0].page_bytes();
  HostDevice device;
  ToyEngine engine(device, config);
  SequencePool& pool = engine.pool();
  const std::vector<Token> first(60, 1), second(60, 2);
  const auto one = pool.admit({.prompt = first}, 60, 4, {});
  ASSERT_TRUE(one.has_value());
  ASSERT_TRUE(pool.commit(one->id, std::vector<Token>(4, 1)).has_value());
  const BatchEntry pending{.sequence = one->id, .rows = 56};
  EXPECT_TRUE(pool.can_admit({.prompt = second}, 60, 4, std::span(&pending, 1)).has_value());
  const auto two = pool.admit({.prompt = second}, 60, 4, std::span(&pending, 1));
  ASSERT_TRUE(two.has_value());
}

}  // namespace
}  // namespace quire::testing
