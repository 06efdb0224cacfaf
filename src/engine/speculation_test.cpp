// Drafts change nothing but the number of steps. Every answer with drafts is compared with the one of an engine
// without.
#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "quire/base/counted_heap_testing.h"
#include "quire/engine/constraint_testing.h"
#include "quire/engine/drafter_testing.h"
#include "quire/engine/engine_testing.h"
#include "quire/engine/ngram_drafter.h"

namespace quire::engine::testing {
namespace {

constexpr std::uint32_t kVocabulary = 32;

EngineOptions drafting(std::shared_ptr<Drafter> drafter, std::uint32_t most = 6) {
  return {.drafter = std::move(drafter), .draft_tokens = most, .draft_always = true, .check_integrity = true};
}

// Everything that a client sees of a choice.
std::string text_of(const Collector::Choice& choice) {
  std::string all = fmt::format("{} {} {} '{}' '{}' '{}':", name(choice.finish), choice.finished, choice.stop_token,
                                choice.text, choice.stop, choice.error);
  for (std::size_t i = 0; i < choice.tokens.size(); ++i) {
    all += fmt::format(" {} ({})", choice.tokens[i], std::bit_cast<std::uint32_t>(choice.logprobs[i]));
  }
  for (const TokenLogprob& each : choice.alternatives) {
    all += fmt::format(" {}/{}", each.token, std::bit_cast<std::uint32_t>(each.logprob));
  }
  return all;
}

std::string text_of(const Collector& heard) {
  std::string all = heard.problem + heard.refused;
  for (const Collector::Choice& choice : heard.choices) all += text_of(choice) + "\n";
  return all;
}

Request some_request(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](std::uint64_t n) { return static_cast<std::uint32_t>(random() % n); };
  Request request{.prompt = some_tokens(1 + below(60), seed), .max_tokens = 1 + below(70)};
  request.sampling = {.temperature = static_cast<double>(below(2)), .seed = seed};
  if (below(4) == 0) request.sampling.repetition_penalty = 1.3;
  if (below(4) == 0) request.sampling.presence_penalty = 0.5;
  if (below(4) == 0) request.sampling.frequency_penalty = 0.2;
  if (below(4) == 0) request.sampling.logit_bias = {{3, 1.5f}, {7, -2.0f}};
  if (below(3) == 0) request.logprobs = static_cast<std::int32_t>(below(4));
  if (below(3) == 0) request.stop_tokens = {static_cast<Token>(below(kVocabulary))};
  if (below(5) == 0) request.min_tokens = below(request.max_tokens);
  request.n = below(6) == 0 ? 1 + below(3) : 1;
  if (below(8) == 0) request.best_of = request.n + below(3);
  if (below(3) == 0) {
    request.text = [] { return std::make_unique<Letters>(); };
    if (below(2) == 0) request.stop_strings = {std::string(1, static_cast<char>('a' + below(26))) + "b", "zz"};
  }
  return below(4) == 0 ? with_rules(std::move(request)) : request;
}

class Speculating : public EngineOnEachKind {};

// Of a hundred guesses none, some, most or all are wrong.
TEST_P(Speculating, ChangesNothingThatAClientSees) {
  const sampling::Limits limits[] = {{}, {.vocabulary = kVocabulary, .jobs = 24, .listed = 300, .reported = 40}};
  constexpr std::uint32_t kRequests = 60;
  std::uint64_t drafted = 0, accepted = 0;
  for (const sampling::Limits& sampling : limits) {
    std::vector<std::shared_ptr<Collector>> plain;
    Fixture without({.kind = GetParam(), .sampling = sampling});
    for (std::uint32_t i = 0; i < kRequests; ++i) plain.push_back(without.submit(some_request(i)));
    without.run();
    for (const std::uint32_t wrong : {0u, 20u, 60u, 100u}) {
      SCOPED_TRACE(fmt::format("{} of 100 are wrong", wrong));
      const auto drafter = std::make_shared<KnowingDrafter>(kVocabulary, wrong);
      for (std::uint32_t i = 0; i < kRequests; ++i) {
        for (const auto& choice : plain[i]->choices) drafter->learn(some_request(i).prompt, choice.tokens);
      }
      Fixture with({.kind = GetParam(), .sampling = sampling, .engine = drafting(drafter)});
      std::vector<std::shared_ptr<Collector>> heard;
      for (std::uint32_t i = 0; i < kRequests; ++i) heard.push_back(with.submit(some_request(i)));
      with.run();
      EXPECT_EQ(with.model->problem, "");
      for (std::uint32_t i = 0; i < kRequests; ++i)
        EXPECT_EQ(text_of(*heard[i]), text_of(*plain[i])) << "request " << i;
      const EngineStats stats = with.engine->stats();
      drafted += stats.drafted_tokens;
      accepted += stats.accepted_tokens;
      if (wrong == 0) {
        EXPECT_LT(stats.steps, without.engine->stats().steps * 3 / 4);
      }
    }
  }
  EXPECT_GT(accepted, 1000u);
  EXPECT_LT(accepted, drafted);
}

// Alone in the engine, all guesses right: a step gives a token and its drafts. A recurrent model stops at positions
// where a checkpoint is due.
TEST_P(Speculating, GivesAllDraftsAndOneMoreInAStepIfTheyAreRight) {
  const bool recurrent = weightless_layout(GetParam()).has_recurrent();
  for (const std::uint32_t drafts : {1u, 3u, 7u}) {
    Fixture fixture({.kind = GetParam(), .engine = drafting(std::make_shared<KnowingDrafter>(kVocabulary), drafts)});
    const Request request = greedy(some_tokens(20), 1 + 6 * (drafts + 1));
    const auto heard = fixture.submit(request);
    fixture.run();
    EXPECT_EQ(heard->choices.at(0).answer(), fixture.right(request));
    EXPECT_LE(fixture.engine->stats().steps, 1 + 6 + (recurrent ? 4u : 0u));
    EXPECT_EQ(heard->usage.drafted_tokens, heard->usage.accepted_tokens);
    EXPECT_EQ(heard->usage.completion_tokens, request.max_tokens);
    if (!recurrent) {
      EXPECT_EQ(heard->usage.accepted_tokens, 6 * drafts);
    }
  }
}

TEST_P(Speculating, EndsInTheMiddleOfRightDraftsWhereTheAnswerEnds) {
  for (std::uint32_t length = 1; length < 24; ++length) {
    const auto drafter = std::make_shared<KnowingDrafter>(kVocabulary);
    Fixture fixture({.kind = GetParam(), .engine = drafting(drafter, 7)});
    const Request by_length = greedy(some_tokens(13), length);
    const auto short_one = fixture.submit(by_length);
    fixture.run();
    EXPECT_EQ(short_one->choices.at(0).answer(), fixture.right(by_length));
    // The same with a stop token, the last one of that answer, if it does not come earlier.
    Request by_token = greedy(some_tokens(13), 60);
    by_token.stop_tokens = {fixture.right(by_length).tokens.back()};
    const auto stopped = fixture.submit(by_token);
    fixture.run();
    EXPECT_EQ(stopped->choices.at(0).answer(), fixture.right(by_token));
    EXPECT_EQ(fixture.model->problem, "");
    for (const ObjectCounts& pages : fixture.pool->stats().pages) EXPECT_EQ(pages.held, 0u);
    EXPECT_EQ(fixture.pool->stats().states.held, 0u);
  }
}

// The same is cached afterwards, up to what a recurrent model has not committed yet.
TEST_P(Speculating, LeavesTheSamePrefixesInTheCache) {
  const Request request = greedy(some_tokens(30), 60);
  const auto cached_after = [&](EngineOptions options) {
    Fixture fixture({.kind = GetParam(), .engine = std::move(options)});
    fixture.submit(request);
    fixture.run();
    std::vector<Token> next = request.prompt;
    const Answer answer = fixture.right(request);
    next.insert(next.end(), answer.tokens.begin(), answer.tokens.end());
    return fixture.pool->lookup(next).tokens;
  };
  const std::uint32_t plain = cached_after({.check_integrity = true});
  EXPECT_GT(plain, 60u);
  EXPECT_EQ(cached_after(drafting(std::make_shared<KnowingDrafter>(kVocabulary))), plain);
  EXPECT_EQ(cached_after(drafting(std::make_shared<KnowingDrafter>(kVocabulary, 30))), plain);
}

// There is room for one sequence and nothing else: no drafts, and no complaint.
TEST_P(Speculating, DraftsNothingWhereThereIsNoRoom) {
  Options options{.kind = GetParam(), .budget = 1024, .max_tokens = 64, .prefix_cache = false};
  const Request longest{.prompt = some_tokens(20), .max_tokens = 44};
  while (!Fixture(options).submit(longest)->refused.empty()) options.budget += 128;
  options.engine = drafting(std::make_shared<KnowingDrafter>(kVocabulary, 50), 8);
  Fixture fixture(options);
  std::vector<std::pair<Request, std::shared_ptr<Collector>>> asked;
  for (std::uint32_t i = 0; i < 8; ++i) {
    Request request = seeded(some_tokens(4 + i, i), 40, i);
    auto heard = fixture.submit(request);
    asked.emplace_back(std::move(request), std::move(heard));
  }
  fixture.run();
  EXPECT_EQ(fixture.model->problem, "");
  for (const auto& [request, heard] : asked) EXPECT_EQ(heard->choices.at(0).answer(), fixture.right(request));
}

// Drafts get what the tokens of all answers have left: no request is suspended because of them.
TEST_P(Speculating, SuspendsNobodyThatWouldRunWithout) {
  const auto suspensions = [&](EngineOptions options) {
    options.target_itl = std::chrono::microseconds(0);
    Fixture fixture({.kind = GetParam(), .budget = 24 << 10, .engine = std::move(options)});
    std::vector<std::shared_ptr<Collector>> heard;
    for (std::uint32_t i = 0; i < 4; ++i) heard.push_back(fixture.submit(greedy(some_tokens(10 + i, i), 100)));
    fixture.run();
    return fixture.engine->stats().suspensions_by_copy + fixture.engine->stats().suspensions_by_recompute;
  };
  EXPECT_LE(suspensions(drafting(std::make_shared<KnowingDrafter>(kVocabulary, 100))),
            suspensions({.check_integrity = true}));
}

TEST_P(Speculating, TakesNothingFromTheHeapInSteadyState) {
  for (const bool by_ngrams : {true, false}) {
    std::shared_ptr<Drafter> drafter = std::make_shared<NgramDrafter>();
    if (!by_ngrams) drafter = std::make_shared<KnowingDrafter>(kVocabulary, 30);
    EngineOptions options = drafting(drafter);
    options.check_integrity = false;
    Fixture fixture({.kind = GetParam(), .engine = options});
    std::vector<std::shared_ptr<Collector>> heard;
    for (std::uint32_t i = 0; i < 8; ++i) {
      heard.push_back(
          fixture.submit(i % 2 == 0 ? greedy(some_tokens(20, i), 200) : seeded(some_tokens(20, i), 200, i)));
      heard.back()->choices.resize(1);
      heard.back()->choices[0].tokens.reserve(256);
      heard.back()->choices[0].logprobs.reserve(256);
    }
    for (int i = 0; i < 4; ++i) fixture.engine->step();
    const std::uint64_t before = quire::testing::allocations;
    for (int i = 0; i < 16; ++i) fixture.engine->step();
    EXPECT_EQ(quire::testing::allocations - before, 0u);
    EXPECT_GT(fixture.engine->stats().drafted_tokens, 0u);
    fixture.run();
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Speculating, ::testing::ValuesIn(kAllKinds), kind_name);

// Tokens of a conversation that repeats itself are found, of one that does not none.
TEST(NgramDrafter, GuessesWhatFollowedTheLongestEarlierMatch) {
  const auto guess = [](const std::vector<Token>& text, std::uint32_t most) {
    Drafts drafts;
    drafts.text = text;
    drafts.longest = 1000;
    drafts.most = most;
    NgramDrafter::propose(drafts);
    return std::vector<Token>(drafts.drafted().begin(), drafts.drafted().end());
  };
  using Tokens = std::vector<Token>;
  EXPECT_EQ(guess({1, 2, 3, 4, 5}, 4), Tokens{});
  EXPECT_EQ(guess({1, 2, 3, 4, 9, 2, 3}, 2), (Tokens{4, 9}));
  EXPECT_EQ(guess({1, 2, 3, 4, 5, 9, 2, 3, 4}, 3), (Tokens{5, 9, 2}));
  EXPECT_EQ(guess({1, 2, 3, 4, 8, 2, 3, 4, 7, 1, 2, 3, 4}, 1), Tokens{8}) << "the longest, not the last";
  EXPECT_EQ(guess({5, 1, 2, 3, 8, 6, 1, 2, 3, 7, 1, 2, 3}, 1), Tokens{7}) << "of equal ones the last";
  EXPECT_EQ(guess({7, 7, 7, 7}, 5), (Tokens{7, 7, 7, 7, 7})) << "a period goes on";
  EXPECT_EQ(guess({1, 2, 1, 2, 1, 2}, 5), (Tokens{1, 2, 1, 2, 1}));
}

TEST(NgramDrafter, FindsTheSameWhetherTheTextGrewAtOnceOrTokenByToken) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    std::vector<Token> text;
    Drafts growing;
    growing.longest = 300;
    for (int i = 0; i < 300; ++i) {
      text.push_back(static_cast<Token>(random() % (2 + static_cast<unsigned>(round) % 9)));
      growing.text = text;
      growing.most = 4;
      NgramDrafter::propose(growing);
      if (i % 37 != 0) continue;
      Drafts once;
      once.text = text;
      once.longest = 300;
      once.most = 4;
      NgramDrafter::propose(once);
      ASSERT_TRUE(std::ranges::equal(growing.drafted(), once.drafted()));
    }
  }
}

// A clock that a step moves on by what it would take: the weights, and each row.
struct Timed {
  double base = 10, row = 2;  // milliseconds
  std::uint32_t block = 512;  // more rows than this cost `jump` once
  double jump = 0;
  double outside = 0;  // for each guess, but not in the model
  double guess = 0;    // the same, and the drafter reports it
  double first = 0;    // once for each choice, when it is guessed for first; not reported
  Clock::time_point time{};

  void pass(double milliseconds) { time += std::chrono::microseconds(static_cast<std::int64_t>(1000 * milliseconds)); }
};

// A drafter whose guesses take time: some that it reports, and some that only the clock tells.
class TimedDrafter final : public Drafter {
 public:
  TimedDrafter(std::shared_ptr<Drafter> drafter, Timed& timed) : drafter_(std::move(drafter)), timed_(timed) {}
  void propose(std::span<Drafts* const> wanted) override {
    drafter_->propose(wanted);
    for (Drafts* drafts : wanted) {
      timed_.pass((timed_.outside + timed_.guess) * drafts->count);
      if (drafts->memory) continue;
      drafts->memory = std::make_unique<DrafterMemory>();
      timed_.pass(timed_.first);
    }
  }
  double expected(std::uint32_t kind) const override { return drafter_->expected(kind); }
  double seconds_per_token() const override { return timed_.guess / 1000; }

 private:
  std::shared_ptr<Drafter> drafter_;
  Timed& timed_;
};

// Seconds that the answers took, with a drafter or without.
double seconds_with(std::shared_ptr<Drafter> drafter, const Timed& costs, std::uint32_t batch, bool same_text) {
  Timed timed = costs;
  if (drafter) drafter = std::make_shared<TimedDrafter>(std::move(drafter), timed);
  EngineOptions options{.target_itl = std::chrono::microseconds(0), .drafter = std::move(drafter), .draft_tokens = 8};
  options.now = [&timed] { return timed.time; };
  Fixture fixture({.budget = 8 << 20, .max_tokens = 700, .rows = 512, .engine = options});
  fixture.model->on_step = [&timed](const Batch& rows) {
    timed.pass(timed.base + timed.row * rows.rows() + (rows.rows() > timed.block ? timed.jump : 0));
  };
  std::vector<std::shared_ptr<Collector>> heard;
  for (std::uint32_t i = 0; i < batch; ++i) {
    heard.push_back(fixture.submit(greedy(some_tokens(40, same_text ? 1 : i), 600)));
  }
  fixture.run();
  return std::chrono::duration<double>(timed.time.time_since_epoch()).count();
}

TEST(Speculation, CostsAHundredthAtMostWhereNoGuessIsRight) {
  for (const std::uint32_t batch : {1u, 4u, 16u}) {
    for (const double row : {0.1, 2.0, 10.0}) {
      const Timed costs{.row = row};
      const double without = seconds_with(nullptr, costs, batch, false);
      const double with = seconds_with(std::make_shared<KnowingDrafter>(kVocabulary, 100), costs, batch, false);
      EXPECT_LT(with, 1.015 * without) << "batch " << batch << ", " << row << " ms a row";
    }
  }
}

TEST(Speculation, PaysWhereGuessesAreRightAndRowsAreCheap) {
  const Timed costs{.base = 10, .row = 1};
  for (const std::uint32_t wrong : {0u, 20u}) {
    const double without = seconds_with(nullptr, costs, 1, false);
    const double with = seconds_with(std::make_shared<KnowingDrafter>(kVocabulary, wrong), costs, 1, false);
    EXPECT_LT(with, without / (wrong == 0 ? 3 : 1.8)) << wrong;
  }
}

// Rows cost as much as the step does without them: then nothing is gained, and nothing is tried for long.
TEST(Speculation, IsOffWhereTheBatchIsLargeEnoughThatRowsAreAllThatCosts) {
  const Timed costs{.base = 0.5, .row = 10};
  const double without = seconds_with(nullptr, costs, 16, false);
  const double with = seconds_with(std::make_shared<KnowingDrafter>(kVocabulary, 60), costs, 16, false);
  EXPECT_LT(with, 1.015 * without);
}

// Kernels are made for so many rows: one more and the step takes much longer, however few the drafts are.
TEST(Speculation, IsOffWhereTheFirstDraftCostsMoreThanAllOfThemBring) {
  const Timed costs{.base = 10, .row = 0.05, .block = 16, .jump = 8};
  const double without = seconds_with(nullptr, costs, 16, false);
  for (const std::uint32_t wrong : {60u, 80u, 100u}) {
    const double with = seconds_with(std::make_shared<KnowingDrafter>(kVocabulary, wrong), costs, 16, false);
    EXPECT_LT(with, 1.02 * without) << wrong;
  }
  // Guesses that are right pay all the same.
  const double with = seconds_with(std::make_shared<KnowingDrafter>(kVocabulary), costs, 16, false);
  EXPECT_LT(with, without / 2);
}

// What the engine does for drafts besides computing them counts too: sampling their rows on the host, for example.
TEST(Speculation, IsOffWhereDraftsCostMoreOutsideOfTheModelThanTheySave) {
  const Timed costs{.base = 10, .row = 0.05, .outside = 0.8};
  const double without = seconds_with(nullptr, costs, 16, false);
  for (const std::uint32_t wrong : {20u, 60u, 100u}) {
    const double with = seconds_with(std::make_shared<KnowingDrafter>(kVocabulary, wrong), costs, 16, false);
    EXPECT_LT(with, 1.03 * without) << wrong;  // the first guesses alone take ten steps of 600
  }
}

// A token takes 0.68 ms without drafts, and 0.55 ms if it was guessed: paid once that is a gain, paid twice a loss.
TEST(Speculation, TimeThatTheDrafterReportsIsPaidOnce) {
  const Timed costs{.base = 10, .row = 0.05, .guess = 0.5};
  const double without = seconds_with(nullptr, costs, 16, false);
  const double with = seconds_with(std::make_shared<KnowingDrafter>(kVocabulary), costs, 16, false);
  EXPECT_LT(with, 0.92 * without);
}

// A smaller model computes the prompt of a choice before it guesses for the first time.
TEST(Speculation, GoesOnAfterFirstGuessesThatTookLong) {
  const Timed costs{.base = 10, .row = 0.05, .guess = 0.2, .first = 200};
  const double without = seconds_with(nullptr, costs, 4, false);
  const double with = seconds_with(std::make_shared<KnowingDrafter>(kVocabulary), costs, 4, false);
  EXPECT_LT(with, without / 2);
}

// There are fewer logits than rows, and drafts want one for each of theirs.
TEST(Speculation, APromptGetsOnInEveryStepWhateverIsDrafted) {
  constexpr std::uint32_t kAnswers = 20;
  EngineOptions options = drafting(std::make_shared<KnowingDrafter>(kVocabulary, 100), 8);
  options.target_itl = std::chrono::microseconds(0);
  Fixture fixture({.budget = 8 << 20,
                   .max_sequences = kAnswers + 1,
                   .max_tokens = 1000,
                   .rows = 256,
                   .logits = 128,
                   .engine = options});
  for (std::uint32_t i = 0; i < kAnswers; ++i) fixture.submit(greedy(some_tokens(8, i), 200));
  for (int i = 0; i < 3; ++i) fixture.engine->step();
  for (const bool every_row : {false, true}) {
    Request request = greedy(some_tokens(900, kAnswers), 1);
    if (every_row) request.prompt_logprobs = 0;  // then each row of the prompt has logits too
    const auto heard = fixture.submit(request);
    const RequestId id = fixture.last;
    std::uint32_t computed = 0;
    for (int steps = 0; !heard->ended; ++steps) {
      ASSERT_LT(steps, 60);
      ASSERT_TRUE(fixture.engine->step());
      if (heard->ended) break;
      const auto all = fixture.engine->sequences();
      const auto prompt = std::ranges::find(all, id, &SequenceInfo::request);
      ASSERT_NE(prompt, all.end());
      ASSERT_GT(prompt->computed, computed) << "step " << steps;
      computed = prompt->computed;
    }
  }
  EXPECT_GT(fixture.engine->stats().drafted_tokens, 0u);
  EXPECT_EQ(fixture.model->problem, "");
  fixture.engine->cancel_all();
}

}  // namespace
}  // namespace quire::engine::testing
