// Transfers by a kernel (moves.h). The launcher puts it on the stream and returns.
#pragma once

#include <cuda_runtime_api.h>

#include "quire/backend/cuda/moves.h"

namespace quire::cuda {

// Host memory must be pinned and mapped at its own address.
void launch_moves(cudaStream_t stream, const MoveList& list, std::uint32_t multiprocessors);

}  // namespace quire::cuda
