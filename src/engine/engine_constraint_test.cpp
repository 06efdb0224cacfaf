// Answers with a constraint: masks beside the forward pass, tokens without an alternative, ends.
#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/engine/constraint_testing.h"
#include "quire/engine/engine.h"
#include "quire/engine/engine_testing.h"

namespace quire::engine::testing {
namespace {

using ::testing::HasSubstr;

// Letters, and nothing at the end: texts of pieces can be joined.
class LettersOnly final : public TextStream {
 public:
  void push(Token token, std::string& out) override { out += static_cast<char>('a' + token); }
  void flush(std::string&) override {}
};

INSTANTIATE_TEST_SUITE_P(Models, EngineOnEachKind, ::testing::ValuesIn(kAllKinds), kind_name);

TEST_P(EngineOnEachKind, AConstrainedAnswerIsThatOfTheDefinition) {
  for (const sampling::Limits limits : {sampling::Limits{}, sampling::Limits{32, 8, 64, 64}}) {
    Fixture fixture({.kind = GetParam(), .sampling = limits});
    Rules::Counts counts;
    std::vector<Request> requests;
    std::vector<std::shared_ptr<Collector>> heard;
    for (std::uint64_t i = 0; i < 12; ++i) {
      requests.push_back(with_rules(seeded(some_tokens(10 + 3 * i, i), 60, i), &counts));
      heard.push_back(fixture.submit(requests.back()));
    }
    fixture.run();
    EXPECT_EQ(fixture.model->problem, "");
    std::size_t ended = 0;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(heard[i]->problem, "");
      EXPECT_EQ(heard[i]->choices[0].answer(), fixture.right(requests[i])) << i;
      EXPECT_EQ(heard[i]->usage.completion_tokens, heard[i]->choices[0].tokens.size());
      ended += heard[i]->choices[0].finish == Finish::Stop;
    }
    EXPECT_GT(ended, 0U);
    EXPECT_LT(ended, requests.size());
    EXPECT_GT(counts.forced, 0U);
    EXPECT_EQ(counts.refused, 0U);
  }
}

// The same request in pieces: each continues the answer of those before it. Penalties, text, stop strings, the least
// number of tokens and the constraint go on as if there had been one request.
TEST_P(EngineOnEachKind, AnAnswerInPiecesIsTheAnswer) {
  for (const bool constrained : {false, true}) {
    for (std::uint64_t seed = 0; seed < 8; ++seed) {
      Request whole = seeded(some_tokens(21, seed), 60, seed);
      whole.sampling.presence_penalty = 0.5, whole.sampling.frequency_penalty = 0.25;
      whole.sampling.repetition_penalty = 1.1;
      whole.min_tokens = 10;
      whole.stop_tokens = {3, 4};
      whole.stop_strings = {"abc", "fg", "nn"};
      whole.text = [] { return std::make_unique<LettersOnly>(); };
      if (constrained) whole = with_rules(whole);
      Fixture fixture({.kind = GetParam()});
      const auto heard = fixture.submit(whole);
      fixture.run();
      ASSERT_EQ(heard->problem, "");
      for (const std::uint32_t piece : {1u, 3u, 16u}) {
        std::vector<Token> tokens;
        std::string text;
        Finish finish = Finish::Length;
        while (finish == Finish::Length && tokens.size() < 60) {
          Request next = whole;
          next.prompt.insert(next.prompt.end(), tokens.begin(), tokens.end());
          next.answered = static_cast<std::uint32_t>(tokens.size());
          next.max_tokens = std::min<std::uint32_t>(piece, 60 - next.answered);
          if (next.min_tokens > next.max_tokens + next.answered) next.min_tokens = next.max_tokens + next.answered;
          const auto part = fixture.submit(next);
          fixture.run();
          ASSERT_EQ(part->problem, "");
          const auto& choice = part->choices[0];
          tokens.insert(tokens.end(), choice.tokens.begin(), choice.tokens.end());
          text += choice.text;
          finish = choice.finish;
        }
        EXPECT_EQ(tokens, heard->choices[0].tokens) << seed << " " << piece;
        EXPECT_EQ(finish, heard->choices[0].finish) << seed << " " << piece;
        // What was told while it could still become a stop string is not taken back.
        EXPECT_TRUE(text.starts_with(heard->choices[0].text)) << text << "\n" << heard->choices[0].text;
        if (finish == Finish::Length) {
          EXPECT_EQ(text, heard->choices[0].text);
        }
      }
    }
  }
}

TEST(EngineConstraint, AnAnswerThatCannotGoOnIsRefused) {
  Fixture fixture({});
  const auto why = [&](Request request) {
    const auto heard = fixture.submit(std::move(request));
    fixture.run();
    return heard->refused;
  };
  Request request = seeded(some_tokens(10), 5, 1);
  request.answered = 10;
  EXPECT_THAT(why(request), HasSubstr("needs a prompt before it"));
  request.answered = 3;
  EXPECT_EQ(why(request), "");
  request.n = 2;
  EXPECT_THAT(why(request), HasSubstr("no other choices"));
  request.n = 1;
  request.prompt = {1, 2, 0, 1, 2};  // "abc"
  request.text = [] { return std::make_unique<LettersOnly>(); };
  request.stop_strings = {"abc"};
  EXPECT_THAT(why(request), HasSubstr("ended with a stop string"));
  Request constrained = with_rules(seeded(some_tokens(10), 5, 1));
  constrained.answered = 5;
  EXPECT_THAT(why(constrained), HasSubstr("does not follow its constraint"));
}

// Tokens without an alternative are computed together.
TEST(EngineConstraint, ForcedTokensTakeOneStep) {
  class Line final : public Constraint {
   public:
    void mask(std::span<std::uint32_t> bits) override { std::ranges::fill(bits, ~0U); }
    bool accept(Token) override {
      ++accepted_;
      return true;
    }
    void forced(std::vector<Token>& out) override {
      for (std::size_t i = accepted_; accepted_ > 0 && i < 41; ++i) out.push_back(static_cast<Token>(i % 32));
    }
    bool complete() const override { return accepted_ == 50; }
    std::string error() const override { return {}; }

   private:
    std::size_t accepted_ = 0;
  };
  Fixture fixture({.rows = 64});
  Request request = seeded(some_tokens(10), 100, 1);
  request.constraint = [] { return std::make_unique<Line>(); };
  const auto heard = fixture.submit(request);
  fixture.run();
  EXPECT_EQ(heard->choices[0].answer(), fixture.right(request));
  EXPECT_EQ(heard->choices[0].tokens.size(), 50U);
  // One step for the prompt and the first token, one for it and the 40 after it, 8 for the others.
  EXPECT_EQ(fixture.model->steps, 10U);
}

TEST_P(EngineOnEachKind, LogprobsDoNotChangeAConstrainedAnswer) {
  Fixture fixture({.kind = GetParam()});
  for (std::uint64_t i = 0; i < 6; ++i) {
    const Request plain = with_rules(seeded(some_tokens(12, i), 50, i));
    Request scored = plain;
    scored.logprobs = 2;
    const auto heard = fixture.submit(scored);
    fixture.run();
    EXPECT_EQ(heard->choices[0].answer(), fixture.right(plain)) << i;
    // Every token has been looked at by the model.
    for (const float logprob : heard->choices[0].logprobs) EXPECT_LT(logprob, 0) << i;
    EXPECT_EQ(heard->choices[0].alternatives.size(), 2 * heard->choices[0].tokens.size());
  }
}

TEST_P(EngineOnEachKind, ConstrainedChoicesAreThoseOfSeparateRequests) {
  Fixture fixture({.kind = GetParam()});
  Request request = with_rules(seeded(some_tokens(30), 40, 5));
  request.n = 4;
  const auto heard = fixture.submit(request);
  fixture.run();
  ASSERT_EQ(heard->choices.size(), 4U);
  for (std::uint32_t i = 0; i < 4; ++i) EXPECT_EQ(heard->choices[i].answer(), fixture.right(request, i)) << i;
}

TEST_P(EngineOnEachKind, SuspensionCarriesTheConstraint) {
  for (const SuspendBy by : {SuspendBy::Copy, SuspendBy::Recompute}) {
    const bool pages = GetParam() != Kind::Recurrent;
    Fixture fixture(
        {.kind = GetParam(),
         .budget = !pages                          ? 1U << 10
                   : GetParam() == Kind::ShortConv ? 14U << 10
                                                   : 24U << 10,
         .engine = {.target_itl = std::chrono::microseconds(0), .suspend_by = by, .check_integrity = true}});
    std::vector<Request> requests;
    std::vector<std::shared_ptr<Collector>> heard;
    for (std::uint64_t i = 0; i < 12; ++i) {
      requests.push_back(with_rules(seeded(some_tokens(20, i), 60, i), nullptr, 1'000'003));
      requests.back().priority = i == 11 ? 1 : 0;
      requests.back().logprobs = i % 3 == 0 ? 0 : -1;
      heard.push_back(fixture.submit(requests.back()));
      fixture.engine->step();
      fixture.engine->step();
    }
    fixture.run();
    EXPECT_EQ(fixture.model->problem, "");
    const EngineStats stats = fixture.engine->stats();
    EXPECT_GT(stats.suspensions_by_copy + stats.suspensions_by_recompute, 0U);
    for (std::size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(heard[i]->choices[0].answer(), fixture.right(requests[i])) << i;
    }
  }
}

TEST(EngineConstraint, TheAnswerEndsAtTheLastTokenEvenIfItIsForced) {
  Fixture fixture({});
  for (std::uint32_t most = 1; most < 40; ++most) {
    const Request request = with_rules(seeded(some_tokens(12, 3), most, 7), nullptr, 1'000'003);
    const auto heard = fixture.submit(request);
    fixture.run();
    EXPECT_EQ(heard->choices[0].answer(), fixture.right(request)) << most;
    EXPECT_EQ(heard->choices[0].tokens.size(), most);
    EXPECT_EQ(heard->choices[0].finish, Finish::Length);
  }
}

TEST(EngineConstraint, AMaskWithoutATokenEndsTheAnswerWithTheReason) {
  class Nothing final : public Constraint {
   public:
    void mask(std::span<std::uint32_t> bits) override { std::ranges::fill(bits, 0); }
    bool accept(Token) override { return false; }
    void forced(std::vector<Token>&) override {}
    bool complete() const override { return false; }
    std::string error() const override { return "the grammar allows no token here"; }
  };
  for (const sampling::Limits limits : {sampling::Limits{}, sampling::Limits{32, 8, 64, 64}}) {
    Fixture fixture({.sampling = limits});
    Request request = seeded(some_tokens(12), 20, 7);
    request.constraint = [] { return std::make_unique<Nothing>(); };
    const auto heard = fixture.submit(request);
    const auto other = fixture.submit(seeded(some_tokens(12), 20, 7));
    fixture.run();
    EXPECT_EQ(heard->choices[0].finish, Finish::Failed);
    EXPECT_THAT(heard->choices[0].error, HasSubstr("the grammar allows no token here"));
    EXPECT_EQ(other->choices[0].finish, Finish::Length);
  }
}

TEST(EngineConstraint, StopStringsEndItInForcedTokensToo) {
  Fixture fixture({});
  const Request plain = with_rules(seeded(some_tokens(12, 3), 60, 7), nullptr, 1'000'003);
  const Answer whole = fixture.right(plain);
  for (std::size_t at = 1; at + 1 < whole.tokens.size(); ++at) {
    Request request = plain;
    request.text = [] { return std::make_unique<Letters>(); };
    std::string stop;
    for (std::size_t i = at - 1; i <= at; ++i) stop += static_cast<char>('a' + whole.tokens[i]);
    request.stop_strings = std::vector<std::string>{stop};
    const auto heard = fixture.submit(request);
    fixture.run();
    EXPECT_EQ(heard->choices[0].finish, Finish::Stop);
    EXPECT_EQ(heard->choices[0].stop, stop);
    EXPECT_LE(heard->choices[0].tokens.size(), at + 1);
    EXPECT_TRUE(
        std::ranges::equal(heard->choices[0].tokens, std::span(whole.tokens).first(heard->choices[0].tokens.size())));
  }
}

// A forced token that is sampled, for its log-probability, ends the answer there. So it does where it is not.
TEST_P(EngineOnEachKind, AStopTokenEndsTheAnswerWhetherItIsForcedOrSampled) {
  Fixture fixture({.kind = GetParam()});
  std::size_t stopped = 0;
  for (Token stop = 0; stop < 32; ++stop) {
    for (const std::uint32_t min_tokens : {0u, 20u}) {
      Request plain = with_rules(seeded(some_tokens(12, 3), 60, 7), nullptr, 1'000'003);
      plain.stop_tokens = {stop};
      plain.min_tokens = min_tokens;
      Request scored = plain;
      scored.logprobs = 0;
      const auto heard = fixture.submit(plain), sampled = fixture.submit(scored);
      fixture.run();
      const Collector::Choice& choice = heard->choices[0];
      EXPECT_EQ(choice.answer(), sampled->choices[0].answer()) << stop << ", at least " << min_tokens;
      EXPECT_EQ(choice.stop_token, sampled->choices[0].stop_token);
      EXPECT_EQ(heard->usage.completion_tokens, sampled->usage.completion_tokens);
      EXPECT_EQ(heard->usage.completion_tokens, choice.tokens.size() + (choice.stop_token >= 0 ? 1 : 0));
      if (min_tokens == 0) {
        EXPECT_EQ(choice.answer(), fixture.right(plain)) << stop;
      }
      stopped += choice.finish == Finish::Stop;
    }
  }
  EXPECT_GT(stopped, 0u);
  EXPECT_EQ(fixture.model->problem, "");
}

TEST(EngineConstraint, ACancelledAnswerLeavesNothingBehind) {
  Fixture fixture({});
  Rules::Counts counts;
  for (int i = 0; i < 8; ++i) {
    const auto heard = fixture.submit(with_rules(seeded(some_tokens(12, 3), 60, 7), &counts, 1'000'003));
    for (int step = 0; step < i; ++step) fixture.engine->step();
    EXPECT_TRUE(fixture.engine->cancel(fixture.last));
    EXPECT_EQ(heard->choices[0].finish, Finish::Cancelled);
  }
  EXPECT_TRUE(fixture.engine->idle());
}

TEST(MaskWorker, ComputesAllMasksWithAnyNumberOfThreads) {
  class Slow final : public Constraint {
   public:
    void mask(std::span<std::uint32_t> bits) override { bits[0] = ++calls; }
    bool accept(Token) override { return true; }
    void forced(std::vector<Token>&) override {}
    bool complete() const override { return false; }
    std::string error() const override { return {}; }
    std::uint32_t calls = 0;
  };
  for (const std::uint32_t threads : {0U, 1U, 3U}) {
    MaskWorker worker(threads);
    std::vector<Slow> constraints(20);
    std::vector<std::uint32_t> words(20);
    for (std::uint32_t round = 1; round < 60; ++round) {
      for (std::size_t i = 0; i < round % 20; ++i) worker.add(constraints[i], {&words[i], 1});
      worker.wait();
      for (std::size_t i = 0; i < round % 20; ++i) ASSERT_EQ(words[i], constraints[i].calls);
    }
    worker.wait();  // with nothing to do
  }
}

}  // namespace
}  // namespace quire::engine::testing
