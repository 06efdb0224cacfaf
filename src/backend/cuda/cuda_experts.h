// Mixtures of experts on a GPU: the host's part. Choices are made, sorted and multiplied on the device: the host never
// sees them. It owns no memory: the backend allocates what scratch_bytes() says.
//
// Who may call: one thread. route() and experts() only launch kernels: they allocate nothing, never wait, and can be
// captured in a CUDA graph.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>

#include "quire/backend/backend.h"
#include "quire/backend/cuda/cuda_low_rank.h"
#include "quire/backend/cuda/cuda_products.h"
#include "quire/backend/cuda/expert_kernels.h"

namespace quire::cuda {

class CudaExperts {
 public:
  static std::uint64_t scratch_bytes(const Backend::Sizes& sizes);
  // Takes that memory, aligned to 256 bytes.
  cudaError_t prepare(const Backend::Sizes& sizes, std::byte* scratch, bool overlap);

  void route(cudaStream_t stream, const Choices& choices, Tensor logits, Tensor selection_bias,
             const Router& router) const;
  // The input is made ready where `products` has its place for that.
  void experts(cudaStream_t stream, const CudaProducts& products, const CudaLowRank& adapters, const ExpertLayer& layer,
               const Input& input, const Choices& choices) const;

 private:
  ChoiceBlocks sort(cudaStream_t stream, const Choices& choices, std::uint32_t experts) const;

  Backend::Sizes sizes_;
  bool overlap_ = false;
  PreparedInput inner_;               // inputs of down, by choice
  float* outputs_ = nullptr;          // of down, by choice
  std::uint32_t* experts_ = nullptr;  // lists of choices
  std::uint32_t* choices_ = nullptr;
};

}  // namespace quire::cuda
