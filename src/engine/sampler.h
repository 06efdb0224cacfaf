// Picks the next token from a row of logits.
//
// What it picks is defined, whatever the machine does to get there: penalties and bias change the logits, in the order
// of the options; tokens stand in the order of falling logits, equal
// ones in the order of their ids; the temperature turns logits into weights exp(logit / temperature); of the order the
// first `top_k` stay, then the shortest beginning that has `top_p` of their weight, then those with at least `min_p` of
// the first one's weight; and the random number, which is a function of seed and position and nothing else, falls on
// one of them by weight. So a request's tokens do not depend on what else runs, or on how often it was stopped and
// resumed.
//
// Who may call: one thread at a time, and of the samplers that share a scratch one at a time. Nothing is allocated
//   after the constructors.
// How it fails: sample() gives nothing where no logit is a number. A NaN is never picked.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "quire/base/error.h"
#include "quire/state/ids.h"

namespace quire::engine {

struct SamplerOptions {
  double temperature = 0.8;  // 0: always the first of the order
  std::uint32_t top_k = 40;  // 0: all
  double top_p = 0.95;       // 1: all
  double min_p = 0.05;       // 0: all
  std::uint64_t seed = 0;
  double repetition_penalty = 1;  // divides (or, below zero, multiplies) logits of tokens seen, in prompt or answer
  double presence_penalty = 0;    // taken from logits of tokens that the answer has
  double frequency_penalty = 0;   // the same, for each time
  std::vector<std::pair<Token, float>> logit_bias;  // added
};

// Refuses what is out of range, by name.
Result<void> check(const SamplerOptions& options);

struct TokenLogprob {
  Token token = 0;
  float logprob = 0;
};

struct Sampled {
  std::optional<Token> token;  // none: no logit is a number
  float logprob = 0;           // the model's, where asked for
  std::span<const TokenLogprob> alternatives;
};

// What sampling needs room for, whatever the request: shared by all samplers of a thread.
class SamplerScratch {
 public:
  explicit SamplerScratch(std::uint32_t vocabulary);

 private:
  friend class Sampler;
  struct Candidate {
    float logit;
    Token id;
    double weight;
  };
  static bool behind(const Candidate& a, const Candidate& b);  // in the order
  std::vector<Candidate> candidates_;
  std::vector<float> logits_;
};

class Sampler {
 public:
  Sampler() = default;
  // The options have been checked. `logprobs`: how many alternatives are wanted with each token; negative: not even its
  // own log-probability.
  Sampler(const SamplerOptions& options, std::uint32_t vocabulary, std::int32_t logprobs = -1);

  // Tokens of the prompt, and of the answer as it grows: what the penalties look at. Cheap where there are none.
  void see_prompt(std::span<const Token> prompt);
  void see(Token token);

  // The token at `position` of its sequence, from the logits of the token before it: [vocabulary], or fewer. The
  // alternatives are valid until the next call.
  Sampled sample(std::span<const float> logits, std::uint64_t position, SamplerScratch& scratch);

  const SamplerOptions& options() const { return options_; }

 private:
  using Candidate = SamplerScratch::Candidate;
  bool penalizes() const { return !seen_.empty(); }
  std::span<const float> adjusted(std::span<const float> logits, SamplerScratch& scratch) const;
  std::optional<Token> pick(std::span<const float> logits, std::uint64_t position, SamplerScratch& scratch) const;
  void tell_logprobs(std::span<const float> logits, Sampled& sampled, SamplerScratch& scratch);

  SamplerOptions options_;
  std::int32_t logprobs_ = -1;
  // By token, where penalties want it: how often the answer has it, and whether the prompt does.
  static constexpr std::uint32_t kInPrompt = 1u << 31;
  std::vector<std::uint32_t> seen_;
  std::vector<TokenLogprob> alternatives_;
};

// Evenly distributed in [0, 1).
double random_number(std::uint64_t seed, std::uint64_t position);

}  // namespace quire::engine
