// What a request can learn of its prompt: log-probabilities of its tokens, and an embedding. And answers that may not
// end early.
#include <cmath>
#include <string>
#include <tuple>

#include <gtest/gtest.h>

#include "quire/backend/backends_testing.h"
#include "quire/engine/engine.h"
#include "quire/engine/engine_testing.h"
#include "quire/engine/hosted_model.h"

namespace quire::engine::testing {
namespace {

constexpr Pooling kPoolings[] = {Pooling::Mean, Pooling::First, Pooling::Last};

Request embedding_of(std::vector<Token> prompt, Pooling how) {
  Request request{.prompt = std::move(prompt), .max_tokens = 0};
  request.embedding = how;
  return request;
}

// Computed without engine or pool.
std::vector<float> right_embedding(const Request& request) {
  std::vector<float> hidden(kHiddenWidth);
  std::vector<double> sum(kHiddenWidth, 0);
  std::uint64_t memory = kBeginning;
  for (std::size_t p = 0; p < request.prompt.size(); ++p) {
    hidden_after(memory = remember(memory, request.prompt[p]), hidden);
    const bool last = p + 1 == request.prompt.size();
    const bool counts = request.embedding == Pooling::Mean || (request.embedding == Pooling::First ? p == 0 : last);
    for (std::size_t i = 0; counts && i < sum.size(); ++i) sum[i] += hidden[i];
  }
  const double count = request.embedding == Pooling::Mean ? static_cast<double>(request.prompt.size()) : 1;
  for (std::size_t i = 0; i < sum.size(); ++i) hidden[i] = static_cast<float>(sum[i] / count);
  return hidden;
}

// The log-probabilities of a prompt's tokens, in double precision.
std::vector<double> right_logprobs(const Request& request, std::uint32_t vocabulary) {
  std::vector<double> out;
  std::vector<float> logits(vocabulary);
  std::uint64_t memory = kBeginning;
  for (std::size_t p = 0; p + 1 < request.prompt.size(); ++p) {
    logits_after(memory = remember(memory, request.prompt[p]), logits);
    double sum = 0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
    out.push_back(logits[static_cast<std::size_t>(request.prompt[p + 1])] - std::log(sum));
  }
  return out;
}

void expect_right_logprobs(const Collector& heard, const Request& request, std::uint32_t vocabulary) {
  const std::vector<double> right = right_logprobs(request, vocabulary);
  ASSERT_EQ(heard.prompt_tokens.size(), right.size());
  for (std::size_t i = 0; i < right.size(); ++i) {
    EXPECT_EQ(heard.prompt_tokens[i].token, request.prompt[i + 1]);
    EXPECT_NEAR(heard.prompt_tokens[i].logprob, right[i], 1e-5) << i;
  }
}

bool same(std::span<const TokenLogprob> a, std::span<const TokenLogprob> b) {
  return std::ranges::equal(a, b,
                            [](const auto& x, const auto& y) { return x.token == y.token && x.logprob == y.logprob; });
}

INSTANTIATE_TEST_SUITE_P(Models, EngineOnEachKind, ::testing::ValuesIn(kAllKinds), kind_name);

TEST_P(EngineOnEachKind, APromptsLogprobsAreTheModelsWhateverItsChunks) {
  Request request = seeded(some_tokens(90, 3), 5, 9);
  request.prompt_logprobs = 3;
  std::shared_ptr<Collector> first;
  for (const std::uint32_t rows : {64u, 7u, 1u}) {
    Fixture fixture({.kind = GetParam(), .rows = rows});
    for (int again = 0; again < 2; ++again) {
      const auto beside = fixture.submit(seeded(some_tokens(40, 8), 30, 1));
      const auto heard = fixture.submit(request);
      fixture.run();
      EXPECT_EQ(heard->problem, "");
      EXPECT_EQ(fixture.model->problem, "");
      EXPECT_EQ(heard->usage.hit.tokens, 0u) << "every position is computed";
      EXPECT_EQ(heard->choices[0].answer(), fixture.right(request));
      EXPECT_EQ(beside->choices[0].answer(), fixture.right(seeded(some_tokens(40, 8), 30, 1)));
      expect_right_logprobs(*heard, request, 32);
      ASSERT_EQ(heard->prompt_alternatives.size(), 3 * heard->prompt_tokens.size());
      for (std::size_t i = 0; i < heard->prompt_tokens.size(); ++i) {
        const auto tops = std::span(heard->prompt_alternatives).subspan(3 * i, 3);
        EXPECT_GE(tops[0].logprob, tops[1].logprob);
        EXPECT_EQ(heard->prompt_ranks[i] <= 3, std::ranges::any_of(tops, [&](const TokenLogprob& top) {
                    return top.token == heard->prompt_tokens[i].token;
                  }));
      }
      if (!first) first = heard;
      EXPECT_TRUE(same(heard->prompt_tokens, first->prompt_tokens)) << "to the bit";
      EXPECT_TRUE(same(heard->prompt_alternatives, first->prompt_alternatives));
    }
  }
}

TEST_P(EngineOnEachKind, AnEmbeddingIsTheSameBitsWhateverItsChunksAndNeighbours) {
  for (const std::uint32_t rows : {64u, 5u, 1u}) {
    Fixture fixture({.kind = GetParam(), .rows = rows});
    std::vector<Request> requests;
    std::vector<std::shared_ptr<Collector>> heard;
    for (std::uint64_t i = 0; i < 12; ++i) {
      // Some are the beginning of others, so that there is something to reuse.
      requests.push_back(embedding_of(some_tokens(static_cast<std::uint32_t>(10 + 13 * i), i % 2), kPoolings[i % 3]));
      heard.push_back(fixture.submit(requests.back()));
      if (i % 4 == 0) fixture.submit(seeded(some_tokens(30, i), 20, i));
      if (i % 3 == 0) fixture.run();
    }
    fixture.run();
    EXPECT_EQ(fixture.model->problem, "");
    for (std::size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(heard[i]->problem, "");
      EXPECT_EQ(heard[i]->embedding, right_embedding(requests[i])) << i;
      EXPECT_EQ(heard[i]->usage.completion_tokens, 0u);
      if (requests[i].embedding != Pooling::Last) {
        EXPECT_EQ(heard[i]->usage.hit.tokens, 0u);
      }
    }
  }
}

TEST(EnginePrompts, TheVectorOfTheLastPositionReusesAPrefix) {
  Fixture fixture({});
  const Request request = embedding_of(some_tokens(100, 1), Pooling::Last);
  const auto first = fixture.submit(request);
  fixture.run();
  const auto second = fixture.submit(request);
  fixture.run();
  EXPECT_GE(second->usage.hit.tokens, 90u);
  EXPECT_EQ(second->embedding, first->embedding);
}

class PromptsUnderPressure : public ::testing::TestWithParam<std::tuple<Kind, SuspendBy>> {};
INSTANTIATE_TEST_SUITE_P(Models, PromptsUnderPressure,
                         ::testing::Combine(::testing::ValuesIn(kAllKinds),
                                            ::testing::Values(SuspendBy::Copy, SuspendBy::Recompute)),
                         [](const auto& both) {
                           return std::string(name(std::get<0>(both.param))) +
                                  (std::get<1>(both.param) == SuspendBy::Copy ? "ByCopy" : "ByRecompute");
                         });

// Room for a little more than one of them: prompts are suspended half way and resumed, or computed again.
TEST_P(PromptsUnderPressure, WhatIsToldOfThemIsToldOnceAndToTheBit) {
  const auto [kind, by] = GetParam();
  std::uint64_t suspensions = 0;
  for (std::uint64_t budget = 6 << 10; budget <= 16 << 10; budget += 512) {
    Fixture fixture({.kind = kind,
                     .budget = budget,
                     .engine = {.step_tokens = 16,
                                .target_itl = std::chrono::microseconds(0),
                                .suspend_by = by,
                                .check_integrity = true}});
    std::vector<Request> requests;
    std::vector<std::shared_ptr<Collector>> heard;
    for (std::uint64_t i = 0; i < 6; ++i) {
      Request request =
          i % 2 == 0 ? embedding_of(some_tokens(150, i), kPoolings[i / 2 % 3]) : seeded(some_tokens(150, i), 20, i);
      if (i % 2 == 1) request.prompt_logprobs = 1;
      request.priority = static_cast<std::int32_t>(i);
      requests.push_back(request);
      heard.push_back(fixture.submit(request));
      for (int step = 0; step < 4; ++step) fixture.engine->step();
    }
    if (!heard.back()->refused.empty()) continue;
    fixture.run();
    EXPECT_EQ(fixture.model->problem, "");
    for (std::size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(heard[i]->problem, "") << budget << " " << i;
      suspensions += heard[i]->usage.suspensions;
      if (requests[i].embedding != Pooling::None) {
        EXPECT_EQ(heard[i]->embedding, right_embedding(requests[i])) << budget << " " << i;
      } else {
        EXPECT_EQ(heard[i]->choices[0].answer(), fixture.right(requests[i])) << budget << " " << i;
        expect_right_logprobs(*heard[i], requests[i], 32);
      }
    }
  }
  if (kind != Kind::Recurrent) {
    EXPECT_GT(suspensions, 0u) << "this tests nothing otherwise";
  }
}

TEST(EnginePrompts, WhatMakesNoSenseIsRefusedByName) {
  Fixture fixture({});
  Request embedding = embedding_of(some_tokens(5), Pooling::Mean);
  embedding.max_tokens = 3;
  fixture.submit(embedding);
  EXPECT_EQ(fixture.refusal.message, "an embedding has no answer: max_tokens must be 0, and n 1");
  Request minimum = greedy(some_tokens(5), 3);
  minimum.min_tokens = 4;
  fixture.submit(minimum);
  EXPECT_EQ(fixture.refusal.message, "min_tokens (4) is more than max_tokens (3)");
  Request many = greedy(some_tokens(5), 3);
  many.prompt_logprobs = 101;
  fixture.submit(many);
  EXPECT_EQ(fixture.refusal.message, "at most 100 log-probabilities can be reported for a token of a prompt");
}

// --- min_tokens

TEST(EngineMinTokens, NoStopTokenComesBeforeThem) {
  for (const std::uint32_t jobs : {0u, 64u}) {  // the engine samples, or the executor does
    const sampling::Limits limits =
        jobs == 0 ? sampling::Limits{} : sampling::Limits{.vocabulary = 32, .jobs = 64, .listed = 4096, .reported = 64};
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      Fixture fixture({.sampling = limits});
      Request request = seeded(some_tokens(10, seed), 40, seed);
      request.stop_tokens = {1, 2, 3, 4, 5, 6, 7, 8};
      request.min_tokens = 12;
      const auto held = fixture.submit(request);
      fixture.run();
      ASSERT_GE(held->choices[0].tokens.size(), 12u);
      EXPECT_EQ(held->choices[0].finish, Finish::Stop) << "afterwards it ends as usual";
      for (const Token token : held->choices[0].tokens) EXPECT_FALSE(token >= 1 && token <= 8);
      EXPECT_EQ(held->choices[0].tokens.size() + 1, held->usage.completion_tokens);
    }
  }
}

TEST(EngineMinTokens, AStopStringThatBeginsInThemIsText) {
  Fixture fixture({});
  Request request = greedy(some_tokens(10, 4), 30);
  request.text = [] { return std::make_unique<Letters>(); };
  const auto all = fixture.submit(request);
  fixture.run();
  const std::string text = all->choices[0].text;
  request.stop_strings = {text.substr(5, 2)};
  const std::size_t first = text.find(request.stop_strings[0]);
  ASSERT_LE(first, 5u);
  for (const std::uint32_t least : {0u, static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(first) + 1}) {
    request.min_tokens = least;
    const auto cut = fixture.submit(request);
    fixture.run();
    // A token is a letter here.
    const std::size_t found = text.find(request.stop_strings[0], least);
    EXPECT_EQ(cut->choices[0].text, text.substr(0, found)) << least;
  }
}

TEST(EngineMinTokens, AnEndTokenThatIsTheOnlyOneLeftIsTaken) {
  Sampler sampler({.temperature = 0, .logit_bias = {{0, 5.0f}}}, 3);
  const Token ends[] = {0, 1};
  sampler.hold_back(ends, 10);
  SamplerScratch scratch(3);
  const float logits[] = {1, 5, -7};
  EXPECT_EQ(sampler.sample(logits, 9, scratch).token, 2);
  EXPECT_EQ(sampler.sample(logits, 10, scratch).token, 0) << "the bias of the request counts again";
  const std::uint32_t mask = 0b011;
  EXPECT_EQ(sampler.sample(logits, 9, scratch, {&mask, 1}).token, 0);
}

// --- on models

class PromptsOnModels : public ::testing::TestWithParam<quire::testing::BackendKind> {};

TEST_P(PromptsOnModels, AnEmbeddingIsTheSameBitsAloneAndAmongOthers) {
  for (const char* file : {"llama", "hybrid", "mamba2"}) {
    const auto embed = [&](Pooling how, bool crowded, std::uint32_t step) {
      auto model = model::Model::load(std::string(QUIRE_SOURCE_DIR) + "/models/quire-demo-" + file + "-q8_0.gguf");
      EXPECT_TRUE(model.has_value());
      auto host = *HostedModel::create(std::move(*model), GetParam().make(2),
                                       {.context = 256, .max_sequences = 8, .step_tokens = step});
      const std::uint32_t vocabulary = host->executor().vocabulary();
      auto wanted = std::make_shared<Collector>();
      for (std::uint64_t i = 0; crowded && i < 3; ++i) {
        EXPECT_TRUE(host->engine()
                        .submit(seeded(some_tokens(10, i, vocabulary), 6, i), std::make_shared<Collector>())
                        .has_value());
        host->engine().step();
      }
      EXPECT_TRUE(host->engine().submit(embedding_of(some_tokens(40, 77, vocabulary), how), wanted).has_value());
      while (host->engine().step()) {
      }
      EXPECT_EQ(wanted->embedding.size(), host->model().hyperparameters().embedding);
      return wanted->embedding;
    };
    for (const Pooling how : {Pooling::Mean, Pooling::Last}) {
      const std::vector<float> alone = embed(how, false, 256);
      double length = 0;
      for (const float x : alone) length += double{x} * x;
      EXPECT_GT(length, 0);
      EXPECT_EQ(embed(how, true, 256), alone) << file << " " << name(how);
      EXPECT_EQ(embed(how, false, 16), alone) << file << " " << name(how);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, PromptsOnModels, ::testing::ValuesIn(quire::testing::backend_kinds()),
                         [](const auto& kind) { return kind.param.name; });

}  // namespace
}  // namespace quire::engine::testing
