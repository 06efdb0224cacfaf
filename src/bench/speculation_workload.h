// The workload `speculation`: answers that repeat their prompt, as a summary does, and answers that do not, with and
// without speculation in turn.
//
// Weights may be random, so the answers are scripts: a constraint allows one token at each position. The model computes
// every step as for any answer, guesses have to be found and verified, and how often they are right follows from the
// script, as it would from a text.
#pragma once

#include "quire/bench/workloads.h"

namespace quire::bench {

Result<void> speculation(const WorkloadOptions& options, const MakeHost& make, const Told& tell);

}  // namespace quire::bench
