// The workload `serve`: what clients of a busy server see, without HTTP. Requests with a shared prefix, some at once,
// cold and warm; and a mix of short and long prompts that come at random.
#pragma once

#include "quire/bench/workloads.h"

namespace quire::bench {

Result<void> serve(const WorkloadOptions& options, const MakeHost& make, const Told& tell);

}  // namespace quire::bench
