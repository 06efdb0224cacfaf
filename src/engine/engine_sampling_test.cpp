// An executor that samples by itself gives the answers of one that does not, whatever fits into its limits, and shows
// logits only to those who want them.
#include <gtest/gtest.h>

#include "quire/backend/backends_testing.h"
#include "quire/engine/engine_testing.h"
#include "quire/engine/hosted_model.h"

namespace quire::engine::testing {
namespace {

constexpr sampling::Limits kPlenty{.vocabulary = 32, .jobs = 64, .listed = 10'000, .reported = 1000};
// Only the first job fits; only jobs with short lists; only jobs that report little; most jobs of a step.
constexpr sampling::Limits kTight[] = {{.vocabulary = 32, .jobs = 1, .listed = 1000, .reported = 100},
                                       {.vocabulary = 32, .jobs = 64, .listed = 4, .reported = 100},
                                       {.vocabulary = 32, .jobs = 64, .listed = 1000, .reported = 2},
                                       {.vocabulary = 32, .jobs = 6, .listed = 40, .reported = 6}};

// Requests with all options of sampling.
std::vector<Request> all_sorts() {
  std::vector<Request> requests;
  for (std::uint32_t i = 0; i < 10; ++i) {
    Request request = i % 3 == 0 ? greedy(some_tokens(5 + 11 * i, i), 12) : seeded(some_tokens(9 + 4 * i, i), 12, i);
    if (i % 3 == 2) request.sampling.top_k = 9;
    if (i % 4 == 1) request.sampling.top_p = 0.8;
    if (i % 4 == 2) request.sampling.min_p = 0.3;
    if (i % 2 == 1) request.sampling.repetition_penalty = 1.4;
    if (i % 5 == 2) request.sampling.frequency_penalty = 0.6;
    if (i % 5 == 3) request.sampling.logit_bias = {{3, 1.5f}, {30, -2.0f}, {3, 0.5f}};
    if (i % 3 == 1) request.logprobs = static_cast<std::int32_t>(i / 2);
    if (i % 4 == 3) request.n = 3;
    if (i == 6) request.best_of = 4;
    if (i % 5 == 0) request.prompt_logits = i == 0 ? Logits::All : Logits::Last;
    requests.push_back(request);
  }
  return requests;
}

struct Heard {
  std::vector<std::shared_ptr<Collector>> requests;
  std::uint64_t sampled = 0, logits_shown = 0;
};
Heard answers(Kind kind, const sampling::Limits& limits, std::vector<Request> requests) {
  Fixture fixture({.kind = kind, .sampling = limits});
  Heard heard;
  for (Request& request : requests) heard.requests.push_back(fixture.submit(std::move(request)));
  fixture.run();
  EXPECT_EQ(fixture.model->problem, "");
  heard.sampled = fixture.model->sampled;
  heard.logits_shown = fixture.model->logits_shown;
  return heard;
}

void expect_same(const Collector& one, const Collector& other) {
  EXPECT_TRUE(one.ended && other.ended);
  EXPECT_EQ(one.problem, other.problem);
  ASSERT_EQ(one.choices.size(), other.choices.size());
  for (std::size_t c = 0; c < one.choices.size(); ++c) {
    EXPECT_EQ(one.choices[c].answer(), other.choices[c].answer()) << "choice " << c;
    EXPECT_EQ(one.choices[c].logprobs, other.choices[c].logprobs) << "choice " << c;
    EXPECT_TRUE(
        std::ranges::equal(one.choices[c].alternatives, other.choices[c].alternatives,
                           [](const auto& a, const auto& b) { return a.token == b.token && a.logprob == b.logprob; }))
        << "choice " << c;
  }
  EXPECT_EQ(one.prompt_logits, other.prompt_logits);
}

INSTANTIATE_TEST_SUITE_P(Models, EngineOnEachKind, ::testing::Values(Kind::Attention, Kind::Hybrid), kind_name);

TEST_P(EngineOnEachKind, AnswersAreTheSameWhoeverSamples) {
  const Heard host = answers(GetParam(), {}, all_sorts());
  EXPECT_EQ(host.sampled, 0u);
  EXPECT_GT(host.logits_shown, 0u);
  EXPECT_EQ(host.requests[3]->choices[2].answer(), right_answer(all_sorts()[3], 2, 32, 256));
  const auto compare = [&](const Heard& device) {
    for (std::size_t i = 0; i < host.requests.size(); ++i) {
      SCOPED_TRACE(i);
      expect_same(*device.requests[i], *host.requests[i]);
    }
  };
  compare(answers(GetParam(), kPlenty, all_sorts()));
  for (const sampling::Limits& limits : kTight) {
    const Heard device = answers(GetParam(), limits, all_sorts());
    compare(device);
    EXPECT_GT(device.sampled, 0u) << "what fits is sampled by the executor";
    EXPECT_LT(device.sampled, host.logits_shown) << "the rest is not";
  }
}

TEST(EngineSampling, NoLogitsLeaveAnExecutorThatSamples) {
  Request choices = seeded(some_tokens(20), 8, 3);
  choices.n = 4;
  choices.logprobs = 2;
  const Heard heard = answers(Kind::Attention, kPlenty, {greedy(some_tokens(30), 10), choices});
  EXPECT_EQ(heard.logits_shown, 0u);
  EXPECT_EQ(heard.sampled, 10u + 4 * 8);
}

TEST(EngineSampling, LogitsAreShownToThoseWhoWantThemAlone) {
  Request last = greedy(some_tokens(30, 1), 10), all = greedy(some_tokens(25, 2), 0);
  last.prompt_logits = Logits::Last;
  all.prompt_logits = Logits::All;
  const Heard heard = answers(Kind::Attention, kPlenty, {greedy(some_tokens(40, 3), 30), last, all});
  EXPECT_EQ(heard.logits_shown, 1u + 25);
  EXPECT_EQ(heard.sampled, 30u + 10);
  EXPECT_EQ(heard.requests[1]->prompt_logits.size(), 1u);
  EXPECT_EQ(heard.requests[2]->prompt_logits.size(), 25u);
}

// --- on models

class SamplingOnModels : public ::testing::TestWithParam<quire::testing::BackendKind> {};

// Two sequences of the same tokens: the model samples for one, and shows the logits of the other.
TEST_P(SamplingOnModels, TheTokenIsTheOneThatTheHostPicksFromTheSameLogits) {
  auto model = model::Model::load(std::string(QUIRE_SOURCE_DIR) + "/models/quire-demo-llama-q8_0.gguf");
  ASSERT_TRUE(model.has_value());
  auto host = *HostedModel::create(std::move(*model), GetParam().make(2), {.context = 256, .max_sequences = 8});
  SequencePool& pool = host->pool();
  const std::uint32_t vocabulary = host->executor().vocabulary();
  std::vector<Token> prompt = some_tokens(20, 7, vocabulary);
  const SequenceId one = pool.create({.prompt = prompt, .reuse = false})->id;
  const SequenceId other = pool.create({.prompt = prompt, .reuse = false})->id;
  sampling::Scratch scratch(vocabulary);
  Batch batch(64, 2, static_cast<std::uint32_t>(pool.layout().groups.size()));
  std::span<const Token> next = prompt;
  for (std::uint32_t i = 0; i < 12; ++i) {
    Sampler sampler({.temperature = i % 4 * 0.7, .seed = i, .repetition_penalty = 1 + i % 3 * 0.5}, vocabulary, 5);
    sampler.see_prompt(prompt);
    sampling::Job job = sampler.job(prompt.size());
    batch.clear();
    batch.add(one, next);
    batch.add(other, next);
    ASSERT_TRUE(pool.reserve(batch.entries()).has_value());
    const std::uint32_t shown = 1;
    const auto output = host->executor().forward(batch, {.jobs = {&job, 1}, .logits = {&shown, 1}});
    ASSERT_TRUE(output.has_value());
    ASSERT_TRUE(pool.commit(batch).has_value());
    ASSERT_EQ(output->picked.size(), 1u);
    const sampling::Picked got = output->picked[0], right = sampling::pick(output->logits.row(1), job, scratch);
    ASSERT_EQ(got.token, right.token) << i;
    EXPECT_EQ(got.logit, right.logit);
    EXPECT_EQ(got.sum.total, right.sum.total);
    EXPECT_TRUE(std::ranges::equal(got.places, right.places));
    prompt.push_back(got.token);
    next = std::span(prompt).last(1);
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, SamplingOnModels, ::testing::ValuesIn(quire::testing::backend_kinds()),
                         [](const auto& kind) { return kind.param.name; });

}  // namespace
}  // namespace quire::engine::testing
