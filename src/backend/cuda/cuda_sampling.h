// Sampling of a step on the GPU: the jobs on their way there, and the answers on their way back.
//
// The jobs of a step with all their lists are one transfer, their masks another one, and the answers a third. The
// kernels are launched after the operations of the step, outside its graph: what they do depends on the number of jobs.
// The masks are copied then too, so that the host may compute them while the GPU computes the step.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <cuda_runtime_api.h>

#include "quire/backend/cuda/cuda_device.h"
#include "quire/backend/cuda/sampling_kernels.h"
#include "quire/backend/sampling_job.h"
#include "quire/backend/tensor.h"

namespace quire::cuda {

class CudaSampling {
 public:
  // Takes all memory for steps within these limits. The device must outlive it.
  PoolResult<void> prepare(CudaDevice& device, const sampling::Limits& limits);

  void begin() { job_count_ = 0; }
  // Submits the jobs. The answers are there after launch(), a fence and collect(). Jobs and gate stay until then.
  std::span<const sampling::Picked> sample(Tensor logits, std::span<const sampling::Job> jobs,
                                           sampling::MaskGate* masks);
  // Waits for the masks, and submits them, the kernels and the way back. The logits are complete on the stream by now.
  void launch();
  void collect();

 private:
  struct FreePinned {
    void operator()(std::byte* memory) const { cudaFreeHost(memory); }
  };
  using Pinned = std::unique_ptr<std::byte, FreePinned>;

  // Where things are in the memory for jobs; a list ends where the next one begins.
  struct Places {
    std::uint64_t seen = 0, biases = 0, masks = 0, end = 0;
  };
  static Places places_for(std::uint64_t jobs, std::uint64_t seen, std::uint64_t biases, std::uint64_t mask_words);
  void pack(std::span<const sampling::Job> jobs, const Places& places);
  void submit_masks();

  CudaDevice* device_ = nullptr;
  sampling::Limits limits_;
  Pinned jobs_host_, answers_host_;
  DeviceBuffer jobs_device_, answers_device_, scratch_;
  std::uint64_t jobs_bytes_ = 0;  // capacity

  // Of this step
  std::uint32_t job_count_ = 0;  // the caller's; the kernels have one more for each with log-probabilities
  std::span<const sampling::Job> jobs_;
  sampling::MaskGate* gate_ = nullptr;
  Places places_;
  std::uint64_t answer_bytes_ = 0;
  SamplingInputs inputs_;
  SamplingOutputs outputs_;
  std::vector<sampling::Picked> picked_;
  std::vector<bool> with_logprobs_;  // by job
};

}  // namespace quire::cuda
