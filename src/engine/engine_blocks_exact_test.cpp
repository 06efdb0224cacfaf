// Answers do not depend on the size of a block: the tokens and log-probabilities of recurrent and hybrid models are the
// same bits with blocks of 16 and of 64 tokens, cold, and where a request resumes from a checkpoint inside a block.
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "quire/backend/factory.h"
#include "quire/engine/model_executor.h"
#include "quire/engine/weightless_testing.h"
#include "quire/model/model.h"

namespace quire::engine::testing {
namespace {

constexpr std::uint32_t kUnit = 16;

std::vector<Token> random_tokens(std::uint32_t seed, std::size_t length, std::uint32_t vocabulary) {
  std::mt19937 random(seed);
  std::vector<Token> tokens(length);
  for (Token& token : tokens) token = static_cast<Token>(random() % vocabulary);
  return tokens;
}

// A model, a pool with blocks of this size, and an engine.
struct Host {
  Host(const std::string& file, std::uint32_t block_size, bool prefix_cache = true) {
    backend = make_backend({.threads = 2}).value();
    model = model::Model::load(std::string(QUIRE_SOURCE_DIR) + "/" + file).value();
    EXPECT_TRUE(model->prepare(*backend, 64, 16).has_value());
    PoolConfig config{.layout = model->layout(block_size, ElementType::F16).value(),
                      .max_sequences = 16,
                      .max_tokens = 256,
                      .prefix_cache = prefix_cache,
                      .checkpoint_unit = kUnit};
    for (const PageShape& shape : config.layout.groups) config.budget_bytes += 8000 / block_size * shape.page_bytes();
    config.budget_bytes += 200 * config.layout.recurrent.bytes();
    pool = SequencePool::create(backend->device(), config).value();
    executor = ModelExecutor::create(*model, *pool).value();
    engine = Engine::create(*executor, *pool, {.check_integrity = true}).value();
  }
  std::shared_ptr<Collector> answer(const std::vector<Token>& prompt) {
    Request request{.prompt = prompt, .max_tokens = 12};
    request.sampling = {.temperature = 1, .seed = 5};
    request.logprobs = 0;
    auto heard = std::make_shared<Collector>();
    EXPECT_TRUE(engine->submit(std::move(request), heard).has_value());
    while (engine->step()) {
    }
    EXPECT_EQ(heard->problem, "");
    return heard;
  }

  std::unique_ptr<Backend> backend;
  std::unique_ptr<model::Model> model;
  std::unique_ptr<SequencePool> pool;
  std::unique_ptr<ModelExecutor> executor;
  std::unique_ptr<Engine> engine;
};

std::pair<std::vector<Token>, std::vector<std::uint32_t>> bits_of(const Collector& heard) {
  std::vector<std::uint32_t> bits(heard.choices.at(0).logprobs.size());
  std::memcpy(bits.data(), heard.choices[0].logprobs.data(), bits.size() * sizeof(float));
  return {heard.choices[0].tokens, bits};
}

class BlocksExact : public ::testing::TestWithParam<std::string> {};

TEST_P(BlocksExact, AnAnswerFromInsideABlockHasTheSameBits) {
  Host alone(GetParam(), 16, false);
  const std::uint32_t vocabulary = alone.model->hyperparameters().vocabulary;
  const std::vector<Token> first = random_tokens(1, 70, vocabulary);
  std::vector<std::vector<Token>> prompts{first};
  for (const std::size_t shared : {25, 50, 66, 40, 70}) {
    std::vector<Token> prompt(first.begin(), first.begin() + static_cast<std::ptrdiff_t>(shared));
    for (const Token token : random_tokens(static_cast<std::uint32_t>(shared), 40, vocabulary)) prompt.push_back(token);
    prompts.push_back(std::move(prompt));
  }
  std::vector<std::uint32_t> found_with_16;
  for (const std::uint32_t block_size : {16u, 64u, 128u}) {
    Host host(GetParam(), block_size);
    std::vector<std::uint32_t> found;
    for (const auto& prompt : prompts) {
      const auto heard = host.answer(prompt);
      ASSERT_EQ(bits_of(*heard).first.size(), 12u);
      EXPECT_EQ(bits_of(*heard), bits_of(*alone.answer(prompt))) << "blocks of " << block_size;
      found.push_back(heard->usage.hit.tokens);
    }
    if (block_size == 16) found_with_16 = found;
    EXPECT_EQ(found, found_with_16) << "blocks of " << block_size;
    EXPECT_EQ(found[1], 16u);  // shares 25 tokens
    EXPECT_EQ(host.pool->stats().parts_reused > 2, block_size > kUnit);
  }
}

INSTANTIATE_TEST_SUITE_P(Recurrent, BlocksExact,
                         ::testing::Values("testdata/golden/granite-hybrid/model.gguf",
                                           "testdata/golden/mamba2/model.gguf", "models/quire-demo-mamba2-q8_0.gguf",
                                           "models/quire-demo-hybrid-q8_0.gguf"));

}  // namespace
}  // namespace quire::engine::testing
