// Sampling on the host: the token that engine/sampler.h defines, picked by one thread.
//
// Who may call: any thread that has a scratch buffer of its own. Nothing is allocated after its constructor.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "quire/backend/sampling_job.h"

namespace quire::sampling {

// Large enough for rows of up to `vocabulary` logits.
class Scratch {
 public:
  explicit Scratch(std::uint32_t vocabulary);
  Scratch(Scratch&&) = default;  // a copy would have no room

 private:
  friend Picked pick(std::span<const float> logits, const Job& job, Scratch& scratch);
  std::vector<float> logits_;          // adjusted
  std::vector<std::uint64_t> places_;  // see place()
  std::vector<std::uint64_t> sums_;    // of weights: by part of the row, or by range of weights
};

// `logits` are the job's row. The places of the answer are in the scratch buffer, until its next use.
Picked pick(std::span<const float> logits, const Job& job, Scratch& scratch);

}  // namespace quire::sampling
