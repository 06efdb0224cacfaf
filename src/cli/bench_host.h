// The host that a workload wants: a model, loaded anew, with a pool of the size that is needed and no larger.
#pragma once

#include <memory>

#include "quire/base/error.h"
#include "quire/cli/console.h"
#include "quire/cli/load.h"
#include "quire/cli/workloads.h"

namespace quire::cli {

Result<std::unique_ptr<engine::HostedModel>> make_bench_host(const ModelOptions& options,
                                                             const WorkloadOptions& workload, const HostNeeds& needs,
                                                             const Console& console);

}  // namespace quire::cli
