// Prompts and requests for engine tests on the weightless model.
#pragma once

#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "quire/engine/weightless_testing.h"

namespace quire::engine::testing {

using Options = Fixture::Options;

inline std::vector<Token> some_tokens(std::uint32_t count, std::uint64_t seed = 1, std::uint32_t vocabulary = 32) {
  std::vector<Token> tokens;
  for (std::uint32_t i = 0; i < count; ++i)
    tokens.push_back(static_cast<Token>(scramble(seed * 1000003 + i) % vocabulary));
  return tokens;
}

inline Request greedy(std::vector<Token> prompt, std::uint32_t max_tokens) {
  Request request{.prompt = std::move(prompt), .max_tokens = max_tokens};
  request.sampling.temperature = 0;
  return request;
}

inline Request seeded(std::vector<Token> prompt, std::uint32_t max_tokens, std::uint64_t seed) {
  Request request{.prompt = std::move(prompt), .max_tokens = max_tokens};
  request.sampling = {.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0, .seed = seed};
  return request;
}

// Maps tokens to letters: 'a' is token 0.
class Letters final : public TextStream {
 public:
  void push(Token token, std::string& out) override { out += static_cast<char>('a' + token); }
  void flush(std::string& out) override { out += '.'; }
};

// A suite that runs on every kind of model. Each test program that uses it instantiates it.
class EngineOnEachKind : public ::testing::TestWithParam<Kind> {};
// The same, without the kind whose sequences do not grow (recurrent only).
class EngineOnGrowingKinds : public ::testing::TestWithParam<Kind> {};
inline std::string kind_name(const ::testing::TestParamInfo<Kind>& kind) { return name(kind.param); }

}  // namespace quire::engine::testing
