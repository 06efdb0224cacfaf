// The best that a scheduler could do with some requests, if every step takes what the costs say: an offline schedule of
// the same work. The measured times of an engine are compared with it.
//
// The ideal is the best of four schedules, for each figure by itself. Each of them
// - knows all costs exactly, has memory for everything, and schedules and samples in no time;
// - computes a shared prefix once. The other requests wait for it and reuse all of it;
// - gives every decoding sequence its token in every step;
// - fills a step with prompts, in the order of arrival or the shortest first, until the step takes as long as the
// target
//   allows; or, in two of the four, with all prompts that there are, whatever that takes. A schedule in which more than
//   1 of 100 tokens come later than the target after the one before does not count.
// A step that only has prompts delays nobody and has no limit.
//
// Who may call: anyone, from any thread; there is no state, and nothing fails.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "quire/base/percentiles.h"
#include "quire/engine/cost_model.h"

namespace quire::bench {

struct OfflineRequest {
  double arrival = 0;        // seconds; ignored if requests come as others end
  std::uint32_t prompt = 0;  // tokens
  std::uint32_t output = 0;  // at least 1
  std::uint32_t cached = 0;  // tokens of the prompt that are in the pool before the first request comes
  std::uint32_t shared = 0;  // tokens that it has in common with all others that have such; computed by the first
};

struct OfflineLoad {
  std::vector<OfflineRequest> requests;  // in the order of arrival
  std::uint32_t at_once = 0;             // so many at once, the next when one ends; 0: they come at `arrival`
};

struct LoadTimes {
  double total = 0;                         // seconds from the first request to the last token
  Percentiles first_token, between_tokens;  // seconds
};

LoadTimes ideal_of(const OfflineLoad& load, const engine::StepCosts& costs, double target);

}  // namespace quire::bench
