#include "quire/engine/engine.h"

#include <limits>
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "quire/engine/weightless_testing.h"

namespace quire::engine::testing {
namespace {

using Options = Fixture::Options;

std::vector<Token> some_tokens(std::uint32_t count, std::uint64_t seed = 1, std::uint32_t vocabulary = 32) {
  std::vector<Token> tokens;
  for (std::uint32_t i = 0; i < count; ++i)
    tokens.push_back(static_cast<Token>(scramble(seed * 1000003 + i) % vocabulary));
  return tokens;
}

Request greedy(std::vector<Token> prompt, std::uint32_t max_tokens) {
  Request request{.prompt = std::move(prompt), .max_tokens = max_tokens};
  request.sampling.temperature = 0;
  return request;
}

Request seeded(std::vector<Token> prompt, std::uint32_t max_tokens, std::uint64_t seed) {
  Request request{.prompt = std::move(prompt), .max_tokens = max_tokens};
  request.sampling = {.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0, .seed = seed};
  return request;
}

class EngineOnEachKind : public ::testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Models, EngineOnEachKind,
                         ::testing::Values(Kind::Attention, Kind::Windowed, Kind::Recurrent, Kind::Hybrid),
                         [](const auto& kind) { return std::string(name(kind.param)); });

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

TEST(Engine, NoTokensAskedForOnlyReadsThePrompt) {
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

// Letters for tokens: 'a' is token 0.
class Letters final : public TextStream {
 public:
  void push(Token token, std::string& out) override { out += static_cast<char>('a' + token); }
  void flush(std::string& out) override { out += '.'; }
};

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
  ASSERT_EQ(heard->alternatives.size(), 15u);
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
    EXPECT_EQ(heard->alternatives[3 * i].token, best - logits.begin());
    EXPECT_NEAR(heard->alternatives[3 * i].logprob, *best - std::log(sum), 1e-5);
    EXPECT_GE(heard->alternatives[3 * i + 1].logprob, heard->alternatives[3 * i + 2].logprob);
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
  // The prompt once, and of each choice all but the last token.
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

TEST(Engine, ARequestThatWaitsIsNoLargerForTheChoicesItWants) {
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
  // The unlikeliest beginning of all ends its answer at once.
  const auto worst = std::ranges::min_element(all->choices, {}, [](const auto& choice) { return choice.logprobs[0]; });
  request.stop_tokens = {worst->tokens[0]};
  request.n = 1;
  request.best_of = 8;
  const auto best = fixture.submit(request);
  fixture.run();
  EXPECT_FALSE(best->choices[0].tokens.empty());
}

// --- scheduling

TEST(Engine, AnswersKeepFlowingWhileALongPromptIsRead) {
  Fixture fixture({.max_tokens = 512, .engine = {.step_tokens = 16, .check_integrity = true}});
  const auto writer = fixture.submit(greedy(some_tokens(4), 60));
  fixture.engine->step();
  const auto reader = fixture.submit(greedy(some_tokens(300, 2), 1));
  std::size_t before = writer->choices[0].tokens.size();
  while (!reader->ended && !writer->ended) {
    fixture.engine->step();
    EXPECT_EQ(writer->choices[0].tokens.size(), before + 1) << "a token in every step";
    before = writer->choices[0].tokens.size();
  }
  EXPECT_TRUE(reader->ended);
  fixture.run();
}

TEST_P(EngineOnEachKind, AnswersKeepFlowingWhileAPromptIsReadThatLeavesThemNoRoomToGrow) {
  if (GetParam() == Kind::Recurrent) GTEST_SKIP() << "a recurrent sequence does not grow";
  for (std::uint64_t budget = 10 << 10; budget <= 24 << 10; budget += 512) {
    SCOPED_TRACE(budget);
    Fixture fixture({.kind = GetParam(), .budget = budget, .engine = {.step_tokens = 8, .check_integrity = true}});
    const Request writes = greedy(some_tokens(8), 120);
    const Request reads = greedy(some_tokens(200, 2), 1);
    const auto writer = fixture.submit(writes);
    fixture.engine->step();
    const auto reader = fixture.submit(reads);
    if (!reader->refused.empty()) continue;
    for (std::size_t tokens = 2; !writer->ended; ++tokens) {
      ASSERT_TRUE(fixture.engine->step());
      ASSERT_EQ(writer->choices[0].tokens.size(), tokens) << "a token in every step";
    }
    fixture.run();
    EXPECT_EQ(fixture.model->problem, "");
    EXPECT_EQ(writer->choices[0].answer(), fixture.right(writes));
    EXPECT_EQ(reader->choices[0].answer(), fixture.right(reads));
  }
}

TEST(Engine, NobodyWaitsForThePagesOfOneWhoIsServedLater) {
  Fixture fixture({.engine = {.step_tokens = 16, .check_integrity = true}});
  const auto ask = [&](std::uint64_t seed, std::int32_t priority) {
    Request request = greedy(some_tokens(160, seed), 1);
    request.priority = priority;
    return fixture.submit(request);
  };
  const auto low = ask(1, 0);
  fixture.engine->step();
  std::vector<std::shared_ptr<Collector>> middle;
  for (std::uint64_t i = 0; i < 5; ++i) middle.push_back(ask(10 + i, 1));
  fixture.engine->step();
  const auto high = ask(1, 2);  // what the low one is reading
  while (!high->ended) ASSERT_TRUE(fixture.engine->step());
  for (const auto& one : middle) EXPECT_FALSE(one->ended);
  EXPECT_FALSE(low->ended);
  fixture.run();
}

TEST(Engine, WhoComesFirstIsServedFirstAndPriorityGoesBefore) {
  Clock::time_point time{};
  Options options{.max_sequences = 1};
  options.engine.now = [&] { return time += std::chrono::milliseconds(1); };
  Fixture fixture(options);
  std::vector<int> order;
  std::vector<std::shared_ptr<Collector>> heard;
  const auto submit = [&](int number, std::int32_t priority) {
    Request request = greedy(some_tokens(10, static_cast<std::uint64_t>(number)), 1);
    request.priority = priority;
    heard.push_back(fixture.submit(request));
    heard.back()->on_token = [&order, number](const Event&) { order.push_back(number); };
  };
  submit(0, 0);
  submit(1, 0);
  submit(2, 1);
  submit(3, -1);
  submit(4, 1);
  fixture.run();
  EXPECT_EQ(order, (std::vector{2, 4, 0, 1, 3}));
}

TEST(Engine, NobodyWaitsForEverHoweverManyOfHigherPriorityCome) {
  Clock::time_point time{};
  Options options{.max_sequences = 1};
  options.engine.now = [&] { return time += std::chrono::milliseconds(100); };
  options.engine.priority_worth = std::chrono::seconds(1);
  Fixture fixture(options);
  Request low = greedy(some_tokens(10), 1);
  low.priority = -5;
  const auto patient = fixture.submit(low);
  int others = 0;
  while (!patient->ended && others < 1000) {
    Request high = greedy(some_tokens(10, 2 + static_cast<std::uint64_t>(others++)), 1);
    high.priority = 5;
    fixture.submit(high);
    fixture.engine->step();
  }
  EXPECT_TRUE(patient->ended);
  EXPECT_LT(others, 200);
  fixture.engine->cancel_all();
}

TEST(Engine, AFullQueueIsAnAnswer) {
  Fixture fixture({.max_sequences = 1, .engine = {.queue_limit = 2, .check_integrity = true}});
  fixture.submit(greedy(some_tokens(10), 5));
  fixture.engine->step();  // it runs now, and does not wait
  fixture.submit(greedy(some_tokens(10), 5));
  fixture.submit(greedy(some_tokens(10), 5));
  const auto refused = fixture.submit(greedy(some_tokens(10), 5));
  EXPECT_EQ(refused->refused, "2 requests are waiting already");
  EXPECT_EQ(fixture.refusal.why, Refusal::Why::QueueFull);
  fixture.run();
  EXPECT_EQ(fixture.engine->stats().finished, 3u);
  EXPECT_EQ(fixture.engine->stats().refused, 1u);
}

TEST(Engine, AQueueMayBeAsLongAsOneLikes) {
  Fixture fixture({.engine = {.queue_limit = 4'000'000'000, .check_integrity = true}});
  for (std::uint64_t i = 0; i < 3000; ++i) fixture.submit(greedy(some_tokens(10, i), 1));
  EXPECT_EQ(fixture.engine->stats().waiting, 3000u);
  fixture.engine->cancel(fixture.last);
  EXPECT_EQ(fixture.engine->stats().waiting, 2999u);
  fixture.run();
  EXPECT_EQ(fixture.engine->stats().finished, 2999u);
  EXPECT_EQ(fixture.engine->stats().waiting, 0u);
}

TEST_P(EngineOnEachKind, CancellingFreesEverythingAtOnce) {
  Fixture fixture({.kind = GetParam(), .engine = {.step_tokens = 16, .check_integrity = true}});
  Request request = seeded(some_tokens(60), 100, 1);
  request.n = 3;
  const auto waiting = fixture.submit(request);
  const RequestId first = fixture.last;
  for (int steps = 0; steps < 8; ++steps) {
    fixture.engine->step();
    if (steps == 1 || steps == 6) {  // while it reads, and while it writes
      const auto other = fixture.submit(request);
      fixture.engine->step();
      EXPECT_TRUE(fixture.engine->cancel(fixture.last));
      EXPECT_FALSE(fixture.engine->cancel(fixture.last));
      EXPECT_TRUE(other->ended);
      EXPECT_EQ(other->choices[0].finish, Finish::Cancelled);
    }
  }
  EXPECT_TRUE(fixture.engine->cancel(first));
  EXPECT_TRUE(waiting->ended);
  EXPECT_TRUE(fixture.engine->idle());
  EXPECT_EQ(fixture.pool->stats().sequences, 0u);
  for (const ObjectCounts& pages : fixture.pool->stats().pages) EXPECT_EQ(pages.held, 0u);
  EXPECT_EQ(fixture.pool->stats().states.held, 0u);
}

TEST(Engine, ADeadlineEndsARequestWhereverItIs) {
  Clock::time_point time{};
  Options options{.max_sequences = 1};
  options.engine.now = [&] { return time; };
  Fixture fixture(options);
  Request slow = greedy(some_tokens(10), 200);
  slow.deadline = time + std::chrono::seconds(1);
  Request queued = slow;
  queued.deadline = time + std::chrono::seconds(2);
  const auto running = fixture.submit(slow);
  const auto waiting = fixture.submit(queued);
  for (int i = 0; i < 5; ++i) fixture.engine->step();
  EXPECT_FALSE(running->ended);
  time += std::chrono::seconds(3);
  fixture.engine->step();
  EXPECT_EQ(running->choices[0].finish, Finish::Deadline);
  EXPECT_EQ(running->choices[0].tokens.size(), 5u);
  EXPECT_EQ(waiting->choices[0].finish, Finish::Deadline);
  EXPECT_TRUE(fixture.engine->idle());
}

TEST(Engine, WaitingEndsWhenTheReadingBegins) {
  Clock::time_point time{};
  Options options{.max_tokens = 512};
  options.engine.step_tokens = 16;
  options.engine.now = [&] { return time; };
  Fixture fixture(options);
  fixture.model->on_step = [&](auto) { time += std::chrono::seconds(1); };
  const auto heard = fixture.submit(greedy(some_tokens(64), 3));
  time += std::chrono::seconds(5);
  fixture.run();
  EXPECT_EQ(heard->usage.queued_seconds, 5);
  EXPECT_EQ(heard->usage.first_token_seconds, 5 + 4);
  EXPECT_EQ(heard->usage.total_seconds, 5 + 4 + 2);
}

// --- what is refused at the door

TEST(Engine, WhatCannotBeMeantIsRefusedByName) {
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
  EXPECT_EQ(why([](Request& r) { r.logprobs = 101; }), "at most 100 log-probabilities can be told with a token");
  EXPECT_EQ(why([](Request& r) { r.priority = 2'000'000'000; }),
            "a priority of 2000000000 is not between -1000000 and 1000000");
  EXPECT_EQ(why([](Request& r) { r.sampling.top_p = 0; }), "a top-p of 0 is not above 0 and at most 1");
  EXPECT_EQ(why([](Request& r) { r.stop_strings = {"x"}; }), "stop strings, and nothing that turns tokens into text");
  EXPECT_EQ(why([](Request& r) {
              r.text = [] { return std::make_unique<Letters>(); };
              r.stop_strings = {""};
            }),
            "a stop string that is empty");
  EXPECT_EQ(why([](Request& r) { r.prompt.resize(256); }),
            "the prompt has 256 tokens, and the context of 256 leaves no room for an answer");
  EXPECT_EQ(fixture.refusal.why, Refusal::Why::TooLong);
  fixture.engine->stop_accepting();
  EXPECT_EQ(why([](Request&) {}), "the engine is shutting down");
  EXPECT_TRUE(fixture.engine->idle());
}

TEST(Engine, WhatCanNeverFitIsRefusedAtTheDoorWithTheNumbers) {
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

// Numbers that nobody means, in requests to a pool that is too small for them: each ends, or is refused.
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

// --- prefixes

TEST_P(EngineOnEachKind, APromptThatWasReadBeforeIsFound) {
  Fixture fixture({.kind = GetParam()});
  const Request request = greedy(some_tokens(100), 5);
  fixture.submit(request);
  fixture.run();
  const std::uint64_t cold = fixture.model->tokens_computed;
  const auto heard = fixture.submit(request);
  fixture.run();
  EXPECT_EQ(heard->choices[0].answer(), fixture.right(request));
  EXPECT_GE(heard->usage.hit.tokens, 96u);
  EXPECT_LE(fixture.model->tokens_computed - cold, 4u + 4u);
}

TEST_P(EngineOnEachKind, TheSecondOfTwoEqualPromptsWaitsForTheFirstOnesPages) {
  Fixture fixture({.kind = GetParam(), .engine = {.step_tokens = 16, .check_integrity = true}});
  Request request = seeded(some_tokens(100), 4, 1);
  const auto first = fixture.submit(request);
  request.sampling.seed = 2;
  const auto second = fixture.submit(request);
  Request other = greedy(some_tokens(20, 9), 4);
  const auto unrelated = fixture.submit(other);
  fixture.run();
  EXPECT_EQ(first->choices[0].answer(), fixture.right(seeded(some_tokens(100), 4, 1)));
  EXPECT_EQ(second->choices[0].answer(), fixture.right(seeded(some_tokens(100), 4, 2)));
  EXPECT_GE(second->usage.hit.tokens, 96u);
  EXPECT_EQ(fixture.engine->stats().prefix_waits, 1u);
  EXPECT_LE(fixture.model->tokens_computed, 100u + 4 + 20 + 3 * 3);
}

TEST_P(EngineOnEachKind, PromptsThatPartSomewhereShareWhatStandsBeforeInTheSameBatch) {
  Fixture fixture({.kind = GetParam(), .engine = {.step_tokens = 16, .check_integrity = true}});
  std::vector<Request> requests;
  std::vector<std::shared_ptr<Collector>> heard;
  for (std::uint64_t i = 0; i < 6; ++i) {
    std::vector<Token> prompt = some_tokens(80);
    for (const Token token : some_tokens(30, 100 + i)) prompt.push_back(token);
    requests.push_back(greedy(prompt, 3));
    heard.push_back(fixture.submit(requests.back()));
  }
  fixture.run();
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(heard[i]->choices[0].answer(), fixture.right(requests[i]));
    EXPECT_GE(heard[i]->usage.hit.tokens, i == 0 ? 0u : 80u) << i;
  }
}

TEST_P(EngineOnEachKind, WhoDoesNotWantReuseGetsNoneAndOthersNamespacesAreNotSeen) {
  Fixture fixture({.kind = GetParam()});
  Request request = greedy(some_tokens(100), 3);
  fixture.submit(request);
  fixture.run();
  request.reuse = false;
  const auto without = fixture.submit(request);
  fixture.run();
  EXPECT_EQ(without->usage.hit.tokens, 0u);
  EXPECT_EQ(without->usage.hit.end, HitEnd::Disabled);
  request.reuse = true;
  request.name_space = 77;
  const auto stranger = fixture.submit(request);
  fixture.run();
  EXPECT_EQ(stranger->usage.hit.tokens, 0u);
  EXPECT_EQ(stranger->usage.hit.end, HitEnd::OtherNamespace);
  EXPECT_EQ(stranger->choices[0].answer(), fixture.right(request));
}

TEST_P(EngineOnEachKind, AnAnswerIsTheSameWithTheCacheColdWarmOffAndHalfEvicted) {
  const Request request = seeded(some_tokens(90), 12, 4);
  for (const bool cache : {true, false}) {
    Fixture fixture({.kind = GetParam(), .budget = 32 << 10, .prefix_cache = cache});
    for (int round = 0; round < 3; ++round) {
      const auto heard = fixture.submit(request);
      fixture.run();
      EXPECT_EQ(heard->choices[0].answer(), fixture.right(request));
      // Others push part of it out.
      for (std::uint64_t i = 0; i < 4; ++i) {
        fixture.submit(greedy(some_tokens(100, 50 + 10 * static_cast<std::uint64_t>(round) + i), 2));
        fixture.run();
      }
    }
    EXPECT_EQ(fixture.model->problem, "");
  }
}

// However a second prompt parts from the first, what it can reuse grows with what it shares: no shift falls off a
// cliff.
TEST_P(EngineOnEachKind, ASweepOverShiftsShowsNoCliffInWhatIsReused) {
  constexpr std::uint32_t kLength = 200;
  for (const std::uint32_t tail : {0u, 40u}) {
    std::vector<std::uint32_t> lost;
    for (std::uint32_t shift = 0; shift < 64; ++shift) {
      Fixture fixture({.kind = GetParam()});
      std::vector<Token> first = some_tokens(kLength);
      std::vector<Token> second(first.begin(), first.end() - shift);  // shares all but the last `shift` tokens
      for (const Token token : some_tokens(shift + tail, 7)) second.push_back((token + 1) % 32);
      fixture.submit(greedy(first, 1));
      fixture.run();
      const Request request = greedy(second, 2);
      const auto heard = fixture.submit(request);
      fixture.run();
      EXPECT_EQ(heard->choices[0].answer(), fixture.right(request));
      const std::uint32_t shared =
          std::min<std::uint32_t>(kLength - shift, static_cast<std::uint32_t>(second.size()) - 1);
      ASSERT_LE(heard->usage.hit.tokens, shared + 1);  // the token behind may be equal by chance
      lost.push_back(shared - std::min(shared, heard->usage.hit.tokens));
    }
    for (std::uint32_t shift = 0; shift < 64; ++shift) {
      // Attention: nothing is lost, whatever the border. Recurrent: at most a block more than twice the shift.
      const bool recurrent = GetParam() == Kind::Recurrent || GetParam() == Kind::Hybrid;
      const std::uint32_t allowed = GetParam() == Kind::Attention ? 0 : recurrent ? shift + 8 : 8;
      EXPECT_LE(lost[shift], allowed) << "shift " << shift << ", tail " << tail;
    }
  }
}

// --- memory

class EngineSuspends : public ::testing::TestWithParam<std::tuple<Kind, SuspendBy>> {};
INSTANTIATE_TEST_SUITE_P(Models, EngineSuspends,
                         ::testing::Combine(::testing::Values(Kind::Attention, Kind::Windowed, Kind::Recurrent,
                                                              Kind::Hybrid),
                                            ::testing::Values(SuspendBy::Copy, SuspendBy::Recompute)),
                         [](const auto& both) {
                           return std::string(name(std::get<0>(both.param))) +
                                  (std::get<1>(both.param) == SuspendBy::Copy ? "ByCopy" : "ByRecompute");
                         });

TEST_P(EngineSuspends, WhoIsSuspendedGoesOnWhereItWasAndNobodyNoticesButByTheClock) {
  const auto [kind, by] = GetParam();
  const bool pages = kind != Kind::Recurrent;
  Fixture fixture({.kind = kind,
                   .budget = pages ? 24u << 10 : 1u << 10,
                   .engine = {.patience = 0, .suspend_by = by, .check_integrity = true}});
  std::vector<Request> requests;
  std::vector<std::shared_ptr<Collector>> heard;
  for (std::uint64_t i = 0; i < 12; ++i) {
    requests.push_back(seeded(some_tokens(20, i), 60, i));
    requests.back().priority = i == 11 ? 1 : 0;  // comes last and goes before the others
    heard.push_back(fixture.submit(requests.back()));
    fixture.engine->step();
    fixture.engine->step();
  }
  fixture.run();
  EXPECT_EQ(fixture.model->problem, "");
  for (std::size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(heard[i]->problem, "");
    EXPECT_EQ(heard[i]->choices[0].answer(), fixture.right(requests[i])) << i;
  }
  const EngineStats stats = fixture.engine->stats();
  EXPECT_GT(by == SuspendBy::Copy ? stats.suspensions_by_copy : stats.suspensions_by_recompute, 0u);
  EXPECT_EQ(by == SuspendBy::Copy ? stats.suspensions_by_recompute : stats.suspensions_by_copy, 0u);
  EXPECT_EQ(stats.resumed, stats.suspensions_by_copy + stats.suspensions_by_recompute);
  EXPECT_EQ(stats.host_bytes, 0u);
}

TEST_P(EngineSuspends, AResumedSequenceWritesATokenBeforeItIsSuspendedAgain) {
  const auto [kind, by] = GetParam();
  if (kind == Kind::Recurrent) GTEST_SKIP() << "a recurrent sequence does not grow";
  Fixture fixture(
      {.kind = kind, .budget = 16 << 10, .engine = {.patience = 0, .suspend_by = by, .check_integrity = true}});
  std::vector<std::shared_ptr<Collector>> heard;
  for (std::uint64_t i = 0; i < 8; ++i) heard.push_back(fixture.submit(seeded(some_tokens(20, i), 60, i)));
  while (fixture.engine->step()) {
  }
  std::uint32_t suspensions = 0, tokens = 0;
  for (const auto& one : heard) {
    suspensions += one->usage.suspensions;
    tokens += static_cast<std::uint32_t>(one->choices[0].tokens.size());
    EXPECT_LT(one->usage.suspensions, one->choices[0].tokens.size());
  }
  EXPECT_GT(suspensions, 0u);
  EXPECT_LT(suspensions, tokens / 4);
}

// Several long prompts, and room for one and a bit: those behind come in, have to go half way and come back.
TEST_P(EngineSuspends, WhoHasToGoWhileItReadsComesBack) {
  const auto [kind, by] = GetParam();
  for (std::uint64_t budget = 6 << 10; budget <= 16 << 10; budget += 256) {
    Fixture fixture({.kind = kind,
                     .budget = budget,
                     .engine = {.step_tokens = 16, .patience = 0, .suspend_by = by, .check_integrity = true}});
    std::vector<Request> requests;
    std::vector<std::shared_ptr<Collector>> heard;
    for (std::uint64_t i = 0; i < 4; ++i) {
      requests.push_back(seeded(some_tokens(150, i), 20, i));
      heard.push_back(fixture.submit(requests.back()));
    }
    if (!heard.back()->refused.empty()) continue;
    fixture.run();
    EXPECT_EQ(fixture.model->problem, "");
    ASSERT_TRUE(fixture.engine->idle()) << budget;
    for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(heard[i]->choices[0].answer(), fixture.right(requests[i]));
  }
}

TEST(Engine, CopiesStayWithinTheHostMemoryTheyMayHave) {
  Fixture fixture(
      {.budget = 24 << 10, .engine = {.host_bytes = 0, .suspend_by = SuspendBy::Copy, .check_integrity = true}});
  for (std::uint64_t i = 0; i < 12; ++i) fixture.submit(seeded(some_tokens(20, i), 60, i));
  fixture.run();
  EXPECT_EQ(fixture.engine->stats().suspensions_by_copy, 0u);
  EXPECT_GT(fixture.engine->stats().suspensions_by_recompute, 0u);
  EXPECT_EQ(fixture.engine->stats().finished, 12u);
}

TEST(Engine, ARequestOfHigherPriorityTakesThePlaceOfALowerOne) {
  Fixture fixture({.max_sequences = 1});
  const auto low = fixture.submit(greedy(some_tokens(20), 100));
  for (int i = 0; i < 10; ++i) fixture.engine->step();
  Request urgent = greedy(some_tokens(20, 2), 3);
  urgent.priority = 1;
  const auto high = fixture.submit(urgent);
  for (int i = 0; i < 5; ++i) fixture.engine->step();
  EXPECT_TRUE(high->ended);
  EXPECT_FALSE(low->ended);
  fixture.run();
  EXPECT_EQ(low->choices[0].answer(), fixture.right(greedy(some_tokens(20), 100)));
  EXPECT_EQ(low->usage.suspensions, 1u);
}

// --- looking

TEST(Engine, WhatRunsAndWaitsCanBeSeen) {
  Fixture fixture({.max_sequences = 1, .engine = {.step_tokens = 16, .check_integrity = true}});
  fixture.submit(greedy(some_tokens(40), 5));
  fixture.submit(greedy(some_tokens(40, 2), 5));
  fixture.engine->step();
  const auto infos = fixture.engine->sequences();
  ASSERT_EQ(infos.size(), 2u);
  EXPECT_EQ(infos[0].state, SequenceInfo::State::Reading);
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
