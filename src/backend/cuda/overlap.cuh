// Lets a kernel start while the one before it in the stream ends (programmatic dependent launch, compute
// capability 9.0). Such a kernel may read what no kernel of a step writes: weights. Everything else comes after
// wait_for_previous(). Any kernel may follow in the usual way: it then waits for all of this one.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

namespace quire::cuda {

// The next kernel, if it is launched with overlap, may start when all blocks of this one have said so.
__device__ inline void let_next_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
// Waits until all kernels before this one are done and what they wrote can be read.
__device__ inline void wait_for_previous() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Kernels run side by side only if they divide a multiprocessor's memory into cache and shared memory in the same way.
template <typename... Parameters>
cudaError_t want_shared_memory(void (*kernel)(Parameters...)) {
  return cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
}

// For kernels that read the same memory again and again: a quarter is shared memory, the rest cache. (A kernel that
// sets no preference keeps the split of the kernel before it.)
template <typename... Parameters>
cudaError_t want_cache(void (*kernel)(Parameters...)) {
  return cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, 25);
}

// `overlap` only if the kernel is compiled for 9.0 or later: otherwise it would not wait.
template <typename... Parameters, typename... Arguments>
void launch(bool overlap, cudaStream_t stream, dim3 grid, std::uint32_t threads, std::size_t shared_bytes,
            void (*kernel)(Parameters...), const Arguments&... arguments) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = overlap ? 1 : 0;
  cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...);
}

}  // namespace quire::cuda
