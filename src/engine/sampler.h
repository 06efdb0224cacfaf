// Picks the next token from a row of logits.
//
// What it picks is defined, whatever the machine does to get there: tokens stand in the order of falling logits, equal
// ones in the order of their ids; the temperature turns logits into weights exp(logit / temperature); of the order the
// first `top_k` stay, then the shortest beginning that has `top_p` of their weight, then those with at least `min_p` of
// the first one's weight; and the random number, which is a function of seed and position and nothing else, falls on
// one of them by weight. So a request's tokens do not depend on what else runs, or on how often it was stopped and
// resumed.
//
// Who may call: one thread at a time. Nothing is allocated after the constructor.
// How it fails: sample() gives nothing where no logit is a number. A NaN is never picked.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
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
};

// Refuses what is out of range, by name.
Result<void> check(const SamplerOptions& options);

class Sampler {
 public:
  // The options have been checked.
  Sampler(const SamplerOptions& options, std::uint32_t vocabulary);

  // The token at `position` of its sequence, from the logits of the token before it: [vocabulary], or fewer.
  std::optional<Token> sample(std::span<const float> logits, std::uint64_t position);

  const SamplerOptions& options() const { return options_; }

 private:
  struct Candidate {
    float logit;
    Token id;
    double weight;
  };
  static bool behind(const Candidate& a, const Candidate& b);  // in the order

  SamplerOptions options_;
  std::vector<Candidate> candidates_;
};

// Evenly distributed in [0, 1).
double random_number(std::uint64_t seed, std::uint64_t position);

}  // namespace quire::engine
