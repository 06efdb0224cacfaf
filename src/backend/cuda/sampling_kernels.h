// Sampling on the device: a step returns tokens and not logits. C++20, for CUDA code.
//
// The token is the one that engine/sampler.h defines and the host's sampler picks, to the last bit: both use
// backend/sampling.h, and all sums are sums of integers. Nothing is sorted but a short list. The steps, with a block
// for each part of 4096 tokens of each job:
//   1. the highest logit of each part
//   2. weights: their sums by part, or (with top-k or top-p) tokens and weights by range of logits. The last block of a
//      job finds the range where the kept tokens end. A job that keeps all tokens draws its token here.
//   3. with top-k or top-p: the tokens down to that range are a short list. The last block of the job sorts it and
//   draws
//      the token. If the list would be long, one block finds the last kept token by radix selection;
//   4. then the parts are summed once more up to that token, and the token is drawn.
// Steps 3 and 4 end at once for jobs that do not need them, and are not launched if no job has top-k or top-p.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>

#include "quire/backend/sampling.h"

namespace quire::cuda {

inline constexpr std::uint32_t kMostSampledTokens = 1U << 20;  // of a vocabulary

struct TokenBias {
  std::int32_t token;
  float bias;
};

// What is wanted of a row of logits. Several jobs may have the same row: the choices of a request, and a token together
// with its log-probability. Logits are not changed.
struct SamplingJob {
  enum class Wants : std::uint32_t {
    Token,     // SamplingResult::token and logit
    Logprobs,  // SamplingResult::sum, and the first rule.top_k tokens. See logprobs_job().
  };
  static constexpr std::uint32_t kNoMask = 0xFFFFFFFF;

  sampling::Rule rule;
  sampling::Penalties penalties;
  std::uint32_t row = 0;
  std::uint64_t random = 0;  // sampling::random_bits
  // In SamplingInputs::seen and biases. By ascending token, each token once.
  std::uint32_t first_seen = 0, seen_count = 0;
  std::uint32_t first_bias = 0, bias_count = 0;
  std::uint32_t mask = kNoMask;         // first word in SamplingInputs::masks
  std::uint32_t first_alternative = 0;  // Logprobs: in SamplingOutputs::alternatives
  Wants wants = Wants::Token;
};

// The model's own log-probabilities: no penalties, no bias, no mask. `alternatives`: at most kMostAlternatives.
inline constexpr std::uint32_t kMostAlternatives = 1024;
constexpr SamplingJob logprobs_job(std::uint32_t row, std::uint32_t alternatives, std::uint32_t first_alternative) {
  SamplingJob job;
  job.rule = sampling::rule_of(1, alternatives, 1, 0);
  job.row = row;
  job.first_alternative = first_alternative;
  job.wants = SamplingJob::Wants::Logprobs;
  return job;
}

// Whether the rule has a limit that needs an order of tokens: steps 3 and 4.
QUIRE_HOST_DEVICE constexpr bool cuts(const sampling::Rule& rule) {
  return rule.rate != 0 && (rule.top_k != 0 || rule.top_p < sampling::kAllOfIt);
}

// All pointers are device pointers.
struct SamplingInputs {
  const float* logits = nullptr;  // [rows][vocabulary], rows `stride` apart
  std::uint64_t stride = 0;
  std::uint32_t vocabulary = 0;       // at most kMostSampledTokens
  const SamplingJob* jobs = nullptr;  // [job_count]
  std::uint32_t job_count = 0;
  bool any_cuts = true;  // false: the caller knows that cuts() is false for all jobs
  const sampling::Seen* seen = nullptr;
  const TokenBias* biases = nullptr;
  const std::uint32_t* masks = nullptr;  // a bit for each token, the lowest bit of a word first; set: allowed
};

// The host computes log-probabilities from logit and sum: engine/sampler.h, Sampler::told.
struct SamplingResult {
  std::int32_t token = -1;         // -1: all logits are NaN, or the mask allows none
  float logit = 0;                 // the model's own
  std::uint32_t alternatives = 0;  // fewer than wanted if fewer logits are numbers
  sampling::RowSum sum;
};

struct SamplingOutputs {
  SamplingResult* results = nullptr;      // [job_count]
  std::uint64_t* alternatives = nullptr;  // see sampling::place: token and logit, the most likely first
};

// `scratch` needs no particular contents, and may be reused by the next launch on the same stream.
std::size_t sampling_scratch_bytes(std::uint32_t job_count);
void launch_sampling(cudaStream_t stream, const SamplingInputs& inputs, const SamplingOutputs& outputs, void* scratch);

}  // namespace quire::cuda
