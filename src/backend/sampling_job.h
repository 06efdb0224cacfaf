// What is asked of a row of logits, and the answer. The token is exactly defined: engine/sampler.h says by which rules,
// sampling.h has the arithmetic.
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "quire/backend/sampling.h"

namespace quire::sampling {

// Several jobs may have the same row: the choices of a request. All memory is the host's.
struct Job {
  std::uint32_t row = 0;
  Rule rule;
  Penalties penalties;
  std::uint64_t random = 0;  // random_bits()
  // By ascending token, each token once. Tokens beyond the row are left out.
  std::span<const Seen> seen;
  std::span<const std::pair<std::int32_t, float>> biases;
  // A bit for each token, the lowest bit of a word first; only tokens whose bit is set are picked. Empty: all.
  std::span<const std::uint32_t> mask;
  // How many of the row's first tokens to report; 0: only what the log-probability of the picked one needs; negative:
  // the token alone.
  std::int32_t logprobs = -1;
};

// The masks of jobs may still be computed while a step runs. A backend calls wait() before it looks at the words of a
// mask: as late as possible, when all work before the sampling is under way.
class MaskGate {
 public:
  virtual void wait() = 0;

 protected:
  ~MaskGate() = default;
};

// Log-probabilities follow from logit, sum and places (engine/sampler.h: Sampler::told). All three are the model's own,
// before penalties, bias and mask.
struct Picked {
  std::int32_t token = -1;  // -1: all logits are NaN, or the mask allows none; then there is nothing else
  float logit = 0;          // of the token
  RowSum sum;               // with logprobs >= 0
  std::span<const std::uint64_t> places = {};  // place(): the first tokens, as many as were asked for and are numbers
};

// The most that Backend::sample() may be asked for in one step. A backend takes its memory for these.
struct Limits {
  std::uint32_t vocabulary = 0;  // logits of a row; at most kMostTokens
  std::uint32_t jobs = 0;
  std::uint32_t listed = 0;    // tokens in the lists of all jobs: seen and biases
  std::uint32_t reported = 0;  // tokens that all jobs report: Job::logprobs
};

inline constexpr std::uint32_t kMostTokens = 1U << 20;  // of a vocabulary
inline constexpr std::uint32_t kMostReported = 1024;    // by one job

// Counts what the jobs of a step take of the limits.
class Budget {
 public:
  Budget() = default;
  explicit Budget(const Limits& limits) : limits_(limits) {}
  void clear() { used_ = {}; }
  // False: the job does not fit any more. It is not counted then.
  bool take(const Job& job) {
    const std::uint64_t listed = used_.listed + std::uint64_t{job.seen.size()} + job.biases.size();
    const std::uint32_t own = job.logprobs > 0 ? static_cast<std::uint32_t>(job.logprobs) : 0;
    const std::uint64_t reported = std::uint64_t{used_.reported} + own;
    if (used_.jobs == limits_.jobs || listed > limits_.listed) return false;
    if (own > kMostReported || reported > limits_.reported) return false;
    ++used_.jobs;
    used_.listed = static_cast<std::uint32_t>(listed);
    used_.reported = static_cast<std::uint32_t>(reported);
    return true;
  }

 private:
  Limits limits_, used_;
};

}  // namespace quire::sampling
