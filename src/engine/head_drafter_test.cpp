// A model's own head drafts. What it has seen of an answer decides its guesses; the bits of answers do not depend on
// it.
#include "quire/engine/head_drafter.h"

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "quire/base/counted_heap_testing.h"
#include "quire/engine/engine_testing.h"
#include "quire/engine/heads_testing.h"
#include "quire/model/runner.h"

namespace quire::engine::testing {
namespace {

using model::testing::HeadModel;

constexpr std::uint32_t kVocabulary = 320;

std::vector<Token> tokens_of(std::uint32_t count, std::uint32_t seed) { return some_tokens(count, seed, kVocabulary); }

// A drafter by itself, and the model whose head it has.
struct Alone {
  explicit Alone(const HeadModel& test, HostOptions options = {.context = 256, .max_sequences = 4})
      : image(test.image()) {
    model = *model::Model::create(*gguf::File::from_memory(image, "test"));
    options.backend = head_backend();
    backend = *make_backend(options.backend);
    EXPECT_TRUE(model->prepare(*backend, 8, 8).has_value());
    auto made = make_head_drafter(*model, *backend, options);
    EXPECT_TRUE(made.has_value()) << made.error().message;
    drafter = std::static_pointer_cast<HeadDrafter>(*made);
  }
  std::vector<std::byte> image;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<model::Model> model;
  std::shared_ptr<HeadDrafter> drafter;
};

// A text with hidden states of its own, and what was shown of it.
struct Shown {
  Shown(std::uint32_t length, std::uint32_t seed, std::uint32_t of_width)
      : tokens(tokens_of(length, seed)), width(of_width), hidden(std::size_t{length} * width) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (float& each : hidden) each = normal(random);
    drafts.longest = length;
  }
  void show(HeadDrafter& to, std::uint32_t begin, std::uint32_t end) {
    drafts.text = std::span(tokens).first(end + 1);
    to.observe(drafts, begin, {hidden.data() + std::size_t{begin} * width, end - begin, width, width});
  }
  std::vector<Token> guesses(HeadDrafter& of, std::uint32_t most) {
    drafts.most = most;
    Drafts* const wanted[] = {&drafts};
    of.propose(wanted);
    return {drafts.drafted().begin(), drafts.drafted().end()};
  }
  std::vector<Token> tokens;
  std::uint32_t width;
  std::vector<float> hidden;
  Drafts drafts;
};

TEST(HeadDrafter, GuessesTheSameHoweverItCameToSeeTheText) {
  const HeadModel test("qwen35");
  Alone alone(test);
  const auto fresh = [&] { return Shown(201, 7, test.width()); };
  Shown at_once = fresh();
  at_once.show(*alone.drafter, 0, 200);
  const auto right = at_once.guesses(*alone.drafter, 5);
  ASSERT_EQ(right.size(), 5u);
  EXPECT_GT(alone.drafter->computed_pairs(), 199u);

  Shown in_chunks = fresh();
  for (const auto& [begin, end] : {std::pair(0u, 90u), std::pair(90u, 130u), std::pair(130u, 200u)}) {
    in_chunks.show(*alone.drafter, begin, end);
  }
  EXPECT_EQ(in_chunks.guesses(*alone.drafter, 5), right);

  // With guesses in between, which are forgotten, and with parts that are shown twice.
  Shown token_by_token = fresh();
  token_by_token.show(*alone.drafter, 0, 100);
  for (std::uint32_t i = 100; i < 200; ++i) {
    EXPECT_EQ(token_by_token.guesses(*alone.drafter, i % 4).size(), i % 4);
    token_by_token.show(*alone.drafter, i % 3 == 0 ? i - 5 : i, i + 1);
  }
  EXPECT_EQ(token_by_token.guesses(*alone.drafter, 5), right);
  // It has guessed from the last hidden state. Nothing is known of the next.
  EXPECT_TRUE(token_by_token.guesses(*alone.drafter, 5).empty());

  // Another text beside it, in the same batch.
  Shown first = fresh(), second(61, 8, test.width());
  first.show(*alone.drafter, 0, 200);
  second.show(*alone.drafter, 0, 60);
  first.drafts.most = 5;
  second.drafts.most = 3;
  Drafts* const wanted[] = {&second.drafts, &first.drafts};
  alone.drafter->propose(wanted);
  EXPECT_EQ(std::vector(first.drafts.drafted().begin(), first.drafts.drafted().end()), right);
  EXPECT_EQ(second.drafts.count, 3u);
}

// Positions count from there. What came before is not seen, as if the text had begun there.
TEST(HeadDrafter, BeginsAnewBehindAGap) {
  const HeadModel test("glm4");
  Alone alone(test);
  Shown whole(101, 3, test.width()), late(101, 3, test.width()), with_gap(101, 3, test.width());
  late.show(*alone.drafter, 40, 100);
  const auto right = late.guesses(*alone.drafter, 4);
  ASSERT_EQ(right.size(), 4u);
  with_gap.show(*alone.drafter, 0, 20);
  EXPECT_EQ(with_gap.guesses(*alone.drafter, 2).size(), 2u);
  with_gap.show(*alone.drafter, 40, 100);
  EXPECT_EQ(with_gap.guesses(*alone.drafter, 4), right);
  whole.show(*alone.drafter, 0, 100);
  EXPECT_NE(whole.guesses(*alone.drafter, 4), right) << "a head that does not attend shows nothing here";
}

TEST(HeadDrafter, GuessesNothingWithoutTheLastHiddenState) {
  const HeadModel test("glm4");
  Alone alone(test);
  Shown shown(50, 3, test.width());
  shown.drafts.text = shown.tokens;
  EXPECT_TRUE(shown.guesses(*alone.drafter, 4).empty());
  shown.show(*alone.drafter, 0, 20);
  shown.drafts.text = std::span(shown.tokens).first(25);
  EXPECT_TRUE(shown.guesses(*alone.drafter, 4).empty());
}

// A choice that does not draft costs nothing but its prompt.
TEST(HeadDrafter, ComputesNothingForAChoiceThatDoesNotDraft) {
  const HeadModel test("glm4");
  Alone alone(test, {.context = 1024, .max_sequences = 4});
  Shown shown(1001, 3, test.width());
  shown.show(*alone.drafter, 0, 100);
  const std::uint64_t prompt = alone.drafter->computed_pairs();
  EXPECT_GT(prompt, 0u);
  for (std::uint32_t i = 100; i < 1000; ++i) shown.show(*alone.drafter, i, i + 1);
  EXPECT_LE(alone.drafter->computed_pairs(), prompt + 64);
  EXPECT_EQ(shown.guesses(*alone.drafter, 3).size(), 3u);
}

// The pool has room for a few sequences. Those that have not drafted for longest begin anew.
TEST(HeadDrafter, GivesUpSequencesWhenThereIsNoRoom) {
  const HeadModel test("qwen35");
  Alone alone(test, {.context = 128, .max_sequences = 2});
  std::vector<std::unique_ptr<Shown>> all;
  for (std::uint32_t i = 0; i < 6; ++i) {
    all.push_back(std::make_unique<Shown>(121, i + 1, test.width()));
    all.back()->show(*alone.drafter, 0, 100);
  }
  for (std::uint32_t step = 100; step < 120; ++step) {
    for (const auto& each : all) {
      EXPECT_EQ(each->guesses(*alone.drafter, 2).size(), 2u);
      each->show(*alone.drafter, step, step + 1);
    }
  }
  all.erase(all.begin(), all.begin() + 4);
  for (const auto& each : all) EXPECT_EQ(each->guesses(*alone.drafter, 2).size(), 2u);
}

// Longer than its pool: it begins anew.
TEST(HeadDrafter, GoesOnWhereItsContextEnds) {
  const HeadModel test("glm4");
  Alone alone(test, {.context = 64, .max_sequences = 1});
  Shown shown(301, 3, test.width());
  shown.show(*alone.drafter, 0, 40);
  for (std::uint32_t i = 40; i < 300; ++i) {
    EXPECT_EQ(shown.guesses(*alone.drafter, 4).size(), 4u) << i;
    shown.show(*alone.drafter, i, i + 1);
  }
}

TEST(HeadDrafter, TakesNothingFromTheHeapInSteadyState) {
  const HeadModel test("glm4");
  Alone alone(test);
  Shown shown(201, 3, test.width());
  shown.show(*alone.drafter, 0, 30);
  const auto some = [&](std::uint32_t begin, std::uint32_t end) {
    Drafts* const wanted[] = {&shown.drafts};
    for (std::uint32_t i = begin; i < end; ++i) {
      shown.drafts.most = 3;
      alone.drafter->propose(wanted);
      shown.show(*alone.drafter, i, i + 1);
    }
  };
  some(30, 100);
  const std::uint64_t before = quire::testing::allocations;
  some(100, 180);
  EXPECT_EQ(quire::testing::allocations, before);
}

TEST(Heads, AreRefusedForAModelWithoutThem) {
  auto model = *model::Model::load(QUIRE_SOURCE_DIR "/testdata/golden/qwen35/model.gguf");
  const HostOptions options{.backend = head_backend(), .context = 64, .max_sequences = 1, .heads = true};
  const auto host = HostedModel::create(std::move(model), options);
  ASSERT_FALSE(host.has_value());
  EXPECT_NE(host.error().message.find("has no layer that guesses further tokens"), std::string::npos);
}

class HeadOfEach : public ::testing::TestWithParam<const char*> {};

// Knows the answer, guesses wrong now and then, and keeps what it is shown of the only choice.
class Witness final : public Drafter {
 public:
  explicit Witness(std::vector<Token> whole) : text(std::move(whole)) {}
  void propose(std::span<Drafts* const> wanted) override {
    Drafts& drafts = *wanted[0];
    const auto rest = std::span<const Token>(text).subspan(drafts.text.size());
    drafts.count = std::min(drafts.most, static_cast<std::uint32_t>(rest.size()));
    std::ranges::copy(rest.first(drafts.count), drafts.tokens.begin());
    if (drafts.count > 0 && ++proposals_ % 2 == 0) drafts.tokens[proposals_ / 2 % drafts.count] ^= 1;
  }
  double expected(std::uint32_t) const override { return 0.5; }
  bool observes() const override { return true; }
  void observe(Drafts& drafts, std::uint32_t position, const HostRows& hidden) override {
    EXPECT_GT(drafts.text.size(), position + hidden.rows);
    for (std::uint32_t i = 0; i < hidden.rows; ++i) {
      std::vector<float> row(hidden.row(i).begin(), hidden.row(i).end());
      const auto [at, is_new] = seen.try_emplace(position + i, row);
      EXPECT_TRUE(is_new || at->second == row) << "what is computed twice is the same";
    }
  }
  std::vector<Token> text;
  std::map<std::uint32_t, std::vector<float>> seen;  // by position

 private:
  std::uint32_t proposals_ = 0;
};

// They are those of the text itself, bit by bit, whatever was drafted, redone or suspended beside it.
TEST_P(HeadOfEach, SeesTheHiddenStatesOfTheText) {
  const HeadModel test(GetParam());
  std::vector<Token> text = tokens_of(50, 4);
  const auto answer = [&](const std::shared_ptr<Drafter>& drafter) {
    HeadHost host(test,
                  {.context = 160,
                   .max_sequences = 2,
                   .step_tokens = 24,
                   .engine = {.drafter = drafter, .draft_tokens = 4, .draft_always = true}},
                  false);
    const auto heard = std::make_shared<Collector>();
    EXPECT_TRUE(host->engine().submit(greedy(tokens_of(50, 4), 60), heard).has_value());
    while (host->engine().step()) {
    }
    if (drafter) {
      const EngineStats stats = host->engine().stats();
      EXPECT_GT(stats.accepted_tokens, 0u);
      EXPECT_GT(stats.drafted_tokens, stats.accepted_tokens);
    }
    return heard->choices.at(0).tokens;
  };
  const std::vector<Token> plain = answer(nullptr);
  text.insert(text.end(), plain.begin(), plain.end());
  const auto witness = std::make_shared<Witness>(text);
  EXPECT_EQ(answer(witness), plain);
  ASSERT_GE(witness->seen.size(), text.size() - 8);

  const auto image = test.image();
  const auto backend = *make_backend(head_backend());  // its memory is the model's: it goes last
  auto model = *model::Model::create(*gguf::File::from_memory(image, "test"));
  ASSERT_TRUE(model->prepare(*backend, 160, 1).has_value());
  PoolConfig config{.layout = *model->layout(16, ElementType::F16), .max_sequences = 1, .max_tokens = 160};
  config.budget_bytes = 8 << 20;
  const auto pool = *SequencePool::create(backend->device(), config);
  auto runner = *model::Runner::create(*model, *pool);
  Batch batch = runner.make_batch();
  batch.add(pool->create({})->id, text, Logits::Last);
  ASSERT_TRUE(pool->reserve(batch.entries()).has_value());
  const auto output = runner.forward(batch, {.jobs = {}, .logits = {}, .every_hidden = true});
  ASSERT_TRUE(output.has_value());
  for (const auto& [position, row] : witness->seen) {
    EXPECT_TRUE(std::ranges::equal(output->every_hidden.row(position), row)) << position;
  }
}

// The head knows the next token. So a head that is not asked, or not given the right tokens, fails here.
TEST_P(HeadOfEach, ThatKnowsTheNextTokenIsRightWithEveryGreedyGuess) {
  const HeadModel test = HeadModel(GetParam()).knowing();
  const auto run = [&](bool heads) {
    HeadHost host(test, {.context = 160, .max_sequences = 6, .engine = {.draft_tokens = 4, .draft_always = true}},
                  heads);
    std::vector<std::shared_ptr<Collector>> heard;
    for (std::uint32_t i = 0; i < 10; ++i) {
      heard.push_back(std::make_shared<Collector>());
      EXPECT_TRUE(host->engine().submit(greedy(tokens_of(5 + 7 * i, i), 40), heard.back()).has_value());
    }
    while (host->engine().step()) {
    }
    std::vector<Seen> all;
    for (const auto& each : heard) {
      all.push_back(seen(each->choices.at(0)));
      EXPECT_EQ(each->usage.drafted_tokens > 0, heads);
    }
    return std::pair(all, host->engine().stats());
  };
  const auto [plain, without] = run(false);
  const auto [drafted, with] = run(true);
  EXPECT_EQ(drafted, plain);
  EXPECT_GT(with.drafted_tokens, 100u);
  EXPECT_EQ(with.accepted_tokens, with.drafted_tokens);
  EXPECT_LT(with.steps, without.steps * 2 / 3);
}

INSTANTIATE_TEST_SUITE_P(Golden, HeadOfEach, ::testing::ValuesIn(model::testing::kHeadModels),
                         [](const auto& run) { return std::string(run.param); });

}  // namespace
}  // namespace quire::engine::testing
