// Requests with random lengths, prefixes, priorities and endings. The engine's pool holds a tenth of what the open
// requests need. Each must get its right answer. QUIRE_SOAK_REQUESTS sets the total number of requests (`make soak`).
// With QUIRE_SOAK_JOURNAL=FILE, the journal of each pool is written to FILE.Attention and so on; `make soak` replays
// them.
#include <cstdlib>
#include <deque>
#include <map>
#include <random>

#include <gtest/gtest.h>

#include "quire/engine/drafter_testing.h"
#include "quire/engine/weightless_testing.h"
#include "quire/journal/journal_testing.h"
#include "quire/journal/journal_writer.h"

namespace quire::engine::testing {
namespace {

std::uint64_t requests_in_all() {
  const char* wanted = std::getenv("QUIRE_SOAK_REQUESTS");
  return wanted != nullptr ? std::strtoull(wanted, nullptr, 10) : 20'000;
}

// Null if no journal is wanted.
std::unique_ptr<journal::JournalWriter> journal_of(Kind kind) {
  const char* path = std::getenv("QUIRE_SOAK_JOURNAL");
  if (path == nullptr) return nullptr;
  auto writer = journal::JournalWriter::create(std::string(path) + "." + name(kind), {});
  EXPECT_TRUE(writer.has_value()) << writer.error().message;
  return writer ? std::move(*writer) : nullptr;
}

struct Soak {
  Kind kind;
  std::uint64_t budget;
};

class SoakTest : public ::testing::TestWithParam<Soak> {};

TEST_P(SoakTest, EveryRequestEndsWithItsRightAnswerInAPoolForATenthOfTheDemand) {
  constexpr std::uint32_t kVocabulary = 16, kOutstanding = 160, kContext = 96;
  const auto journal = journal_of(GetParam().kind);
  Fixture fixture({.kind = GetParam().kind,
                   .budget = GetParam().budget,
                   .max_sequences = 48,
                   .max_tokens = kContext,
                   .vocabulary = kVocabulary,
                   .rows = 128,
                   .journal = journal.get(),
                   // Enough for most steps; in the others the engine samples the rest.
                   .sampling = {.vocabulary = kVocabulary, .jobs = 40, .listed = 250, .reported = 40},
                   .engine = {.queue_limit = kOutstanding,
                              .priority_worth = std::chrono::milliseconds(2),
                              .drafter = std::make_shared<KnowingDrafter>(kVocabulary, 30),
                              .draft_tokens = 4,
                              .draft_always = true}});
  std::mt19937_64 random(7);
  const auto below = [&](std::uint64_t n) { return static_cast<std::uint32_t>(random() % n); };

  // Prefixes that requests share. Some of them share a prefix themselves.
  std::vector<std::vector<Token>> prefixes(1);
  while (prefixes.size() < 40) {
    std::vector<Token> prefix = prefixes[below(prefixes.size())];
    for (std::uint32_t n = 1 + below(24); n > 0 && prefix.size() < 60; --n)
      prefix.push_back(static_cast<Token>(below(kVocabulary)));
    prefixes.push_back(std::move(prefix));
  }

  struct Open {
    Request request;
    std::shared_ptr<Collector> listener;
    bool cancelled = false;
  };
  std::map<RequestId, Open> open;
  const std::uint64_t total = (requests_in_all() + std::size(kAllKinds) - 1) / std::size(kAllKinds);
  std::uint64_t submitted = 0, ended = 0, cut = 0, steps = 0;
  const auto check = [&](const Open& one) {
    ASSERT_EQ(one.listener->problem, "");
    const std::uint32_t count = one.request.n;
    ASSERT_EQ(one.listener->choices.size(), count);
    for (std::uint32_t c = 0; c < count; ++c) {
      const Collector::Choice& got = one.listener->choices[c];
      Answer right = right_answer(one.request, c, kVocabulary, kContext);
      if (got.finish == Finish::Cancelled || got.finish == Finish::Deadline) {
        ++cut;
        ASSERT_LE(got.tokens.size(), right.tokens.size());
        right.tokens.resize(got.tokens.size());
        ASSERT_EQ(got.tokens, right.tokens);
        continue;
      }
      ASSERT_EQ(got.answer(), right);
    }
  };

  while (ended < total) {
    while (submitted < total && open.size() < kOutstanding) {
      Request request;
      request.prompt = prefixes[below(prefixes.size())];
      for (std::uint32_t n = 1 + below(12); n > 0; --n)
        request.prompt.push_back(static_cast<Token>(below(kVocabulary)));
      request.max_tokens = below(20) == 0 ? 0 : 1 + below(40);
      request.n = below(12) == 0 ? 1 + below(4) : 1;
      request.sampling.temperature = below(2) == 0 ? 0 : 1;
      request.sampling.seed = random();
      if (below(3) == 0) request.stop_tokens = {static_cast<Token>(below(kVocabulary))};
      request.name_space = below(3);
      request.reuse = below(10) != 0;
      request.priority = static_cast<std::int32_t>(below(3)) - 1;
      if (below(50) == 0) request.deadline = Clock::now() + std::chrono::microseconds(below(3000));
      Open one{.request = request, .listener = std::make_shared<Collector>()};
      const auto id = fixture.engine->submit(std::move(request), one.listener);
      ASSERT_TRUE(id.has_value()) << id.error().message;
      open.emplace(*id, std::move(one));
      ++submitted;
    }
    if (below(16) == 0) {
      auto victim = open.lower_bound(open.begin()->first + below(kOutstanding));
      if (victim != open.end()) fixture.engine->cancel(victim->first);
    }
    const bool moved = fixture.engine->step();
    ASSERT_EQ(fixture.model->problem, "");
    for (auto at = open.begin(); at != open.end();) {
      if (!at->second.listener->ended) {
        ++at;
        continue;
      }
      ASSERT_NO_FATAL_FAILURE(check(at->second));
      at = open.erase(at);
      ++ended;
    }
    ASSERT_TRUE(moved || open.empty() || fixture.engine->idle()) << "nobody gets on";
    if (++steps % 1000 == 0) {
      const auto sound = fixture.pool->check_integrity();
      ASSERT_TRUE(sound.has_value()) << sound.error();
    }
  }

  EXPECT_TRUE(fixture.engine->idle());
  const EngineStats stats = fixture.engine->stats();
  EXPECT_EQ(stats.running + stats.waiting + stats.suspended, 0u);
  EXPECT_EQ(stats.host_bytes, 0u);
  const PoolStats pool = fixture.pool->stats();
  EXPECT_EQ(pool.sequences, 0u);
  for (const ObjectCounts& pages : pool.pages) EXPECT_EQ(pages.held, 0u);
  EXPECT_EQ(pool.states.held, 0u);
  const auto sound = fixture.pool->check_integrity();
  EXPECT_TRUE(sound.has_value()) << sound.error();
  if (journal != nullptr) {
    const auto closed = journal->close();
    ASSERT_TRUE(closed.has_value()) << closed.error().message;
    std::printf("journal: %llu operations, %.0f bytes a request\n",
                static_cast<unsigned long long>(journal->status().records),
                static_cast<double>(journal->status().bytes) / static_cast<double>(total));
  }
  // The test is only a soak if memory was always short.
  EXPECT_GT(stats.suspensions_by_copy + stats.suspensions_by_recompute, total / 500);
  EXPECT_GT(stats.cached_tokens, 0u);
  EXPECT_GT(cut, 0u);
  EXPECT_GT(stats.accepted_tokens, 0u);
  EXPECT_GT(stats.drafted_tokens, stats.accepted_tokens);
  std::printf(
      "%llu requests, %llu steps, %llu tokens, %.0f %% of prompts reused, %llu suspensions by copy and %llu by "
      "computing again, %llu waits for a prefix\n",
      static_cast<unsigned long long>(ended), static_cast<unsigned long long>(stats.steps),
      static_cast<unsigned long long>(stats.generated_tokens),
      100.0 * static_cast<double>(stats.cached_tokens) / static_cast<double>(stats.prompt_tokens),
      static_cast<unsigned long long>(stats.suspensions_by_copy),
      static_cast<unsigned long long>(stats.suspensions_by_recompute),
      static_cast<unsigned long long>(stats.prefix_waits));
}

// 160 requests are open at a time, each with about 50 tokens in the end. That is 512 kB of pages at 64 bytes a token,
// or 61 kB of states at 384 bytes each. The hybrids have half of the pages and all of the states; a state is 128 bytes
// where it is a convolution only.
INSTANTIATE_TEST_SUITE_P(Models, SoakTest,
                         ::testing::Values(Soak{Kind::Attention, 48 << 10}, Soak{Kind::Windowed, 40 << 10},
                                           Soak{Kind::Latent, 48 << 10}, Soak{Kind::Recurrent, 4 << 10},
                                           Soak{Kind::Hybrid, 32 << 10}, Soak{Kind::ShortConv, 28 << 10}),
                         [](const auto& soak) { return std::string(name(soak.param.kind)); });

// Engines of all sizes on pools that hold the longest sequence and little more. A small pool never changes an answer
// and never prevents one.
TEST(Soak, AnyEngineAnswersEverythingInAPoolThatHoldsLittleMoreThanOneSequence) {
  constexpr std::uint32_t kVocabulary = 16;
  const std::uint64_t rounds = requests_in_all() / 100;
  for (std::uint64_t round = 0; round < rounds; ++round) {
    std::mt19937_64 random(round);
    const auto below = [&](std::uint64_t n) { return static_cast<std::uint32_t>(random() % n); };
    const auto some_tokens = [&](std::vector<Token>& to, std::uint32_t count) {
      while (count-- > 0) to.push_back(static_cast<Token>(below(kVocabulary)));
    };
    Clock::time_point time{};
    const std::optional<std::chrono::microseconds> targets[] = {
        {}, std::chrono::microseconds(0), std::chrono::microseconds(250)};
    journal::testing::MemoryJournal journal;
    Fixture::Options options{.kind = kAllKinds[below(std::size(kAllKinds))],
                             .max_sequences = 1 + below(12),
                             .max_tokens = 40 + below(120),
                             .vocabulary = kVocabulary,
                             .rows = 4 + below(60),
                             .prefix_cache = below(6) != 0,
                             .block_size = 8u << below(3),
                             .checkpoint_unit = 4u << below(2)};
    options.engine = {.step_tokens = below(3) == 0 ? 0 : 1 + below(40),
                      .queue_limit = 1000,
                      .target_itl = targets[below(3)],
                      .priority_worth = std::chrono::milliseconds(below(30)),
                      .host_bytes = below(3) == 0 ? below(4096) : 1u << 30,
                      .suspend_by = static_cast<SuspendBy>(below(3)),
                      .drafter = below(2) == 0 ? nullptr : std::make_shared<KnowingDrafter>(kVocabulary, below(100)),
                      .draft_tokens = 1 + below(16),
                      .draft_always = below(3) != 0,
                      .check_integrity = true,
                      .now = [&] { return time += std::chrono::microseconds(200); }};
    options.budget = 128 * options.block_size;
    const Request longest{.prompt = std::vector<Token>(options.max_tokens - 1, 0), .max_tokens = 1};
    while (!Fixture(options).submit(longest)->refused.empty()) options.budget += 256;
    if (below(2) == 0) options.budget += below(8 << 10);
    SCOPED_TRACE(fmt::format(
        "round {}: {}, {} bytes, {} sequences of {} tokens, blocks of {}, {} rows, {} in a step, suspended by {}",
        round, name(options.kind), options.budget, options.max_sequences, options.max_tokens, options.block_size,
        options.rows, options.engine.step_tokens, static_cast<int>(options.engine.suspend_by)));
    options.journal = &journal;
    Fixture fixture(options);
    std::vector<std::vector<Token>> prefixes(1);
    while (prefixes.size() < 12) {
      std::vector<Token> prefix = prefixes[below(prefixes.size())];
      some_tokens(prefix, std::min(1 + below(40), options.max_tokens - 20 - static_cast<std::uint32_t>(prefix.size())));
      prefixes.push_back(std::move(prefix));
    }

    struct Asked {
      Request request;
      std::shared_ptr<Collector> heard;
      RequestId id = 0;
    };
    std::vector<Asked> asked;
    while (asked.size() < 80) {
      Request request{.prompt = prefixes[below(prefixes.size())]};
      some_tokens(request.prompt, 1 + below(8));
      request.max_tokens = below(10) == 0 ? 0 : 1 + below(80);
      request.n = below(5) == 0 ? 1 + below(9) : 1;
      request.best_of = below(8) == 0 ? request.n + below(4) : 0;
      request.sampling.temperature = below(2);
      request.sampling.seed = random();
      if (below(3) == 0) request.stop_tokens = {static_cast<Token>(below(kVocabulary))};
      request.name_space = below(2);
      request.reuse = below(8) != 0;
      request.priority = static_cast<std::int32_t>(below(5)) - 2;
      if (below(20) == 0) request.deadline = time + std::chrono::milliseconds(below(300));
      auto heard = fixture.submit(request);
      ASSERT_EQ(heard->refused, "");
      asked.push_back({std::move(request), std::move(heard), fixture.last});
      for (std::uint32_t steps = below(12); steps > 0; --steps) fixture.engine->step();
      if (below(12) == 0) fixture.engine->cancel(asked[below(asked.size())].id);
    }
    std::uint64_t steps = 0;
    while (fixture.engine->step()) ASSERT_LT(++steps, 200'000u) << "nobody gets on";
    ASSERT_TRUE(fixture.engine->idle()) << "nobody gets on";
    ASSERT_EQ(fixture.model->problem, "");
    const std::uint32_t budget = options.engine.step_tokens;
    ASSERT_LE(fixture.model->most_tokens, budget == 0 ? options.rows : budget);
    for (const Asked& one : asked) {
      ASSERT_EQ(one.heard->problem, "");
      ASSERT_TRUE(one.heard->ended);
      ASSERT_EQ(one.heard->choices.size(), one.request.n);
      if (one.request.best_of > one.request.n) continue;
      for (std::uint32_t c = 0; c < one.request.n; ++c) {
        const Collector::Choice& got = one.heard->choices[c];
        if (got.finish == Finish::Cancelled || got.finish == Finish::Deadline) continue;
        ASSERT_EQ(got.answer(), fixture.right(one.request, c));
      }
    }
    const EngineStats stats = fixture.engine->stats();
    ASSERT_EQ(stats.host_bytes + stats.waiting + stats.suspended + stats.running, 0u);
    for (const ObjectCounts& pages : fixture.pool->stats().pages) ASSERT_EQ(pages.held, 0u);
    ASSERT_EQ(fixture.pool->stats().states.held, 0u);
    const auto replayed = journal::testing::replayed(journal.file());
    ASSERT_TRUE(replayed.clean()) << journal::testing::text(replayed);
    ASSERT_EQ(replayed.unchecked, 0u);
  }
}

}  // namespace
}  // namespace quire::engine::testing
