// The kernels of products. Launchers only launch: they check nothing, allocate nothing and never wait.
//
// A call of matmul() is: launch_prepare() once, then for each kind of weights one launch with all products of that
// kind. Which launcher depends on the GPU, the kind and the number of tokens (cuda_products.cpp).
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>

#include "quire/backend/cuda/product_layout.h"
#include "quire/backend/tensor.h"

namespace quire::cuda {

// --- inputs

enum class InputKind : std::uint8_t {
  // Common ones, which a product may make ready itself (ring_launch.h).
  Plain,
  Normed,
  GatedSilu,
  GatedGelu,
  GatedNormed,
  // Others.
  GatedSigmoid,
  Multiplied,
  GatedClamped,
  NormedGated,
  LayerNormed,
  ActivatedSilu,  // of `gate`; x is not used
  ActivatedGelu
};

QUIRE_BOTH constexpr bool is_common(InputKind kind) { return kind <= InputKind::GatedNormed; }

struct InputArgs {
  InputKind kind = InputKind::Plain;
  Tensor x, gate, weight;  // gate and weight where the kind has them
  float epsilon = 0;
  std::uint32_t groups = 1;
  Tensor bias = {};  // of a LayerNorm, or none
};

// Where an input is made ready, for the kinds of weights that need it. Padding columns are zeros; tokens up to the next
// multiple of 256 can be read, but are not written.
struct PreparedInput {
  std::uint16_t* halves = nullptr;                // input_at(); values times a power of two per token
  float* inverses = nullptr;                      // [token]: the inverse of that power
  std::uint16_t *high = nullptr, *low = nullptr;  // input_at(); bf16, whose sum is the value
  float* floats = nullptr;                        // [token][pieces * 256]
  std::uint16_t* rows = nullptr;                  // the halves, [token][pieces * 256]; only for launch_ring()
  bool overlap = false;                           // kernels may start while the one before ends (overlap.cuh)
};
struct InputForms {
  bool halves = false, bf16 = false, floats = false, rows = false;
  bool any() const { return halves || bf16 || floats || rows; }
};
cudaError_t prepare_inputs();  // once, before the first launch
void launch_prepare(cudaStream_t stream, const InputArgs& input, const PreparedInput& to, InputForms forms);

// --- products

struct MatrixArgs {
  const std::byte* tiles = nullptr;  // [tile][piece]; F32: [rows][cols]
  const float* inverses = nullptr;   // [rows]: the inverse of each row's power of two
  std::uint32_t rows = 0, cols = 0;
  std::uint32_t parts = 1;  // parts_of() the whole matrix
  float* out = nullptr;     // [token][rows], out_stride floats apart
  std::uint64_t out_stride = 0;
  const float* bias = nullptr;  // [rows], or none
  bool add = false;
  float scale = 1;
};

inline constexpr std::uint32_t kMostTogether = 4;
struct MatrixSet {
  MatrixArgs matrix[kMostTogether];
  std::uint32_t first_block[kMostTogether + 1] = {};  // set by the launcher
  std::uint32_t count = 0;
};

// Any packing and any number of tokens; made for up to 64. All matrices have the same packing and columns.
void launch_stream(cudaStream_t stream, Packing packing, MatrixSet set, std::uint32_t tokens, const PreparedInput& in);

// Quantised tiles [tile][piece] become halves.
void launch_expand(cudaStream_t stream, Packing packing, const std::byte* tiles, std::uint32_t tile_count,
                   std::uint32_t pieces, std::byte* to);

// Many tokens; tiles are halves. For GPUs without launch_split() (split_launch.h).
void launch_gemm(cudaStream_t stream, const MatrixSet& set, std::uint32_t tokens, const PreparedInput& in);
cudaError_t prepare_gemm();  // once, before the first launch

}  // namespace quire::cuda
