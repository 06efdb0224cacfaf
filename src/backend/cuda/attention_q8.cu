#include "quire/backend/cuda/attention_fast.h"

namespace quire::cuda {

void launch_attend_q8(cudaStream_t stream, const AttendCall& call, std::uint32_t multiprocessors, bool wide) {
  launch_fast<ElementType::Q8_0>(stream, call, multiprocessors, wide);
}

}  // namespace quire::cuda
