// The costs of a step for a simulation: measured by `quire bench -w serve --json`, or estimated from two rates.
//
// Who may call: anyone, from any thread; there is no state.
// How it fails: read_costs() returns one line with the file and what is wrong with it.
#pragma once

#include <string>

#include "quire/base/error.h"
#include "quire/engine/cost_model.h"

namespace quire::simulate {

struct Rates {
  double prefill = 30'000;  // tokens of prompts a second; as of a model of 8 B parameters on an H100 in bf16
  double decode = 160;      // tokens a second of one answer alone: how fast the weights are read
};
// The rest is estimated. A decoding row costs 0.6 times as much as a row of a prompt. Attention to 130 k tokens takes
// as long as reading the weights (their keys and values are as large); to 32 k tokens it doubles the cost of a prompt's
// row.
engine::StepCosts costs_of(const Rates& rates);

// The last object of the file with "costs", or the costs themselves: {"base": ..., "decode_row": ..., "prefill_row":
// ..., "decode_context": ..., "prefill_context": ...}, in seconds.
Result<engine::StepCosts> read_costs(const std::string& path);

}  // namespace quire::simulate
