// Decode does not allocate: from the second token on, this test counts every heap allocation in engine, sampler, model,
// pool and stream decoder.
#include <memory>

#include <gtest/gtest.h>

#include "quire/base/counted_heap_testing.h"
#include "quire/cli/ask.h"
#include "quire/cli/cli_testing.h"
#include "quire/cli/load.h"
#include "quire/cli/output.h"
#include "quire/cli/terminal_text.h"

namespace quire::cli {
namespace {

using quire::testing::allocations;

class NullOutput : public Output {
 public:
  std::error_code write(std::string_view text) override {
    bytes += text.size();
    return {};
  }
  std::size_t bytes = 0;
};

class AskHeap : public ::testing::TestWithParam<std::string> {};

TEST_P(AskHeap, NothingIsAllocatedForAToken) {
  for (const bool cache : {false, true}) {
    for (const double temperature : {0.0, 1.0}) {
      auto model = model::Model::load(testing::demo_model(GetParam()));
      ASSERT_TRUE(model);
      engine::HostOptions options = one_sequence();
      options.backend.threads = 2;
      options.context = 1024;
      options.prefix_cache = cache;
      options.checkpoints = cache ? 4 : 0;
      auto host = *engine::HostedModel::create(std::move(*model), options);
      const auto tokenizer = *text::Tokenizer::from_gguf(host->model().file());
      const auto ids = *tokenizer.encode("Once upon a time there was");
      NullOutput out;
      Style terminal;
      terminal.terminal = true;
      std::uint64_t after_first = 0, last = 0;
      int tokens = 0;
      const auto answered =
          ask(*host, tokenizer,
              {.prompt = {ids.begin(), ids.end()}, .limit = 300, .sampling = {.temperature = temperature, .seed = 1}},
              {}, [&](text::TokenId token, std::string_view text) {
                if (token == text::kNoToken) return true;
                (void)write_text(out, terminal, text);
                if (++tokens == 1) after_first = allocations;
                last = allocations;
                return true;
              });
      ASSERT_TRUE(answered) << answered.error().message;
      EXPECT_GT(answered->decode.tokens, 50u);
      EXPECT_GT(out.bytes, 100u);
      EXPECT_EQ(last - after_first, 0u) << GetParam() << " at temperature " << temperature;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Demo, AskHeap, ::testing::Values("llama", "mamba2", "hybrid"),
                         [](const auto& kind) { return kind.param; });

TEST(AskHeap, TheCounterCounts) {
  const std::uint64_t before = allocations;
  auto something = std::make_unique<int>(1);
  EXPECT_EQ(*something, 1);
  EXPECT_EQ(allocations - before, 1u);
}

}  // namespace
}  // namespace quire::cli
