// Workloads that look at single steps of the model, at lengths that take long to read: the prompt is read once, the
// sequences that are wanted are made from it, and only the writing is repeated. There is no engine in between: nothing
// is scheduled or sampled, the tokens are random.
#pragma once

#include "quire/bench/workloads.h"

namespace quire::bench {

// One sequence at 8 k tokens: a whole step, and the part of it that short sequences do not have, which is attention.
Result<void> long_decode(const WorkloadOptions& options, const MakeHost& make, const Told& tell);

// Many sequences that share a beginning of 4 k tokens, against as many that have it each for itself.
Result<void> shared_decode(const WorkloadOptions& options, const MakeHost& make, const Told& tell);

}  // namespace quire::bench
