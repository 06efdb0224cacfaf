#include "quire/engine/engine.h"

#include <cmath>
#include <limits>
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "quire/engine/engine_testing.h"

namespace quire::engine::testing {
namespace {

INSTANTIATE_TEST_SUITE_P(Models, EngineOnEachKind, ::testing::ValuesIn(kAllKinds), kind_name);

// --- answers

TEST_P(EngineOnEachKind, ARequestGetsItsTokensOneByOneAndThenTheEnd) {
  Fixture fixture({.kind = GetParam()});
  const Request request = greedy(some_tokens(70), 20);
  const auto heard = fixture.submit(request);
  fixture.run();
  EXPECT_EQ(fixture.model->problem, "");
  EXPECT_EQ(heard->problem, "");
  ASSERT_TRUE(heard->ended);
  EXPECT_EQ(heard->choices[0].answer(), fixture.right(request));
  EXPECT_EQ(heard->choices[0].finish, Finish::Length);
  EXPECT_EQ(heard->usage.prompt_tokens, 70u);
  EXPECT_EQ(heard->usage.completion_tokens, 20u);
  EXPECT_TRUE(fixture.engine->idle());
}

TEST_P(EngineOnEachKind, AnAnswerIsTheSameAloneAndAmongOthersWithAnyBudget) {
  for (const std::uint32_t budget : {8u, 17u, 64u}) {
    Fixture fixture({.kind = GetParam(), .engine = {.step_tokens = budget, .check_integrity = true}});
    std::vector<Request> requests;
    std::vector<std::shared_ptr<Collector>> heard;
    for (std::uint32_t i = 0; i < 8; ++i) {
      requests.push_back(i % 2 == 0 ? greedy(some_tokens(5 + 13 * i, i), 3 + i) : seeded(some_tokens(9 * i, i), 12, i));
      heard.push_back(fixture.submit(requests.back()));
      if (i % 3 == 0) fixture.engine->step();
    }
    fixture.run();
    EXPECT_EQ(fixture.model->problem, "");
    EXPECT_LE(fixture.model->most_tokens, budget);
    for (std::size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(heard[i]->choices[0].answer(), fixture.right(requests[i])) << i << " with a budget of " << budget;
    }
  }
}

TEST(Engine, AStopTokenEndsTheAnswerAndIsNoPartOfIt) {
  Fixture fixture({});
  Request request = greedy(some_tokens(10), 50);
  const Answer whole = fixture.right(request);
  request.stop_tokens = {whole.tokens[7]};
  const Answer right = fixture.right(request);
  ASSERT_EQ(right.finish, Finish::Stop);
  const auto heard = fixture.submit(request);
  fixture.run();
  EXPECT_EQ(heard->choices[0].answer(), right);
  EXPECT_EQ(heard->choices[0].stop_token, whole.tokens[7]);
  EXPECT_EQ(heard->usage.completion_tokens, right.tokens.size() + 1);
}

TEST(Engine, StopTokensMayComeInAnyOrder) {
  Fixture fixture({});
  Request request = greedy(some_tokens(10), 50);
  const Token stop = fixture.right(request).tokens[7];
  request.stop_tokens = {1000, stop, 1001, 999, stop};
  const auto heard = fixture.submit(request);
  fixture.run();
  EXPECT_EQ(heard->choices[0].stop_token, stop);
}

TEST(Engine, ZeroMaxTokensOnlyComputesThePrompt) {
  Fixture fixture({});
  const auto heard = fixture.submit(greedy(some_tokens(40), 0));
  fixture.run();
  ASSERT_TRUE(heard->ended);
  EXPECT_TRUE(heard->choices[0].tokens.empty());
  EXPECT_EQ(heard->choices[0].finish, Finish::Length);
  const auto again = fixture.submit(greedy(some_tokens(40), 1));
  fixture.run();
  EXPECT_EQ(again->usage.hit.tokens, 39u);
}

TEST(Engine, AnAnswerEndsWhereTheContextDoes) {
  Fixture fixture({.max_tokens = 48});
  const Request request = greedy(some_tokens(40), 100);
  const auto heard = fixture.submit(request);
  fixture.run();
  EXPECT_EQ(heard->choices[0].tokens.size(), 8u);
  EXPECT_EQ(heard->choices[0].answer(), fixture.right(request));
}

TEST(Engine, TextIsToldAsItCompletesAndTheRestAtTheEnd) {
  Fixture fixture({.vocabulary = 26});
  Request request = greedy(some_tokens(10, 1, 26), 12);
  request.text = [] { return std::make_unique<Letters>(); };
  const auto heard = fixture.submit(request);
  fixture.run();
  std::string expected;
  for (const Token token : fixture.right(request).tokens) expected += static_cast<char>('a' + token);
  EXPECT_EQ(heard->choices[0].text, expected + ".");
}

TEST(Engine, AStopStringEndsTheAnswerAcrossTokenBordersAndNothingOfItIsTold) {
  Fixture fixture({.vocabulary = 26});
  Request request = greedy(some_tokens(10, 1, 26), 30);
  request.text = [] { return std::make_unique<Letters>(); };
  std::string whole;
  for (const Token token : fixture.right(request).tokens) whole += static_cast<char>('a' + token);
  const std::string stop = whole.substr(9, 3);
  ASSERT_EQ(whole.find(stop), 9u);
  request.stop_strings = {"never this", stop};
  const auto heard = fixture.submit(request);
  fixture.run();
  EXPECT_EQ(heard->choices[0].text, whole.substr(0, 9));
  EXPECT_EQ(heard->choices[0].finish, Finish::Stop);
  EXPECT_EQ(heard->choices[0].stop, stop);
}

TEST(Engine, LogprobsAreTheModelsAndTheLikeliestStandFirst) {
  Fixture fixture({});
  Request request = seeded(some_tokens(10), 5, 3);
  request.sampling.logit_bias = {{4, 100.0f}};
  request.logprobs = 3;
  const auto heard = fixture.submit(request);
  fixture.run();
  ASSERT_EQ(heard->choices[0].alternatives.size(), 15u);
  std::uint64_t memory = kBeginning;
  for (const Token token : request.prompt) memory = remember(memory, token);
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(heard->choices[0].tokens[i], 4) << "the bias decides";
    std::vector<float> logits(32);
    logits_after(memory, logits);
    double sum = 0;
    for (const float logit : logits) sum += std::exp(logit);
    EXPECT_NEAR(heard->choices[0].logprobs[i], logits[4] - std::log(sum), 1e-5);
    const auto best = std::ranges::max_element(logits);
    EXPECT_EQ(heard->choices[0].alternatives[3 * i].token, best - logits.begin());
    EXPECT_NEAR(heard->choices[0].alternatives[3 * i].logprob, *best - std::log(sum), 1e-5);
    EXPECT_GE(heard->choices[0].alternatives[3 * i + 1].logprob, heard->choices[0].alternatives[3 * i + 2].logprob);
    memory = remember(memory, 4);
  }
}

// --- several choices

TEST_P(EngineOnEachKind, ChoicesShareThePromptAndEachIsTheAnswerOfARequestOfItsOwn) {
  Fixture fixture({.kind = GetParam()});
  Request request = seeded(some_tokens(50), 15, 11);
  request.n = 5;
  const auto heard = fixture.submit(request);
  fixture.run();
  EXPECT_EQ(fixture.model->problem, "");
  ASSERT_EQ(heard->choices.size(), 5u);
  std::set<std::vector<Token>> different;
  for (std::uint32_t i = 0; i < 5; ++i) {
    Request alone = seeded(some_tokens(50), 15, 11 + i);
    EXPECT_EQ(heard->choices[i].answer(), fixture.right(alone)) << i;
    different.insert(heard->choices[i].tokens);
  }
  EXPECT_EQ(different.size(), 5u);
  // The prompt is computed once, and of each choice all tokens but the last.
  EXPECT_EQ(fixture.model->tokens_computed, 50u + 5 * 14);
  EXPECT_EQ(heard->usage.completion_tokens, 75u);
}

TEST_P(EngineOnEachKind, MoreChoicesThanFitAtOnceAreAllAnswered) {
  Fixture fixture({.kind = GetParam(), .max_sequences = 3});
  Request request = seeded(some_tokens(30), 10, 5);
  request.n = 8;
  const auto heard = fixture.submit(request);
  fixture.run();
  EXPECT_EQ(fixture.model->problem, "");
  ASSERT_EQ(heard->choices.size(), 8u);
  for (std::uint32_t i = 0; i < 8; ++i) EXPECT_EQ(heard->choices[i].answer(), fixture.right(request, i));
  EXPECT_EQ(fixture.engine->stats().resumed, 0u) << "who begins late was not suspended";
}

TEST(Engine, ManyChoicesDoNotMakeAStepLongerThanItsBudget) {
  Fixture fixture({.engine = {.step_tokens = 4, .check_integrity = true}});
  Request request = seeded(some_tokens(10), 6, 1);
  request.n = 12;
  const auto heard = fixture.submit(request);
  fixture.run();
  EXPECT_LE(fixture.model->most_tokens, 4u);
  for (std::uint32_t i = 0; i < 12; ++i) EXPECT_EQ(heard->choices[i].answer(), fixture.right(request, i));
}

TEST(Engine, AWaitingRequestTakesNoMemoryForItsOtherChoices) {
  Fixture fixture({.vocabulary = 26});
  int equipped = 0;
  Request request = seeded(some_tokens(30, 1, 26), 2, 1);
  request.n = 100;
  request.text = [&] {
    ++equipped;
    return std::make_unique<Letters>();
  };
  const auto heard = fixture.submit(request);
  EXPECT_EQ(equipped, 1);
  const auto cancelled = fixture.submit(request);
  EXPECT_TRUE(fixture.engine->cancel(fixture.last));
  EXPECT_EQ(cancelled->problem, "");
  EXPECT_EQ(cancelled->choices.size(), 100u);
  EXPECT_EQ(equipped, 2);
  fixture.run();
  EXPECT_EQ(equipped, 101);
  for (std::uint32_t i = 0; i < 100; ++i) EXPECT_EQ(heard->choices[i].text.size(), 3u) << i;
}

TEST(Engine, BestOfTellsTheLikeliestOnlyAndInOrder) {
  Fixture fixture({});
  Request all = seeded(some_tokens(20), 6, 2);
  all.n = 6;
  all.logprobs = 0;
  const auto every = fixture.submit(all);
  fixture.run();
  std::vector<std::pair<double, std::vector<Token>>> ranked;
  for (const auto& choice : every->choices) {
    double sum = 0;
    for (const float logprob : choice.logprobs) sum += logprob;
    ranked.emplace_back(-sum / static_cast<double>(choice.logprobs.size()), choice.tokens);
  }
  std::ranges::sort(ranked);
  Request request = seeded(some_tokens(20), 6, 2);
  request.n = 2;
  request.best_of = 6;
  const auto heard = fixture.submit(request);
  fixture.run();
  ASSERT_TRUE(heard->ended);
  ASSERT_EQ(heard->choices.size(), 2u);
  EXPECT_EQ(heard->choices[0].tokens, ranked[0].second);
  EXPECT_EQ(heard->choices[1].tokens, ranked[1].second);
}

TEST(Engine, BestOfWeighsTheStopTokenToo) {
  Fixture fixture({});
  Request request = seeded(some_tokens(20), 6, 2);
  request.n = 8;
  request.logprobs = 0;
  const auto all = fixture.submit(request);
  fixture.run();
  // The choice with the least likely first token ends at once.
  const auto worst = std::ranges::min_element(all->choices, {}, [](const auto& choice) { return choice.logprobs[0]; });
  request.stop_tokens = {worst->tokens[0]};
  request.n = 1;
  request.best_of = 8;
  const auto best = fixture.submit(request);
  fixture.run();
  EXPECT_FALSE(best->choices[0].tokens.empty());
}

// --- refusals

TEST(Engine, InvalidFieldsAreRefusedByName) {
  Fixture fixture({});
  const auto why = [&](auto change) {
    Request request = greedy(some_tokens(10), 5);
    change(request);
    return fixture.submit(request)->refused;
  };
  EXPECT_EQ(why([](Request& r) { r.prompt.clear(); }), "the prompt has no tokens");
  EXPECT_EQ(why([](Request& r) { r.prompt[3] = 32; }), "the prompt has token 32, which is not one of the model's 32");
  EXPECT_EQ(why([](Request& r) { r.prompt[3] = -1; }), "the prompt has token -1, which is not one of the model's 32");
  EXPECT_EQ(why([](Request& r) { r.n = 0; }), "n and best_of can be from 1 to 128");
  EXPECT_EQ(why([](Request& r) { r.n = 3, r.best_of = 2; }), "best_of (2) is less than n (3)");
  EXPECT_EQ(why([](Request& r) { r.logprobs = 101; }), "at most 100 log-probabilities can be reported for a token");
  EXPECT_EQ(why([](Request& r) { r.priority = 2'000'000'000; }),
            "a priority of 2000000000 is not between -1000000 and 1000000");
  EXPECT_EQ(why([](Request& r) { r.sampling.top_p = -0.1; }), "a top-p of -0.1 is not between 0 and 1");
  EXPECT_EQ(why([](Request& r) { r.stop_strings = {"x"}; }), "stop strings need 'text', which turns tokens into text");
  EXPECT_EQ(why([](Request& r) {
              r.text = [] { return std::make_unique<Letters>(); };
              r.stop_strings = {""};
            }),
            "a stop string is empty");
  EXPECT_EQ(why([](Request& r) {
              r.text = [] { return std::make_unique<Letters>(); };
              r.stop_strings = {std::string(1025, 'x')};
            }),
            "a stop string has 1025 bytes, more than 1024");
  EXPECT_EQ(why([](Request& r) { r.stop_tokens = std::vector<Token>(1025); }), "more than 1024 stop tokens");
  EXPECT_EQ(why([](Request& r) { r.prompt.resize(256); }),
            "the prompt has 256 tokens, and the context of 256 leaves no room for an answer");
  EXPECT_EQ(fixture.refusal.why, Refusal::Why::TooLong);
  fixture.engine->stop_accepting();
  EXPECT_EQ(why([](Request&) {}), "the engine is shutting down");
  EXPECT_TRUE(fixture.engine->idle());
}

TEST(Engine, ARequestThatCanNeverFitIsRefusedWithTheNumbers) {
  Fixture fixture({.budget = 4 << 10});  // eight pages of eight tokens
  const auto heard = fixture.submit(greedy(some_tokens(30), 100));
  EXPECT_EQ(fixture.refusal.why, Refusal::Why::NeverFits);
  EXPECT_EQ(heard->refused,
            "130 tokens do not fit into the pool: the pool is exhausted: 8704 bytes wanted, 4096 available");
  const auto fits = fixture.submit(greedy(some_tokens(30), 34));
  fixture.run();
  EXPECT_EQ(fits->choices[0].tokens.size(), 34u);
}

TEST(Engine, ALevelOfPriorityIsWorthATimeThatCanBeCounted) {
  Fixture fixture({});
  for (const std::chrono::milliseconds worth : {std::chrono::milliseconds(-1), std::chrono::milliseconds::max()}) {
    const auto made = Engine::create(*fixture.model, *fixture.pool, {.priority_worth = worth});
    ASSERT_FALSE(made.has_value());
    EXPECT_TRUE(made.error().message.ends_with("which is not between 0 and an hour")) << made.error().message;
  }
}

// Extreme numbers in requests to a pool that is too small for them: each request ends or is refused.
TEST_P(EngineOnEachKind, HostileRequestsEndOrAreRefused) {
  Fixture fixture({.kind = GetParam(), .budget = 24 << 10, .max_sequences = 5, .max_tokens = 64, .rows = 16});
  constexpr std::uint32_t kExtremes[] = {0, 1, 2, 63, 64, 65, 127, 128, 129, 0x7fffffff, 0x80000000, 0xffffffff};
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::mt19937_64 random(3);
  const auto any = [&] { return kExtremes[random() % std::size(kExtremes)]; };
  const auto sometimes = [&] { return random() % 4 == 0; };
  std::vector<std::shared_ptr<Collector>> taken;
  for (int i = 0; i < 1000; ++i) {
    Request request = seeded(some_tokens(std::min(any(), 70u), random() % 4), any(), random());
    if (sometimes()) request.n = any();
    if (sometimes()) request.best_of = any();
    if (sometimes()) request.logprobs = static_cast<std::int32_t>(any());
    if (sometimes()) request.priority = static_cast<std::int32_t>(any());
    if (sometimes()) request.sampling.logit_bias = {{static_cast<Token>(any()), kInfinity}, {3, -kInfinity}};
    if (sometimes()) request.sampling.top_k = any();
    if (sometimes()) request.sampling.frequency_penalty = 100;
    if (sometimes()) request.stop_tokens = {static_cast<Token>(any()), 5};
    if (sometimes()) request.deadline = Clock::time_point::min();
    const auto heard = fixture.submit(request);
    if (heard->refused.empty()) taken.push_back(heard);
    for (auto steps = random() % 40; steps > 0; --steps) fixture.engine->step();
    if (sometimes()) fixture.engine->cancel(fixture.last);
  }
  fixture.run();
  EXPECT_TRUE(fixture.engine->idle());
  EXPECT_EQ(fixture.model->problem, "");
  EXPECT_GT(taken.size(), 100u);
  for (const auto& heard : taken) {
    EXPECT_TRUE(heard->ended);
    EXPECT_EQ(heard->problem, "");
  }
  EXPECT_EQ(fixture.engine->stats().host_bytes, 0u);
}

// --- inspection

TEST(Engine, WhatRunsAndWaitsCanBeSeen) {
  Fixture fixture({.max_sequences = 1, .engine = {.step_tokens = 16, .check_integrity = true}});
  fixture.submit(greedy(some_tokens(40), 5));
  fixture.submit(greedy(some_tokens(40, 2), 5));
  fixture.engine->step();
  const auto infos = fixture.engine->sequences();
  ASSERT_EQ(infos.size(), 2u);
  EXPECT_EQ(infos[0].state, SequenceInfo::State::Prefill);
  EXPECT_EQ(infos[0].computed, 16u);
  EXPECT_TRUE(infos[0].sequence.valid());
  EXPECT_EQ(infos[1].state, SequenceInfo::State::Waiting);
  EXPECT_FALSE(infos[1].sequence.valid());
  EXPECT_EQ(fixture.engine->stats().running, 1u);
  EXPECT_EQ(fixture.engine->stats().waiting, 1u);
  fixture.run();
}

}  // namespace
}  // namespace quire::engine::testing
