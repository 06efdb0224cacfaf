// Real models under load, on every kind of device of this machine: random requests with forks, priorities and
// cancellations, in a pool for a few of them. Every answer must have the bits of the same request alone, and nothing
// may be left in the pool. soak_test.cpp does this with a model without weights, which no GPU can run.
// QUIRE_SOAK_SECONDS sets how long all models together take (tests/gpu/run). Without it, a fixed number of requests is
// sent.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "quire/engine/hosted_testing.h"
#include "quire/engine/pool_size.h"
#include "quire/model/model_files_testing.h"

namespace quire::engine::testing {
namespace {

// One of each kind of memory, and some of them with experts.
const std::string kModels[] = {"models/quire-demo-llama-q8_0.gguf",     // keys and values
                               "models/quire-demo-mamba2-q8_0.gguf",    // states
                               "models/quire-demo-hybrid-q8_0.gguf",    // both
                               "testdata/golden/gpt-oss/model.gguf",    // a window in some layers; sinks
                               "testdata/golden/deepseek2/model.gguf",  // one row for key and value
                               "testdata/golden/jamba/model.gguf",      // Mamba-1 and attention
                               "testdata/golden/falcon-h1/model.gguf",  // Mamba-2 and attention in the same layer
                               "testdata/golden/qwen35moe/model.gguf",  // gated delta rule and attention
                               "testdata/golden/lfm2moe/model.gguf"};   // short convolution and attention
constexpr std::uint32_t kContext = 224, kSequences = 12, kStepTokens = 48;
constexpr std::uint32_t kOutstanding = 24;  // requests
constexpr std::uint32_t kFit = 4;           // sequences of the whole context that fit into the pool
constexpr std::uint32_t kQuestions = 16;    // different requests
constexpr std::uint64_t kRequests = 60;     // at least, for each model

// Zero: as long as kRequests take.
std::chrono::milliseconds time_for_a_model() {
  const char* const seconds = std::getenv("QUIRE_SOAK_SECONDS");
  if (seconds == nullptr) return {};
  return std::chrono::milliseconds(1000 * std::strtoull(seconds, nullptr, 10) / std::size(kModels));
}

class DeviceSoak : public ::testing::TestWithParam<std::tuple<BackendKind, std::string>> {
 protected:
  static std::unique_ptr<HostedModel> host(HostOptions options) {
    const auto& [kind, file] = GetParam();
    options.context = kContext;
    options.step_tokens = kStepTokens;
    return host_file(file, kind, options);
  }
  std::uint32_t below(std::uint64_t n) { return static_cast<std::uint32_t>(random_() % n); }

  // Questions, some of which begin alike, and their answers when nothing else runs.
  struct Question {
    Request request;
    std::vector<Seen> right;  // by choice
  };
  void make_questions() {
    const auto alone = host({.max_sequences = 1, .prefix_cache = false});
    const std::uint32_t vocabulary = alone->model().hyperparameters().vocabulary;
    std::vector<std::vector<Token>> prefixes(4);
    const auto extend = [&](std::vector<Token>& tokens, std::uint32_t count) {
      while (count-- > 0) tokens.push_back(static_cast<Token>(below(vocabulary)));
    };
    for (auto& prefix : prefixes) extend(prefix, 16 + below(64));
    for (std::uint32_t i = 0; i < kQuestions; ++i) {
      Question question;
      Request& request = question.request;
      request.prompt = prefixes[below(prefixes.size())];
      extend(request.prompt, 1 + below(24));
      request.max_tokens = 8 + below(80);
      request.n = i % 4 == 3 ? 2 + below(2) : 1;
      request.logprobs = 0;
      request.sampling = {.temperature = i % 2 == 0 ? 0.0 : 1.0, .top_k = 40, .top_p = 0.95, .seed = random_()};
      for (std::uint32_t c = 0; c < request.n; ++c) {
        Request one = request;
        one.n = 1;
        one.sampling.seed += c;
        const auto heard = std::make_shared<Collector>();
        ASSERT_TRUE(alone->engine().submit(std::move(one), heard).has_value());
        while (alone->engine().step()) {
        }
        question.right.push_back(seen(heard->choices.at(0)));
        ASSERT_EQ(question.right.back().finish, Finish::Length) << heard->choices[0].error;
      }
      questions_.push_back(std::move(question));
    }
  }

  struct Open {
    const Question* question;
    std::shared_ptr<Collector> heard = std::make_shared<Collector>();
  };
  void ask(HostedModel& on) {
    Open one{&questions_[below(questions_.size())]};
    Request request = one.question->request;
    request.priority = static_cast<std::int32_t>(below(3)) - 1;
    request.name_space = below(2);
    request.reuse = below(8) != 0;
    const auto id = on.engine().submit(std::move(request), one.heard);
    ASSERT_TRUE(id.has_value()) << id.error().message;
    open_.emplace(*id, std::move(one));
  }
  void compare(const Open& one) {
    ASSERT_EQ(one.heard->problem, "");
    ASSERT_EQ(one.heard->choices.size(), one.question->right.size());
    for (std::size_t c = 0; c < one.heard->choices.size(); ++c) {
      const Seen got = seen(one.heard->choices[c]);
      Seen right = one.question->right[c];
      if (got.finish == Finish::Cancelled) {
        ++cut_;
        ASSERT_LE(got.tokens.size(), right.tokens.size());
        right.tokens.resize(got.tokens.size());
        right.logprobs.resize(got.logprobs.size());
        right.finish = Finish::Cancelled;
      }
      ASSERT_EQ(got, right) << "choice " << c << " " << one.heard->choices[c].error;
    }
  }
  void take_ended() {
    for (auto at = open_.begin(); at != open_.end();) {
      if (!at->second.heard->ended) {
        ++at;
        continue;
      }
      ASSERT_NO_FATAL_FAILURE(compare(at->second));
      at = open_.erase(at);
      ++ended_;
    }
  }
  static void expect_sound(const HostedModel& on) {
    const auto sound = on.pool().check_integrity();
    ASSERT_TRUE(sound.has_value()) << sound.error();
  }

  std::mt19937_64 random_{11};
  std::vector<Question> questions_;
  std::map<RequestId, Open> open_;
  std::uint64_t ended_ = 0, cut_ = 0;
};

TEST_P(DeviceSoak, EveryAnswerHasTheBitsOfTheSameRequestAloneInAPoolForAFewOfThem) {
  ASSERT_NO_FATAL_FAILURE(make_questions());
  const auto layout = host({.max_sequences = 1})->pool().layout();
  const auto one = bytes_for(layout, {.tokens = kContext, .chunk = kStepTokens});
  ASSERT_TRUE(one.has_value()) << one.error().message;
  const auto tight = host({.memory = kFit * *one, .max_sequences = kSequences, .engine = {.queue_limit = 1000}});

  const Clock::time_point until = Clock::now() + time_for_a_model();
  std::uint64_t asked = 0, steps = 0;
  for (;;) {
    while (open_.size() < kOutstanding && (asked < kRequests || Clock::now() < until)) {
      ASSERT_NO_FATAL_FAILURE(ask(*tight));
      ++asked;
    }
    if (open_.empty()) break;
    if (below(24) == 0) tight->engine().cancel(std::next(open_.begin(), below(open_.size()))->first);
    const bool moved = tight->engine().step();
    ASSERT_TRUE(moved || tight->engine().idle()) << "nobody gets on";
    ASSERT_NO_FATAL_FAILURE(take_ended());
    if (++steps % 200 == 0) {
      ASSERT_NO_FATAL_FAILURE(expect_sound(*tight));
    }
  }

  EXPECT_TRUE(tight->engine().idle());
  const EngineStats stats = tight->engine().stats();
  const PoolStats pool = tight->pool().stats();
  EXPECT_EQ(ended_, asked);
  EXPECT_EQ(pool.sequences, 0u);
  for (const ObjectCounts& pages : pool.pages) EXPECT_EQ(pages.held, 0u);
  EXPECT_EQ(pool.states.held, 0u);
  EXPECT_EQ(stats.host_bytes, 0u);
  EXPECT_EQ(stats.device_errors, 0u);
  expect_sound(*tight);
  // The test is only a soak if memory was short.
  const std::uint64_t suspensions = stats.suspensions_by_copy + stats.suspensions_by_recompute;
  EXPECT_GT(suspensions, 0u);
  EXPECT_GT(cut_, 0u);
  // A pool as small as this keeps hardly a checkpoint, so a recurrent model may find nothing to reuse.
  if (!layout.has_recurrent()) {
    EXPECT_GT(stats.cached_tokens, 0u);
  }
  fmt::print(
      "{}, {}: {} requests, {} steps, {} tokens, {:.0f} % of prompts reused, {} choices cut off, {} suspensions ({} by "
      "copy)\n",
      std::get<0>(GetParam()).name, std::get<1>(GetParam()), ended_, stats.steps, stats.generated_tokens,
      100.0 * static_cast<double>(stats.cached_tokens) / static_cast<double>(stats.prompt_tokens), cut_, suspensions,
      stats.suspensions_by_copy);
}

INSTANTIATE_TEST_SUITE_P(
    Devices, DeviceSoak, ::testing::Combine(::testing::ValuesIn(best_backends()), ::testing::ValuesIn(kModels)),
    [](const auto& run) {
      return std::get<0>(run.param).name + "_" + model::testing::readable({std::get<1>(run.param), run.index});
    });

}  // namespace
}  // namespace quire::engine::testing
