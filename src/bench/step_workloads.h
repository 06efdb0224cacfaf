// Workloads that time single steps of the model with long sequences. Their prefill takes long, so it runs once: all
// sequences are made from it, and only decode is repeated. They do not use the engine: nothing is scheduled or sampled,
// and the tokens are random.
#pragma once

#include "quire/bench/workloads.h"

namespace quire::bench {

// One sequence of 8 k tokens: a whole step, and the part that short sequences do not have, which is attention.
Result<void> long_decode(const WorkloadOptions& options, const MakeHost& make, const Told& tell);

// Sequences that share a prefix of 4 k tokens, compared with as many that each have their own copy.
Result<void> shared_decode(const WorkloadOptions& options, const MakeHost& make, const Told& tell);

}  // namespace quire::bench
