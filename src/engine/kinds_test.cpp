// Real models with every kind of memory, and a second prompt that parts from the first one at any place. Its answer has
// the bits of an engine without a cache, and hardly more is computed again than what differs.
#include <algorithm>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "quire/engine/engine_testing.h"
#include "quire/engine/hosted_testing.h"

namespace quire::engine::testing {
namespace {

constexpr std::uint32_t kPrompt = 200, kTail = 40, kAnswer = 4, kShifts = 64;

struct Memory {
  const char* name;  // of a golden model
  bool attention, window, latent, recurrent, ssm;
};
constexpr Memory kMemories[] = {
    {"llama", true, false, false, false, false},             // keys and values
    {"gemma2", true, true, false, false, false},             // with a window in some layers
    {"gpt-oss", true, true, false, false, false},            // with a window, sinks and experts
    {"deepseek2", true, false, true, false, false},          // one row for key and value
    {"mamba", false, false, false, true, true},              // Mamba-1
    {"mamba2", false, false, false, true, true},             // Mamba-2
    {"jamba", true, false, false, true, true},               // Mamba-1 and attention
    {"granite-moe-hybrid", true, false, false, true, true},  // Mamba-2 and attention
    {"falcon-h1", true, false, false, true, true},           // Mamba-2 and attention in the same layer
    {"qwen35", true, false, false, true, true},              // gated delta rule and attention
    {"lfm2", true, false, false, true, false},               // short convolution and attention
};

class EveryKindOfMemory : public ::testing::TestWithParam<std::tuple<BackendKind, Memory>> {
 protected:
  static std::unique_ptr<HostedModel> host(bool prefix_cache) {
    const auto& [kind, memory] = GetParam();
    return host_file("testdata/golden/" + std::string(memory.name) + "/model.gguf", kind,
                     {.context = kPrompt + kTail + kAnswer, .max_sequences = 2, .prefix_cache = prefix_cache});
  }
  // The answer, and the number of tokens that were reused for it.
  static std::pair<Seen, std::uint32_t> answer(HostedModel& on, const std::vector<Token>& prompt) {
    Request request = greedy(prompt, kAnswer);
    request.logprobs = 0;
    const auto heard = std::make_shared<Collector>();
    const auto id = on.engine().submit(std::move(request), heard);
    EXPECT_TRUE(id.has_value()) << id.error().message;
    while (on.engine().step()) {
    }
    EXPECT_EQ(heard->problem, "");
    return {seen(heard->choices.at(0)), heard->usage.hit.tokens};
  }
};

TEST_P(EveryKindOfMemory, LosesNothingBeyondTheShiftAndABlock) {
  const Memory& memory = std::get<1>(GetParam());
  const auto cold = host(false), warm = host(true);
  const std::uint32_t vocabulary = warm->model().hyperparameters().vocabulary;
  const std::uint32_t block = warm->pool().layout().block_size;
  // What the first request leaves in whole pages. The block is the unit here, so a page with fewer tokens is not kept.
  const std::uint32_t kept = (kPrompt + kAnswer - 1) / block * block;
  const std::vector<Token> first = some_tokens(kPrompt, 1, vocabulary);
  for (const std::uint32_t tail : {0u, kTail}) {
    for (std::uint32_t shift = 0; shift < kShifts; ++shift) {
      SCOPED_TRACE(fmt::format("shift {}, tail {}", shift, tail));
      std::vector<Token> second(first.begin(), first.end() - shift);  // shares all but the last `shift` tokens
      for (std::uint32_t i = 0; i < shift + tail; ++i) {
        const Token before = i < shift ? first[kPrompt - shift + i] : 0;
        second.push_back(static_cast<Token>((static_cast<std::uint32_t>(before) + 1 + i) % vocabulary));
      }
      warm->pool().drop_cache();
      answer(*warm, first);
      const auto [got, reused] = answer(*warm, second);
      EXPECT_EQ(got, answer(*cold, second).first);
      EXPECT_EQ(got.tokens.size(), kAnswer);
      // The last token of a prompt is always computed.
      const std::uint32_t shared = std::min(kPrompt - shift, static_cast<std::uint32_t>(second.size()) - 1);
      EXPECT_LE(reused, shared);
      if (memory.window || memory.recurrent) {
        EXPECT_LE(shared - reused, memory.recurrent ? shift + block : block);
      } else {
        EXPECT_EQ(reused, std::min(shared, kept)) << "attention to all tokens loses nothing that was kept";
      }
    }
  }
  const auto sound = warm->pool().check_integrity();
  EXPECT_TRUE(sound.has_value()) << sound.error();
}

TEST_P(EveryKindOfMemory, IsWhatTheListAboveSays) {
  const Memory& memory = std::get<1>(GetParam());
  const auto hosted = host(true);
  const StateLayout& layout = hosted->pool().layout();
  EXPECT_EQ(layout.has_attention(), memory.attention);
  EXPECT_EQ(std::ranges::any_of(layout.groups, [](const PageShape& pages) { return pages.window > 0; }), memory.window);
  EXPECT_EQ(std::ranges::any_of(layout.groups, [](const PageShape& pages) { return pages.planes == 1; }),
            memory.latent);
  EXPECT_EQ(layout.has_recurrent(), memory.recurrent);
  EXPECT_EQ(layout.recurrent.ssm_bytes > 0, memory.ssm);
}

INSTANTIATE_TEST_SUITE_P(Golden, EveryKindOfMemory,
                         ::testing::Combine(::testing::ValuesIn(best_backends()), ::testing::ValuesIn(kMemories)),
                         [](const auto& run) {
                           std::string name = std::get<0>(run.param).name + "_" + std::get<1>(run.param).name;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace quire::engine::testing
