// Picks the next token from a row of logits.
//
// The result is exactly defined (the arithmetic is in backend/sampling.h, and a GPU that follows it finds the same
// token):
//   1. Penalties and bias change the logits, in the order of the options. The biases of one token are added up first.
//   2. A token that the mask does not allow is left out, as if its logit were NaN.
//   3. Tokens are sorted by falling logit; equal logits by ascending id.
//   4. The weight of a token is exp(logit / temperature), as an integer: 2^40 for the first one.
//   5. The first `top_k` tokens stay. Of them stays the shortest prefix that has `top_p` of their weight. Of those stay
//      the tokens with at least `min_p` of the first token's weight.
//   6. A random number picks one of the remaining tokens by weight, in the order of their ids. It is a function of seed
//      and position only.
// So the tokens of a request do not depend on what else runs, or on how often it was suspended and resumed.
//
// Who may call: one thread at a time. Samplers that share a scratch buffer are called one at a time. Nothing is
//   allocated after the constructors.
// How it fails: sample() returns no token if all logits are NaN or no token is allowed. A NaN is never picked.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "quire/backend/host_sampling.h"
#include "quire/backend/sampling_job.h"
#include "quire/base/error.h"
#include "quire/base/shared_list.h"
#include "quire/state/ids.h"

namespace quire::engine {

inline constexpr std::size_t kMostBiases = 4096;

struct SamplerOptions {
  double temperature = 0.8;  // 0: greedy, always the first token
  std::uint32_t top_k = 40;  // 0: all
  double top_p = 0.95;       // 1: all; 0: only the first token
  double min_p = 0.05;       // 0: all
  std::uint64_t seed = 0;
  double repetition_penalty = 1;  // tokens in prompt or answer: divides positive logits, multiplies negative ones
  double presence_penalty = 0;    // subtracted once from the logits of tokens in the answer
  double frequency_penalty = 0;   // subtracted for each occurrence in the answer
  SharedList<std::pair<Token, float>> logit_bias;  // added; at most kMostBiases
};

// Fails if an option is out of range; the message names it.
Result<void> check(const SamplerOptions& options);

struct TokenLogprob {
  Token token = 0;
  float logprob = 0;
};

struct Sampled {
  std::optional<Token> token;  // empty: all logits are NaN, or the mask allows none
  float logprob = 0;           // the model's own, if requested
  std::span<const TokenLogprob> alternatives;
};

// How likely a given token is.
struct Scored {
  float logprob = 0;       // the model's own; NaN if all logits are
  std::uint32_t rank = 0;  // among all tokens, in the order of sampling; 1: the first
};

// Scratch buffers for sampling. All samplers of a thread can share one.
using SamplerScratch = sampling::Scratch;

class Sampler {
 public:
  Sampler() = default;
  // The caller has checked the options. `logprobs`: how many alternatives to report with each token; negative: no
  // log-probabilities at all. `most_tokens`: how many tokens prompt and answer can have; with penalties, room for as
  // many different ones is reserved.
  Sampler(const SamplerOptions& options, std::uint32_t vocabulary, std::int32_t logprobs = -1,
          std::uint32_t most_tokens = std::numeric_limits<std::uint32_t>::max());

  // The tokens that penalties depend on: those of the prompt, given once, and then those of the answer as it grows.
  // Without penalties these calls do nothing.
  void see_prompt(std::span<const Token> prompt);
  void see(Token token);

  // At positions before `until` these tokens are not picked while any other may be.
  void hold_back(std::span<const Token> tokens, std::uint64_t until);

  // Picks the token at `position` of the sequence. `logits` come from the token before it: [vocabulary], or fewer. The
  // alternatives are valid until the next call. `mask`: a bit for each token, the lowest bit of a word first; only
  // tokens whose bit is set are picked. Empty: all are allowed. Log-probabilities do not depend on it.
  Sampled sample(std::span<const float> logits, std::uint64_t position, SamplerScratch& scratch,
                 std::span<const std::uint32_t> mask = {});

  // The same for a backend that samples by itself: what it has to know to pick the same token (all but the row), and
  // the answer from what it has found. Lists of the job are valid until the next call.
  sampling::Job job(std::uint64_t position, std::span<const std::uint32_t> mask = {}) const;
  Sampled told(const sampling::Picked& picked);

  const SamplerOptions& options() const { return options_; }
  bool tells_logprobs() const { return logprobs_ >= 0; }
  // Whether what is picked depends on the tokens picked before, beside the logits.
  bool depends_on_answer() const { return penalizes_; }

 private:
  SamplerOptions options_;
  std::int32_t logprobs_ = -1;
  std::uint32_t vocabulary_ = 0;
  bool penalizes_ = false;
  sampling::Rule rule_;
  sampling::Penalties penalties_;
  // Sorted by token; empty without penalties. A choice often has a few hundred different tokens and a vocabulary
  // hundreds of thousands, so this is a list and not a table by token.
  std::vector<sampling::Seen> seen_;
  std::vector<std::pair<Token, float>> held_back_;  // the biases before held_until_
  std::uint64_t held_until_ = 0;
  std::vector<TokenLogprob> alternatives_;
};

// Looks up a token in a row of logits. `alternatives` gets the `count` most likely tokens of that row.
Scored score(std::span<const float> logits, Token token, std::int32_t count, SamplerScratch& scratch,
             std::vector<TokenLogprob>& alternatives);

}  // namespace quire::engine
