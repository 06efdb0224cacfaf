// The kernels of mixtures of experts. Launchers only launch: they check nothing, allocate nothing and never wait.
//
// The choice k of row i has the number i * used + k. Everything that an expert computes for a row has the number of
// that choice: inner activations and outputs are [choices][columns]. So kernels write where nobody else does, and
// nothing depends on the order of the lists below.
//
// A call of experts() is: launch_sort(); launch_prepare() of the rows; launch_experts() of gate and up;
// launch_prepare() of the choices; launch_experts() of down; launch_mix(). The lists stay on the device: the grids are
// as large as the rows can need, and blocks without work end at once.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>

#include "quire/backend/cuda/product_kernels.h"
#include "quire/backend/tensor.h"

namespace quire::cuda {

// The same as Router, which includes host headers.
struct RouterArgs {
  enum class Scores : std::uint8_t { Softmax, Sigmoid, ChosenSoftmax };
  Scores scores = Scores::Softmax;
  std::uint32_t experts = 0, used = 0, groups = 1, groups_used = 1;
  bool normed = false;
  float scale = 1, least_sum = 0;
};
// One warp per row. selection_bias: [experts] or none.
void launch_route(cudaStream_t stream, bool overlap, Tensor numbers, Tensor weights, Tensor logits,
                  Tensor selection_bias, const RouterArgs& router);

inline constexpr std::uint32_t kNoChoice = ~0u;
inline constexpr std::uint32_t kMostSortedExperts = 4096;

// The choices sorted by expert, in blocks of `block` choices of one expert each.
struct ChoiceBlocks {
  std::uint32_t* experts = nullptr;  // [blocks]: kNoChoice: no choices
  std::uint32_t* choices = nullptr;  // [blocks][block]: kNoChoice fills up an expert's last block
  std::uint32_t block = 0;
  std::uint32_t count = 0;  // blocks that there can be
  // Without lists (experts is null): block i is choice i alone. For one row, whose experts all differ.
  const float* numbers = nullptr;
  std::uint64_t stride = 0;
  std::uint32_t used = 0;
  bool by_row = false;  // the input of a choice is its row; false: it has an input of its own
};
// How many blocks there can be.
constexpr std::uint32_t most_blocks(std::uint32_t choices, std::uint32_t experts, std::uint32_t block) {
  return choices / block + (experts < choices ? experts : choices);
}
void launch_sort(cudaStream_t stream, bool overlap, Tensor numbers, std::uint32_t experts, const ChoiceBlocks& to);

// Matrices of expert 0; those of others are `stride` bytes further, biases `rows` floats.
struct ExpertSet {
  MatrixSet set;
  std::uint64_t stride[kMostTogether] = {};
};
// out[choice] = matrix of the choice's expert times its input. All matrices have the same packing and columns.
// `blocks.block` is 8 or 32.
void launch_experts(cudaStream_t stream, Packing packing, ExpertSet set, const ChoiceBlocks& blocks,
                    const PreparedInput& in);
// Once, before the first launch.
cudaError_t prepare_experts();
cudaError_t prepare_routes();
// By packing: each in a file of its own, so that they compile side by side.
cudaError_t prepare_experts_4_bits();
cudaError_t prepare_experts_8_bits();
cudaError_t prepare_experts_floats();
void experts_4_bits(cudaStream_t stream, Packing packing, ExpertSet& set, const ChoiceBlocks& blocks,
                    const PreparedInput& in);
void experts_8_bits(cudaStream_t stream, Packing packing, ExpertSet& set, const ChoiceBlocks& blocks,
                    const PreparedInput& in);
void experts_floats(cudaStream_t stream, Packing packing, ExpertSet& set, const ChoiceBlocks& blocks,
                    const PreparedInput& in);

// out[i] = sum over k of weights[i][k] * from[i * used + k], in the order of k; or out[i] + that times `scale`.
void launch_mix(cudaStream_t stream, bool overlap, Tensor out, const float* from, Tensor weights, bool add,
                float scale);

}  // namespace quire::cuda
